#!/bin/sh
# Installs what a Sextant node needs and a Debian machine lacks: a container runtime with CNI
# plugins, and the tools that kube-proxy and host ports rely on.
#
#	setup.sh [PACKAGE...]        more packages than those of a node
#
# Prints one line per step, and nothing when there is nothing to do. A containerd
# that runs already is left alone; one installed here is not started: the package
# would start it as a service, and Sextant starts one of its own.
set -eu

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# A package is needed if its program is missing. Another distribution's or the user's
# own program counts as well.
missing=""
need() { # PACKAGE PROGRAM-OR-FILE...
	package=$1
	shift
	for candidate in "$@"; do
		case $candidate in
		/*) [ -e "$candidate" ] && return 0 ;;
		*) command -v "$candidate" >/dev/null 2>&1 && return 0 ;;
		esac
	done
	missing="$missing $package"
}

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
need containerd containerd
need runc runc
need containernetworking-plugins /usr/lib/cni/bridge /opt/cni/bin/bridge
need iptables iptables
need conntrack conntrack
need iproute2 ip
for package in "$@"; do
	case $package in
	busybox-static) need busybox-static /usr/share/doc/busybox-static ;;
	libseccomp-dev) need libseccomp-dev /usr/include/seccomp.h ;;
	pkg-config) need pkg-config pkg-config ;;
	gcc) need gcc gcc cc ;;
	systemd) need systemd systemd-analyze ;;
	libc6-dev) need libc6-dev /usr/include/stdlib.h ;;
	qemu-user-static) need qemu-user-static qemu-aarch64-static ;;
	qemu-system-x86) need qemu-system-x86 qemu-system-x86_64 ;;
	*) need "$package" "$package" ;;
	esac
done
[ -z "$missing" ] && exit 0

[ "$(id -u)" = 0 ] || die "needs root to install:$missing"
command -v apt-get >/dev/null 2>&1 || die "no apt-get here; install by hand:$missing"

# policy-rc.d keeps Debian from starting services during an installation. An existing
# one is restored, also when this script is interrupted.
policy=/usr/sbin/policy-rc.d
kept=$policy.sextant-kept
restore() {
	if [ -e "$kept" ]; then
		mv -f "$kept" "$policy"
	elif [ -e "$policy" ] && grep -q 'written by sextant setup' "$policy" 2>/dev/null; then
		rm -f "$policy"
	fi
}
restore # what an earlier, killed run left
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ -e "$policy" ]; then
	mv -f "$policy" "$kept"
fi
printf '#!/bin/sh\n# written by sextant setup, removed by it\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
run() {
	if ! "$@" >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		die "failed: $*"
	fi
}
say "installing:$missing"
# shellcheck disable=SC2086 # a list of package names
if ! apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1; then
	say "package lists are out of date, updating them"
	run apt-get update -qq
	# shellcheck disable=SC2086
	run apt-get install -y -qq --no-install-recommends $missing
fi
rm -f "$log"

say "installed"
