# Sextant. `make help` lists the targets.

SHELL       := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

TOOL        := go tool -modfile=test/tools/go.mod
LINTER      := go tool -modfile=$(CURDIR)/test/tools/golangci-lint/go.mod golangci-lint
# A failed test is tried once more, and both runs are reported; many failures are no accident.
RERUN       := --rerun-fails=1 --rerun-fails-max-failures=3
TESTSUM     := go tool -modfile=$(CURDIR)/test/tools/gotestsum/go.mod gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg
SUDO        := $(if $(filter 0,$(shell id -u)),,sudo)
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Without grpcnotrace gRPC brings in templates, which keep methods nobody calls from
# being left out of the program: a fourth of it (docs/measurements.md).
BUILD       := CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags "-X github.com/sextant-node/sextant/pkg/service.Version=$(VERSION)"

# make up CRI=unix:///run/containerd/containerd.sock uses a runtime that is there.
CRI         ?=
WAIT_PODS   ?= 1
IMAGES      := bin/images/pause.tar bin/images/hello.tar
WIRE        := proto/sextant.binpb
FUZZ_SECONDS ?= 30

## Try it

.PHONY: up
up: setup build $(IMAGES) ## Start a node with an example pod, installing what is missing (root)
ifneq ($(CRI),)
	@for image in $(IMAGES); do \
		$(SUDO) ctr --address $(patsubst unix://%,%,$(CRI)) --namespace k8s.io images import $$image >/dev/null || exit; done
endif
	@$(SUDO) bin/sextant up --demo --detach --demo-images=bin/images --demo-manifests=deploy/examples \
		--wait-pods=$(WAIT_PODS) $(if $(CRI),--container-runtime-endpoint=$(CRI))

.PHONY: down
down: ## Stop the node and remove every trace of it
	@if [ -x bin/sextant ]; then $(SUDO) bin/sextant down --purge; fi

.PHONY: setup
setup:
	@$(SUDO) deploy/setup/setup.sh

.PHONY: build
build: ## Build bin/sextant
	@$(BUILD) -o bin/sextant ./cmd/sextant

# Versions of packages must rise: by commits.
DEB_VERSION ?= 0.0.$(shell git rev-list --count HEAD)+g$(shell git rev-parse --short HEAD)

.PHONY: deb
deb: ## Build the Debian package, bin/sextant_VERSION_ARCH.deb
	@deploy/package/build.sh $(DEB_VERSION) bin

.PHONY: images
images: $(IMAGES) ## Assemble the local images

$(IMAGES) &: $(shell find test/images -name '*.go') go.mod
	@go run ./test/images/mkimages -o bin/images >/dev/null
	@touch $(IMAGES)

## Contracts

.PHONY: generate
generate: ## Generate code from proto/
	@$(TOOL) buf format -w
	@$(TOOL) buf generate

.PHONY: check-generate
check-generate: ## Fail if the generated code is not what proto/ yields
	@new=$$(mktemp -d) && trap 'rm -rf "$$new"' EXIT && $(TOOL) buf generate -o "$$new" && \
		for f in $$(cd "$$new/proto" && find . -type f); do \
			cmp -s "$$new/proto/$$f" "proto/$$f" || { echo "proto/$$f is not what proto/ yields: run make generate"; exit 1; }; done && \
		for f in $$(cd proto && find . -name '*.pb.go'); do \
			[ -e "$$new/proto/$$f" ] || { echo "proto/$$f has no contract any more"; exit 1; }; done

.PHONY: buf
buf: ## Check the contracts: lint, format, wire compatibility with the committed image
	@$(TOOL) buf lint
	@$(TOOL) buf format -d --exit-code
	@[ -e $(WIRE) ] || { echo "$(WIRE) is missing: run make wire and commit it"; exit 1; }
	@$(TOOL) buf breaking --against $(WIRE)

.PHONY: wire
wire: ## Accept the contracts as they are as the ones to stay compatible with
	@$(TOOL) buf build -o $(WIRE)

## Checks

.PHONY: test
test: ## Everything: what a change must pass
	@$(MAKE) --no-print-directory test-setup
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory check-generate
	@$(MAKE) --no-print-directory buf
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory unit UNIT="./proto/... ./test/..."
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory e2e
	@echo "make test: everything passed"

# The race detector and runc need a C compiler; images have busybox and bash.
.PHONY: test-setup
test-setup:
	@$(SUDO) deploy/setup/setup.sh gcc libc6-dev pkg-config libseccomp-dev busybox-static bash-static dbus-daemon systemd

.PHONY: lint
lint: ## Static checks: golangci-lint in every module, scripts
	@echo "== lint"
	@for s in deploy/setup/setup.sh deploy/package/build.sh deploy/package/p* test/env/*.sh test/machine/*.sh; do sh -n $$s || exit; done
	@bash -n .ci/run
	@$(LINTER) run --allow-parallel-runners ./...
	@cd test/machine && $(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...
	@cd test/e2e && $(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...

# make test leaves out here what it has tested under the race detector.
UNIT        ?= ./...

.PHONY: unit
unit: ## Tests that need no root and no real parts
	@echo "== unit"
	@$(TESTSUM) $(RERUN) --packages="$(UNIT)"

.PHONY: race
race: ## Those of the product under the race detector
	@echo "== race"
	@CGO_ENABLED=1 $(TESTSUM) $(RERUN) --packages="./cmd/... ./pkg/... ./services/..." -- -race -timeout=10m

.PHONY: fuzz
fuzz: ## Every fuzz test for a moment, FUZZ_SECONDS in all
	@echo "== fuzz"
	@test/env/fuzz.sh $(FUZZ_SECONDS)

.PHONY: env
env: ## Build the real parts that end-to-end tests need
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm metrics-server >/dev/null

.PHONY: e2e
e2e: ## End-to-end tests on real runtimes and a real API server (root)
	@echo "== e2e"
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm metrics-server conformance
	@$(TESTSUM) -- -timeout=10m ./test/crisuite -run=TestReal -containerd=PATH -count=1
	@$(TESTSUM) -- -timeout=10m ./test/crisuite -run=TestReal -containerd="$$(test/env/install.sh runtime | tail -n 1)/bin/runtime" -count=1
	@git rev-parse --quiet --verify 'HEAD^' >/dev/null 2>&1 || echo "there is no commit before this one here: TestSkew mixes it with itself"
	@cd test/e2e && $(TESTSUM) $(RERUN) --packages=". ./bench/figures ./compare ./harness ./killmatrix/judge ./kubeadm" -- -timeout=25m -count=1 -p=1 -short -skip='^(TestDeadFileSystem|TestVolumeCost)$$'
	@cd test/e2e && $(TESTSUM) $(RERUN) --packages=./volumekills -- -timeout=20m -count=1
	@cd test/e2e && $(TESTSUM) -- ./killmatrix -short -timeout=10m -count=1
	@cd test/e2e/conformance && go test -timeout=20m -count=1 -fast -agents=sextant -procs=$(PROCS) -attempts=2

MACHINE_CACHE ?= $(or $(SEXTANT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sextant)/machine

MACHINE       ?=

.PHONY: machine
machine: test-setup $(IMAGES) ## The package on a whole Debian in emulation: kills, upgrade, shutdown, offline, power cuts, purge (root; MACHINE='-cuts=3')
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@test/env/install.sh etcd kubernetes
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE)
	@rm -rf bin/machine
	@BUILD_FLAGS= deploy/package/build.sh 0.0.1 bin/machine
	@BUILD_FLAGS= deploy/package/build.sh 0.0.2 bin/machine
	@cd test/machine && go test -v -count=1 -timeout=12h -run='^TestMachine$$' -image=$(MACHINE_CACHE) -packages=$(CURDIR)/bin/machine -images=$(CURDIR)/bin/images $(MACHINE) .

.PHONY: machine-storage
machine-storage: test-setup $(IMAGES) ## Volumes of a real NFS server and a real iSCSI target, on the same machine (root)
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE)
	@$(SUDO) test/machine/storage.sh $(MACHINE_CACHE) $(MACHINE_CACHE)/storage
	@rm -rf bin/storage
	@BUILD_FLAGS= deploy/package/build.sh 0.0.1 bin/storage
	@BUILD_FLAGS= deploy/package/build.sh 0.0.2 bin/storage
	@cd test/machine && go test -v -count=1 -timeout=3h -run='^TestStorage$$' -storage=$(MACHINE_CACHE)/storage -packages=$(CURDIR)/bin/storage -images=$(CURDIR)/bin/images $(MACHINE) .

.PHONY: volume-kills
volume-kills: test-setup ## 200 kill -9s under pods with every kind of volume: of volume alone, and of volume and podworker of a node (root)
	@test/env/install.sh runtime etcd kubernetes
	@go test ./services/volume -v -count=1 -timeout=30m -run='^TestKills$$' -kills=200
	@cd test/e2e && go test ./volumekills -v -count=1 -timeout=90m -kills=200 -volume-out=$(CURDIR)/docs/volume-kills.txt

STALL ?=

.PHONY: dead-file-system
dead-file-system: test-setup ## A file system that stops answering under 5 of 50 pods: what the others notice (root, ten minutes on a quiet machine)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=60m -run='^TestDeadFileSystem$$' $(STALL)

.PHONY: volume-cost
volume-cost: test-setup ## What a ConfigMap, a token and an emptyDir cost at the start of a pod (root, three minutes on a quiet machine)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=60m -run='^TestVolumeCost$$'

AGENTS  ?= reference,sextant
FOCUS   ?= \[sig-node\].*\[NodeConformance\]
SKIP    ?= \[Flaky\]|\[Slow\]|\[Serial\]|\[Disruptive\]
PROCS   ?= 3
PROGRAM ?= e2e
CLUSTER ?=

.PHONY: conformance
conformance: test-setup ## Upstream's node tests on the reference kubelet and on Sextant, side by side (root; docs/conformance.md)
	@test/env/install.sh runtime etcd kubernetes kubelet conformance $(if $(filter e2e_node,$(PROGRAM)),node-tests)
	@cd test/e2e && go test ./conformance -v -count=1 -timeout=6h -agents='$(AGENTS)' -focus='$(FOCUS)' -skip='$(SKIP)' -procs=$(PROCS) -program=$(PROGRAM) \
		$(if $(CLUSTER),-kubeconfig='$(abspath $(CLUSTER))')

.PHONY: takeover
takeover: test-setup ## From the reference kubelet to Sextant and back under running pods (root)
	@test/env/install.sh runtime etcd kubernetes kubelet
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestTakeOver$$'

.PHONY: offline
offline: test-setup ## A loss of power, and a start without an API server (root)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestOffline$$'

PREVIOUS ?=

.PHONY: skew
skew: test-setup ## Services of this commit mixed with those of the one before it, or of PREVIOUS (root)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestSkew$$' -previous='$(PREVIOUS)'

KILLS ?=

.PHONY: kill-matrix
kill-matrix: test-setup ## Each service and the bus killed 30 times, and 30 pairs, under load (root, half an hour; docs/kill-matrix.md)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=2h -run='^TestKills$$' -out=$(CURDIR)/docs/kill-matrix.txt $(KILLS)

.PHONY: kill-matrix-lasting
kill-matrix-lasting: test-setup ## What lasts: stops, memory limits, full disks, no API server, another time (root, half an hour)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=3h -run='^TestLasting$$' -out=$(CURDIR)/docs/kill-matrix-lasting.txt $(KILLS)

RESTARTS = -run='^TestKills$$' -rounds=20 -pairs=0 -ready=100 -unready=20 -starting=10 -churn=0

.PHONY: restarts
restarts: test-setup ## Each service killed 20 times under 130 pods, and again with the API server away (root, half an hour)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=2h $(RESTARTS) -out=$(CURDIR)/docs/restarts.txt $(KILLS)
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=2h $(RESTARTS) -cut -out=$(CURDIR)/docs/restarts-cut-off.txt $(KILLS)

BENCH ?= -record -out=$(CURDIR)/docs/bench

.PHONY: bench
bench: test-setup ## The reference kubelet and Sextant in turn: times, CPU, memory, requests (root; BENCH=-short for a quick look)
	@test/env/install.sh runtime etcd kubernetes kubelet
	@cd test/e2e && go test ./bench -v -count=1 -timeout=60m $(BENCH)

PROMISES ?=

.PHONY: promises
promises: test-setup $(IMAGES) ## What users are promised: bound, measured, met or not (root; PROMISES=-full for all kills)
	@test/env/install.sh runtime etcd kubernetes >/dev/null
	@go run ./test/promises $(PROMISES)

.PHONY: microbench
microbench: ## Benchmarks of packages
	@go test -run='^$$' -bench=. -benchmem ./pkg/... ./services/...

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
