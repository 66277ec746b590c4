# Sextant. `make help` lists the targets.

SHELL       := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

TOOL        := go tool -modfile=test/tools/go.mod
LINTER      := go tool -modfile=$(CURDIR)/test/tools/golangci-lint/go.mod golangci-lint
TESTSUM     := go tool -modfile=$(CURDIR)/test/tools/gotestsum/go.mod gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg
# Tests that passed only when they were run once more; remove a line when its cause is mended.
export RERUNS := $(CURDIR)/bin/reruns.txt
SUDO        := $(if $(filter 0,$(shell id -u)),,sudo)

# make up CRI=unix:///run/containerd/containerd.sock uses a runtime that is there.
CRI         ?=
WAIT_PODS   ?= 1
IMAGES      := bin/images/pause.tar bin/images/hello.tar
WIRE        := proto/sextant.binpb
FUZZ_SECONDS ?= 30
FUZZ        ?= .

# The path of a Unix socket has 107 bytes at most (unix(7)); folders of tests and the
# sockets in them leave 24 for the first part.
ifeq ($(shell [ $${#TMPDIR} -le 24 ] || echo long),long)
export TMPDIR := /tmp
endif

## Try it

.PHONY: up
up: setup build bin/demo $(IMAGES) ## Start a node with an example pod, installing what is missing (root)
ifneq ($(CRI),)
	@for image in $(IMAGES); do \
		$(SUDO) ctr --address $(patsubst unix://%,%,$(CRI)) --namespace k8s.io images import $$image >/dev/null || exit; done
endif
	@$(SUDO) bin/demo --wait-pods=$(WAIT_PODS) $(if $(CRI),--container-runtime-endpoint=$(CRI)) up

.PHONY: down
down: ## Stop the node and remove every trace of it
	@if [ -x bin/sextant ] && [ -x bin/demo ]; then $(SUDO) bin/demo down; fi

.PHONY: bin/demo
bin/demo:
	@go build -o $@ ./test/demo

.PHONY: setup
setup:
	@$(SUDO) deploy/setup/setup.sh

.PHONY: build
build: ## Build bin/sextant
	@deploy/build.sh bin/sextant

.PHONY: deb
deb: ## Build the Debian package, bin/sextant_VERSION_ARCH.deb
	@deploy/package/build.sh bin

RELEASE ?= bin/release

.PHONY: release
release: ## Build what a user of this version downloads, for amd64 and arm64, into bin/release (RELEASE_KEY: an SSH key that signs it)
	@rm -rf $(RELEASE)
	@deploy/release.sh $(RELEASE)

.PHONY: release-check
release-check: ## Build the release twice, in two folders, and compare every byte (three minutes; ARCHS='amd64 arm64')
	@test/env/reproducible.sh

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

VULNDB ?=

.PHONY: vulncheck
vulncheck: ## Known vulnerabilities in what the program links (asks vuln.go.dev, or VULNDB=URL)
	@GOFLAGS=-tags=grpcnotrace go tool -modfile=$(CURDIR)/test/tools/govulncheck/go.mod govulncheck $(if $(VULNDB),-db=$(VULNDB)) ./cmd/...

.PHONY: test
test: ## Everything: what a change must pass
	@$(MAKE) --no-print-directory test-setup
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory check-generate
	@$(MAKE) --no-print-directory buf
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory unit UNIT="./proto/... ./test/..."
	@$(MAKE) --no-print-directory oracle
	@$(MAKE) --no-print-directory work
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory hostile HOSTILE=-short
	@[ ! -s $(RERUNS) ] || { echo "passed only when run again, here so far ($(RERUNS)):"; tail -n 20 $(RERUNS); }
	@echo "make test: everything passed"

# The race detector and runc need a C compiler; images have busybox and bash.
.PHONY: test-setup
test-setup:
	@$(SUDO) deploy/setup/setup.sh gcc libc6-dev pkg-config libseccomp-dev busybox-static bash-static dbus systemd

.PHONY: lint
lint: ## Static checks: golangci-lint in every module, code that only tests call, scripts
	@echo "== lint"
	@for s in deploy/build.sh deploy/release.sh deploy/setup/setup.sh deploy/package/build.sh deploy/package/p* test/env/*.sh test/machine/*.sh; do sh -n $$s || exit; done
	@bash -n .ci/run && bash -n .ci/nightly
	@$(LINTER) run --allow-parallel-runners ./...
	@cd test/machine && $(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...
	@cd test/e2e && $(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...
	@cd test/oracle && $(LINTER) run --allow-parallel-runners --config=$(CURDIR)/.golangci.yml ./...
	@test/env/deadcode.sh

# make test leaves out here what it has tested under the race detector.
UNIT        ?= ./...

.PHONY: unit
unit: ## Tests that need no root and no real parts
	@echo "== unit"
	@test/env/tests.sh --packages="$(UNIT)" -- -timeout=30m

.PHONY: race
race: ## Those of the product under the race detector
	@echo "== race"
	@test/env/race.sh

REQUESTS ?=

.PHONY: requests
requests: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
requests: test-setup build ## What the reference kubelet and Sextant ask their runtimes for and what becomes of the same random pods (root, an hour; REQUESTS='-run=Lives -wave=30 -seed=7')
	@test/env/install.sh runtime etcd kubernetes kubelet
	@cd test/e2e && go test ./requests -v -count=1 -timeout=4h $(REQUESTS)

CASES ?= 1000

.PHONY: oracle
oracle: ## Decisions about CPUs and NUMA nodes against the reference's own, on random machines (CASES=100000: the long form)
	@echo "== oracle"
	@cd test/oracle && $(TESTSUM) -- . -timeout=2h -count=1 -cases=$(CASES)

.PHONY: work
work: ## What a start and an end of a pod give each process to do, counted (root; cmd/sextant/testdata/work.txt)
	@echo "== work"
	@cd cmd/sextant && $(TESTSUM) -- . -timeout=30m -count=1 -run='^TestWork$$'

.PHONY: fuzz
fuzz: ## Fuzz tests in turn, FUZZ_SECONDS in all; every one of them from 15 s each on (FUZZ=REGEXP)
	@echo "== fuzz"
	@test/env/fuzz.sh $(FUZZ_SECONDS) '$(FUZZ)'

# Decisions and parsers: no root, no real parts, no times. A program cannot execute itself
# in emulation, as TestReplaceKilled does.
ARM64 ?= ./pkg/backoff ./pkg/file ./pkg/pattern ./pkg/pod/... ./pkg/kubeletconfig ./pkg/quiet ./pkg/signal ./pkg/wire ./pkg/yamlsize \
	./services/podworker/internal/step ./services/resource/internal/eviction ./services/resource/internal/cpumanager \
	./services/volume/internal/demand ./services/volume/internal/claim ./services/status/internal/nodestatus \
	./services/config/internal/manifest ./services/config/internal/merge ./services/config/internal/refs \
	./services/supervisor/versions ./cmd/sextant/internal/check

.PHONY: test-arm64
test-arm64: ## Tests of decisions and parsers on arm64, which is emulated (installs qemu-user-static; ten minutes)
	@$(SUDO) deploy/setup/setup.sh qemu-user-static
	@GOARCH=arm64 CGO_ENABLED=0 go test -exec=qemu-aarch64-static -skip='^TestReplaceKilled$$' -timeout=60m $(ARM64)

MUTANTS ?= -out=docs/mutants.txt

.PHONY: mutants
mutants: ## Break the program on purpose, one promise at a time: the tests must notice (root, an hour; MUTANTS='-run=REGEXP')
	@go run ./test/mutants $(MUTANTS)

.PHONY: env
env: ## Build the real parts that end-to-end tests need
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm metrics-server >/dev/null

.PHONY: e2e
e2e: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
e2e: export SEXTANT_SEEN ?= $(CURDIR)/bin/seen.jsonl
e2e: build ## End-to-end tests on real runtimes and a real API server (root)
	@echo "== e2e"
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm metrics-server conformance
	@$(MAKE) --no-print-directory -j2 --output-sync=target crisuite-oldest crisuite-newest
	@# Two packages at a time: that of identity waits, and kubeadm has a machine of its own.
	@cd test/e2e && ../env/tests.sh --packages="./identity . ./kubeadm ./harness ./bench/figures ./compare ./killmatrix/judge" -- -timeout=45m -count=1 -p=2 -short -skip='^(TestDeadFileSystem|TestVolumeCost|TestUpgrade|TestInstaller|TestRPM)$$'
	@cd test/e2e && $(TESTSUM) -- ./requests -run='^TestRequests$$' -short -timeout=20m -count=1
	@cd test/e2e && $(TESTSUM) -- ./volumekills -timeout=40m -count=1
	@cd test/e2e && $(TESTSUM) -- ./killmatrix -short -timeout=30m -count=1
	@cd test/e2e && $(TESTSUM) -- ./devices -run='^(TestPlugins|TestTakeOver)$$' -timeout=20m -count=1
	@cd test/e2e/conformance && go test -timeout=20m -count=1 -fast -agents=sextant -procs=$(PROCS) -attempts=2 -late=1 -ledger=$(RERUNS)

# They wait most of the time.
.PHONY: crisuite-oldest crisuite-newest
crisuite-oldest:
	@$(TESTSUM) -- -timeout=10m ./test/crisuite -run=TestReal -containerd=PATH -count=1
crisuite-newest:
	@$(TESTSUM) -- -timeout=10m ./test/crisuite -run=TestReal -containerd="$$(test/env/install.sh runtime | tail -n 1)/bin/runtime" -count=1

.PHONY: containerd-1.7
containerd-1.7: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
containerd-1.7: export SEXTANT_SEEN ?= $(CURDIR)/bin/seen.jsonl
containerd-1.7: test-setup build ## The tests of the runtime and of a node on containerd 1.7 (root, ten minutes)
	@test/env/install.sh runtime-1.7 etcd kubernetes metrics-server
	@$(TESTSUM) -- -timeout=10m ./test/crisuite -run=TestReal -containerd="$$(test/env/install.sh runtime-1.7 | tail -n 1)/bin/runtime-1.7" -count=1
	@cd test/e2e && go test . -v -count=1 -timeout=40m -short -run='^TestNodes$$' -kinds=v1.7-bus

# Minors of the API server besides that of the kubelet.
API_SERVERS ?= $(patsubst test/env/kubernetes-%,%,$(wildcard test/env/kubernetes-1.*))

.PHONY: api-servers
api-servers: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
api-servers: export SEXTANT_SEEN ?= $(CURDIR)/bin/seen.jsonl
api-servers: test-setup build ## The tests of a node with API servers of other minors, one after the other (root, ten minutes, and twelve to build them; API_SERVERS=1.37)
	@test/env/install.sh runtime etcd kubernetes metrics-server $(addprefix kubernetes-,$(API_SERVERS))
	@cd test/e2e && for minor in $(API_SERVERS); do \
		SEXTANT_API_SERVER=$$minor go test . -v -count=1 -timeout=40m -short -run='^TestNodes$$' || exit; done

# An earlier version to upgrade from, or to mix with: a commit, a tag, or a version of
# test/env/releases.txt.
PREVIOUS ?=

# What the emulated machine runs: a release of Debian or Ubuntu (jammy: Ubuntu 22.04), and the
# version that is upgraded there: the package of 0.1.0 asks for Debian 12's systemd.
DISTRO ?= bookworm
FORMER = $(or $(PREVIOUS),$(if $(filter bookworm,$(DISTRO)),0.1.0,4f2d124))
MACHINE_CACHE ?= $(or $(SEXTANT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sextant)/machine-$(DISTRO)

MACHINE       ?=

# A folder with two packages: that of an earlier version, and that of this tree.
define packages
rm -rf $(1) && mkdir -p $(1)/source $(1)/previous $(1)/this
	@version=$$(test/env/previous.sh $(1)/source $(FORMER)) && deploy/package/build.sh $(1)/previous "$$version" $(1)/source
	@deploy/package/build.sh $(1)/this
endef

.PHONY: machine
machine: test-setup $(IMAGES) ## The package on a whole Debian or Ubuntu in emulation: kills, upgrade, shutdown, offline, power cuts, purge (root; MACHINE='-cuts=3', DISTRO=jammy)
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@test/env/install.sh etcd kubernetes
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE) $(DISTRO)
	@$(call packages,bin/machine)
	@cd test/machine && go test -v -count=1 -timeout=12h -run='^TestMachine$$' -image=$(MACHINE_CACHE) -packages=$(CURDIR)/bin/machine -images=$(CURDIR)/bin/images $(MACHINE) .

.PHONY: machine-storage
machine-storage: test-setup $(IMAGES) ## Volumes of a real NFS server and a real iSCSI target, on the same machine (root)
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE) $(DISTRO)
	@$(SUDO) test/machine/storage.sh $(MACHINE_CACHE) $(MACHINE_CACHE)/storage
	@$(call packages,bin/storage)
	@cd test/machine && go test -v -count=1 -timeout=3h -run='^TestStorage$$' -storage=$(MACHINE_CACHE)/storage -packages=$(CURDIR)/bin/storage -images=$(CURDIR)/bin/images $(MACHINE) .

.PHONY: machine-migrate
machine-migrate: test-setup $(IMAGES) ## A Debian that kubeadm joined with the kubelet gets Sextant and the kubelet again, by the package and by the DaemonSet, on the same machine (root)
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE) $(DISTRO)
	@rm -rf bin/release-test && mkdir -p bin/release-test && FORMATS=deb deploy/package/build.sh bin/release-test
	@go run ./deploy/package/image -name sextant.local/sextant:test -o bin/release-test/image.tar bin/release-test/sextant_*.deb
	@cd test/machine && go test -v -count=1 -timeout=6h -run='^TestMigrate$$' -image=$(MACHINE_CACHE) -release=$(CURDIR)/bin/release-test -images=$(CURDIR)/bin/images $(MACHINE) .

.PHONY: machine-numa
machine-numa: test-setup ## Upstream's e2e_node of CPUs, memory and topology on an emulated machine with two NUMA nodes and SMT, reference kubelet and Sextant (root, hours; MACHINE='-focus=REGEXP')
	@$(SUDO) deploy/setup/setup.sh qemu-system-x86 debootstrap
	@test/env/install.sh runtime kubelet conformance node-tests
	@$(SUDO) test/machine/image.sh $(MACHINE_CACHE) $(DISTRO)
	@cd test/machine && go test -v -count=1 -timeout=13h -run='^TestNUMA$$' -image=$(MACHINE_CACHE) $(MACHINE) .

.PHONY: volume-kills
volume-kills: test-setup ## 200 kill -9s under pods with every kind of volume: of volume alone, and of volume and podworker of a node (root)
	@test/env/install.sh runtime etcd kubernetes
	@go test ./services/volume -v -count=1 -timeout=30m -run='^TestKills$$' -kills=200
	@cd test/e2e && go test ./volumekills -v -count=1 -timeout=90m -kills=200 -volume-out=$(CURDIR)/docs/volume-kills.txt

DEVICE_KILLS ?= -kills=400 -per-point=6 -points=0 -out=$(CURDIR)/docs/device-kills.txt

.PHONY: device-kills
device-kills: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
device-kills: test-setup build ## Over 500 kill -9s under pods with devices, claims and CPUs of their own (root, an hour; docs/device-kills.txt)
	@test/env/install.sh runtime etcd kubernetes kubelet >/dev/null
	@cd test/e2e && go test ./devices -v -count=1 -timeout=3h -run='^TestDeviceKills$$' $(DEVICE_KILLS)

PRESSURE ?= -out=$(CURDIR)/docs/pressure.txt

.PHONY: pressure
pressure: test-setup build ## A node short of memory, disks, inodes and threads, with kills in the middle (root, half an hour; docs/pressure.txt)
	@test/env/install.sh runtime etcd kubernetes >/dev/null
	@cd test/e2e && go test ./pressure -v -count=1 -timeout=2h $(PRESSURE)

.PHONY: expansion
expansion: test-setup ## A volume of a CSI driver grows under a pod, claim, file system and Events (root, four minutes)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestNodes$$/^CSI$$'

STALL ?=

.PHONY: dead-file-system
dead-file-system: test-setup ## A file system that stops answering under 5 of 50 pods: what the others notice (root, ten minutes on a quiet machine)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=60m -run='^TestDeadFileSystem$$' $(STALL)

.PHONY: volume-cost
volume-cost: test-setup ## What a ConfigMap, a token and an emptyDir cost at the start of a pod (root, three minutes on a quiet machine)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=60m -run='^TestVolumeCost$$'

.PHONY: compatibility
compatibility: ## docs/compatibility.md, with what the end-to-end tests saw since the last time (after make e2e)
	@go run ./test/compat $(if $(wildcard bin/seen.jsonl),-add=bin/seen.jsonl)

.PHONY: package-upgrade
package-upgrade: test-setup ## The next package and the former one again under 100 pods, by dpkg and by rpm, versions that cannot run, and the installer's image (root, ten minutes)
	@deploy/setup/setup.sh rpm
	@test/env/install.sh runtime etcd kubernetes kubelet kubeadm conformance
	@cd test/e2e && go test ./kubeadm -v -count=1 -timeout=40m -run='^(TestUpgrade|TestInstaller|TestRPM)$$'

AGENTS  ?= reference,sextant
FOCUS   ?= \[sig-node\].*\[NodeConformance\]
SKIP    ?= \[Flaky\]|\[Slow\]|\[Serial\]|\[Disruptive\]
PROCS   ?= 3
PROGRAM ?= e2e
CLUSTER ?=

.PHONY: conformance
conformance: test-setup ## Upstream's node tests on the reference kubelet and on Sextant, side by side (root; docs/conformance.md)
	@test/env/install.sh runtime etcd kubernetes kubelet conformance $(if $(filter e2e_node,$(PROGRAM)),node-tests)
	@cd test/e2e && go test ./conformance -v -count=1 -timeout=6h -agents='$(AGENTS)' -focus='$(FOCUS)' -leave-out='$(SKIP)' -procs=$(PROCS) -program=$(PROGRAM) \
		$(if $(CLUSTER),-kubeconfig='$(abspath $(CLUSTER))')

GATES ?=
KUBELET_FLAGS ?=

.PHONY: node-tests
node-tests: SKIP = \[Flaky\]
node-tests: PROCS = 1
node-tests: test-setup ## Upstream's e2e_node, which starts, configures and restarts the agent itself, on the reference kubelet and on Sextant (root; FOCUS, GATES, KUBELET_FLAGS)
	@test/env/install.sh runtime etcd kubernetes kubelet conformance node-tests
	@cd test/e2e && go test ./conformance -v -count=1 -timeout=12h -as-kubelet -repeats=1 -agents='$(AGENTS)' -focus='$(FOCUS)' -leave-out='$(SKIP)' -procs=$(PROCS) -gates='$(GATES)' \
		-kubelet-flags='$(KUBELET_FLAGS)'

HOSTILE ?=
# The table is kept where the run is whole.
HOSTILE_TABLE = $(if $(HOSTILE),bin/hostile.txt,docs/hostile.txt)

.PHONY: hostile
hostile: export SEXTANT_BINARY := $(CURDIR)/bin/sextant
hostile: test-setup build ## Strangers, malicious pods and taken-over uids against a node under its units' memory limits (root; HOSTILE=-short)
	@echo "== hostile"
	@test/env/install.sh runtime etcd kubernetes >/dev/null
	@cd test/e2e && $(TESTSUM) -- ./hostile -timeout=90m -count=1 $(HOSTILE) -hostile-out=$(CURDIR)/$(HOSTILE_TABLE)
	@cd cmd/sextant && $(TESTSUM) -- . -timeout=20m -count=1 -run='^(TestRightsOnSockets|TestStrangersTakeNoMemory)$$' -rights-out=$(CURDIR)/$(HOSTILE_TABLE)
	@cat $(HOSTILE_TABLE)

.PHONY: takeover
takeover: test-setup ## From the reference kubelet to Sextant and back under running pods (root)
	@test/env/install.sh runtime etcd kubernetes kubelet
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestTakeOver$$'

.PHONY: offline
offline: test-setup ## A loss of power, and a start without an API server (root)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestOffline$$'

.PHONY: skew
skew: test-setup ## Services of this tree mixed with those of the last other version, or of PREVIOUS (root)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test . -v -count=1 -timeout=20m -run='^TestSkew$$' -previous='$(PREVIOUS)'

KILLS ?=

.PHONY: kill-matrix
kill-matrix: test-setup ## Each service and the bus killed 30 times, and 30 pairs, under load (root, half an hour; docs/kill-matrix.md)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=2h -run='^TestKills$$' -out=$(CURDIR)/docs/kill-matrix.txt $(KILLS)

.PHONY: kill-matrix-pressure
kill-matrix-pressure: test-setup ## The same while one pod after the other is evicted for want of memory (root, half an hour; docs/kill-matrix-pressure.txt)
	@test/env/install.sh runtime etcd kubernetes
	@cd test/e2e && go test ./killmatrix -v -count=1 -timeout=2h -run='^TestKillsUnderPressure$$' -out=$(CURDIR)/docs/kill-matrix-pressure.txt $(KILLS)

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
	@cd test/e2e && go test ./bench -v -count=1 -timeout=2h -run='^Test(Bench|Stages)$$' $(BENCH)

.PHONY: density
density: test-setup ## The reference kubelet and Sextant with 1000 pods on a runtime of no time, and with 500 on containerd (root, two hours; docs/density.txt)
	@test/env/install.sh runtime etcd kubernetes kubelet
	@cd test/e2e && go test ./bench -v -count=1 -timeout=4h -run='^TestDensity$$' -density=$(CURDIR)/docs/density.txt $(DENSITY)

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
	@awk 'BEGIN { FS = ":.*## " } /^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z0-9.-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
