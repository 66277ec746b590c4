#!/bin/sh
# Builds the real parts that Sextant is tested against from their published
# modules into a cache outside the repository.
#
#	install.sh [PART...]     runtime, etcd, kubernetes (the default), kubelet, kubeadm,
#	                         metrics-server, conformance, node-tests, runtime-1.7,
#	                         kubernetes-MINOR
#
# The cache is $SEXTANT_CACHE, else $XDG_CACHE_HOME/sextant, else
# ~/.cache/sextant; its path is the last line printed. A part is built again when
# its go.mod, its go.sum, the Go release or this script changed, else skipped.
#
#	runtime      containerd, its shim, ctr, runc, CNI plugins    bin/runtime
#	runtime-1.7  containerd 1.7, and runtime's runc and plugins  bin/runtime-1.7
#	etcd         etcd                                            bin/control-plane
#	kubernetes   kube-apiserver, kube-controller-manager,
#	             kubectl                                         bin/control-plane
#	kubernetes-MINOR  kube-apiserver and kube-controller-manager of
#	             another minor, each a folder here               bin/control-plane-MINOR
#	kubelet      the reference kubelet, for comparisons          bin/kubelet
#	kubeadm      kubeadm, whose files Sextant works with         bin/kubeadm
#	metrics-server                                               bin/metrics-server
#	conformance  upstream's end-to-end tests, ginkgo, the
#	             scheduler, programs of the tests' images        bin/conformance
#	node-tests   upstream's tests for one node                   bin/conformance
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${SEXTANT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sextant}
mkdir -p "$cache/bin" "$cache/stamps"

# One builder at a time; another one waits and then finds everything there.
exec 9>"$cache/lock"
flock 9

version() { (cd "$here/$1" && GOWORK=off go list -m -f '{{.Version}}' "$2"); }

# part NAME MODULE-DIRECTORY FUNCTION: runs FUNCTION unless its result is current.
part() {
	name=$1 module=$2 build=$3
	want=$( (cd "$here/$module" && find . -maxdepth 1 -type f | sort | xargs cat; cat "$here/install.sh"; go version) | sha256sum | cut -d" " -f1)
	if [ "$(cat "$cache/stamps/$name" 2>/dev/null)" = "$want" ]; then
		return 0
	fi
	rm -f "$cache/stamps/$name"
	echo "env: building $name"
	begin=$(date +%s)
	(cd "$here/$module" && "$build")
	echo "$want" >"$cache/stamps/$name"
	echo "env: built $name in $(($(date +%s) - begin)) s"
}

# go_build OUTPUT LDFLAGS PACKAGE...
go_build() {
	into=$1 flags=$2
	shift 2
	mkdir -p "$into"
	GOWORK=off GOFLAGS='' nice -n 5 go build -trimpath -buildvcs=false -ldflags "-s -w $flags" -o "$into/" "$@"
}

runtime() {
	out=$cache/bin/runtime
	containerd=github.com/containerd/containerd/v2
	plugins=github.com/containernetworking/plugins
	export CGO_ENABLED=0
	go_build "$out" "-X $containerd/version.Version=$(version runtime $containerd)" \
		$containerd/cmd/containerd $containerd/cmd/containerd-shim-runc-v2 $containerd/cmd/ctr
	go_build "$out/cni" "-X $plugins/pkg/utils/buildversion.BuildVersion=$(version runtime $plugins)" \
		$plugins/plugins/ipam/host-local $plugins/plugins/main/bridge $plugins/plugins/main/loopback \
		$plugins/plugins/meta/portmap $plugins/plugins/meta/bandwidth
	# runc enters namespaces in C and needs libseccomp's headers.
	export CGO_ENABLED=1
	GOFLAGS='' GOWORK=off nice -n 5 go build -trimpath -buildvcs=false -tags seccomp \
		-ldflags "-s -w -X main.version=$(version runtime github.com/opencontainers/runc)" \
		-o "$out/runc" github.com/opencontainers/runc
}

runtime_1_7() {
	out=$cache/bin/runtime-1.7
	containerd=github.com/containerd/containerd
	export CGO_ENABLED=0
	go_build "$out" "-X $containerd/version.Version=$(version runtime-1.7 $containerd)" \
		$containerd/cmd/containerd $containerd/cmd/containerd-shim-runc-v2 $containerd/cmd/ctr
	ln -sfn ../runtime/runc "$out/runc"
	ln -sfn ../runtime/cni "$out/cni"
}

etcd() {
	export CGO_ENABLED=0
	go_build "$cache/bin/control-plane" "" .
}

kubernetes_flags() {
	v=$(version "$module" k8s.io/kubernetes)
	rest=${v#v1.}
	echo "-X k8s.io/component-base/version.gitVersion=$v -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${rest%%.*}"
}

kubernetes() {
	export CGO_ENABLED=0
	for c in kube-apiserver kube-controller-manager kubectl; do
		go_build "$cache/bin/control-plane" "$(kubernetes_flags)" k8s.io/kubernetes/cmd/$c
	done
}

kubernetes_minor() {
	export CGO_ENABLED=0
	for c in kube-apiserver kube-controller-manager; do
		go_build "$cache/bin/control-plane-${module#kubernetes-}" "$(kubernetes_flags)" k8s.io/kubernetes/cmd/$c
	done
}

kubelet() {
	export CGO_ENABLED=0
	go_build "$cache/bin/kubelet" "$(kubernetes_flags)" k8s.io/kubernetes/cmd/kubelet
}

kubeadm() {
	export CGO_ENABLED=0
	go_build "$cache/bin/kubeadm" "$(kubernetes_flags)" k8s.io/kubernetes/cmd/kubeadm
}

metrics_server() {
	export CGO_ENABLED=0
	go_build "$cache/bin/metrics-server" "" sigs.k8s.io/metrics-server/cmd/metrics-server
}

conformance() {
	export CGO_ENABLED=0
	out=$cache/bin/conformance
	go_build "$out" "$(kubernetes_flags)" k8s.io/kubernetes/cmd/kube-scheduler github.com/onsi/ginkgo/v2/ginkgo \
		k8s.io/kubernetes/test/images/agnhost k8s.io/kubernetes/test/images/nonewprivs
	install -m 0644 "$(GOWORK=off go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* "$out"
	test_binary e2e
}

node_tests() { test_binary e2e_node; }

# test_binary NAME: upstream's tests of that name.
test_binary() {
	mkdir -p "$cache/bin/conformance"
	CGO_ENABLED=0 GOWORK=off GOFLAGS='' nice -n 5 go test -c -trimpath -ldflags "-s -w $(kubernetes_flags)" \
		-o "$cache/bin/conformance/$1.test" "k8s.io/kubernetes/test/$1"
}

no_such() {
	echo "env: no such part: $1" >&2
	exit 2
}

[ $# -gt 0 ] || set -- runtime etcd kubernetes
for p in "$@"; do
	case $p in
	runtime | etcd | kubernetes | conformance) part "$p" "$p" "$p" ;;
	runtime-1.7) part runtime runtime runtime && part "$p" "$p" runtime_1_7 ;;
	kubernetes-*) [ -d "$here/$p" ] || no_such "$p"; part "$p" "$p" kubernetes_minor ;;
	kubelet | kubeadm) part "$p" kubernetes "$p" ;;
	node-tests) part node-tests conformance node_tests ;;
	metrics-server) part "$p" "$p" metrics_server ;;
	*) no_such "$p" ;;
	esac
done
echo "$cache"
