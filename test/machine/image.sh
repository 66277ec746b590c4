#!/bin/sh
# Builds the disk of the emulated machine: Debian or Ubuntu with systemd and containerd,
# and nothing of Sextant. Needs root, debootstrap and mkfs.ext4.
#
#	image.sh DIR [RELEASE]     DIR/disk.img, DIR/vmlinuz, DIR/initrd
#
# RELEASE is a release that debootstrap knows: bookworm (Debian 12, the default), jammy
# (Ubuntu 22.04, systemd 249) ... Skipped when they are there and this script is unchanged.
set -eu
[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: image.sh DIR [RELEASE]" >&2; exit 2; }
out=$1
release=${2:-bookworm}
mkdir -p "$out"
want=$(sha256sum <"$0")
exec 9>"$out/lock"
flock 9
[ "$(cat "$out/stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -f "$out/stamp"

# The tree of packages is kept: what follows it changes more often. kubeadm asks for
# conntrack, and misses ethtool.
root=$out/root
packages=systemd,systemd-sysv,dbus,iproute2,procps,kmod,containerd,runc,containernetworking-plugins,iptables,initramfs-tools,conntrack,ethtool
script=$(readlink -f "/usr/share/debootstrap/scripts/$release")
case $script in
*/gutsy) # of Ubuntu; Debian has no package of its keys
	ubuntu=yes
	set -- --components=main,universe --keyring="$out/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
	packages=$packages,linux-image-virtual
	mirror=$(sed -n 's/.*default_mirror *\(http[^ ]*\).*/\1/p' "$script" | sed -n 2p)
	if [ ! -d "$out/keys" ]; then
		wget -q -O "$out/keys.deb" "$mirror/pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb"
		echo "0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f  $out/keys.deb" | sha256sum -c --quiet
		dpkg -x "$out/keys.deb" "$out/keys"
	fi
	;;
*)
	ubuntu=
	set -- --components=main
	packages=$packages,linux-image-cloud-amd64
	;;
esac
if [ "$(cat "$out/packages" 2>/dev/null)" != "$release $packages" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase "$@" --include="$packages" "$release" "$root" >"$out/debootstrap.log" 2>&1 ||
		{ tail -n 20 "$out/debootstrap.log" >&2; exit 1; }
	if [ "$ubuntu" ]; then # its first containerd is older than CRI v1
		echo "deb $mirror $release-updates main universe" >>"$root/etc/apt/sources.list"
		cp /etc/resolv.conf "$root/etc/resolv.conf"
		for command in update dist-upgrade "--purge autoremove"; do
			# shellcheck disable=SC2086 # some are two words
			DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qy --no-install-recommends $command >>"$out/debootstrap.log" 2>&1 </dev/null ||
				{ tail -n 20 "$out/debootstrap.log" >&2; exit 1; }
		done
	fi
	rm -f "$root"/var/cache/apt/archives/*.deb
	echo "$release $packages" >"$out/packages"
fi

echo machine >"$root/etc/hostname"
printf '127.0.0.1 localhost\n10.99.0.2 machine\n' >"$root/etc/hosts"
printf 'virtio_console\nvirtio_net\noverlay\nbridge\nveth\n' >"$root/etc/modules-load.d/machine.conf"
: >"$root/etc/fstab"
mkdir -p "$root/payload" "$root/etc/containerd" "$root/var/log/journal" "$root/etc/kubernetes/manifests" "$root/etc/cni/net.d"
cat >"$root/etc/containerd/config.toml" <<'TOML'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "sextant.local/pause:v1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
TOML
cat >"$root/etc/cni/net.d/10-machine.conflist" <<'JSON'
{"cniVersion": "1.0.0", "name": "machine", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}
]}
JSON
cat >"$root/etc/systemd/system/machine-network.service" <<'UNIT'
[Unit]
Description=An address of the machine's own
DefaultDependencies=no
After=systemd-modules-load.service sys-subsystem-net-devices-eth0.device
Wants=sys-subsystem-net-devices-eth0.device
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/ip link set lo up
ExecStart=/sbin/ip address add 10.99.0.2/24 dev eth0
ExecStart=/sbin/ip link set eth0 up
ExecStart=/sbin/ip route add default via 10.99.0.1 dev eth0
[Install]
WantedBy=multi-user.target
UNIT
cat >"$root/etc/systemd/system/machine-agent.service" <<'UNIT'
[Unit]
Description=Does what the test says
DefaultDependencies=no
After=systemd-modules-load.service local-fs.target
StartLimitIntervalSec=0
[Service]
ExecStartPre=-/bin/mount -o ro LABEL=payload /payload
ExecStart=/payload/agent
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
UNIT
# A small first disk that loads what the other needs; looking for devices takes emulation long.
rm -f "$root/usr/share/initramfs-tools/hooks/udev" "$root"/usr/share/initramfs-tools/scripts/init-*/udev
sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
printf 'virtio_pci\nvirtio_blk\next4\n' >"$root/etc/initramfs-tools/modules"
# Ubuntu's has it from udev's hook alone.
printf '#!/bin/sh\n[ "$1" = prereqs ] && exit\n. /usr/share/initramfs-tools/hook-functions\ncopy_exec /sbin/blkid /sbin\n' >"$root/etc/initramfs-tools/hooks/blkid"
chmod 755 "$root/etc/initramfs-tools/hooks/blkid"
chroot "$root" update-initramfs -u >"$out/initramfs.log" 2>&1 || { cat "$out/initramfs.log" >&2; exit 1; }
# Everything has all the time that emulation takes, the watchdog's included.
mkdir -p "$root/etc/systemd/system.conf.d" "$root/etc/systemd/system/sextant-.service.d"
printf '[Service]\nWatchdogSec=15min\n' >"$root/etc/systemd/system/sextant-.service.d/machine.conf"
printf '[Manager]\nDefaultTimeoutStartSec=infinity\nDefaultDeviceTimeoutSec=infinity\n' >"$root/etc/systemd/system.conf.d/machine.conf"
systemd() { systemctl --quiet --root="$root" "$@"; }
systemd enable machine-network.service machine-agent.service containerd.service
systemd mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer getty@tty1.service serial-getty@ttyS0.service e2scrub_reap.service \
	modprobe@drm.service modprobe@efi_pstore.service modprobe@configfs.service modprobe@fuse.service systemd-update-utmp.service \
	systemd-update-utmp-runlevel.service systemd-pstore.service remote-fs.target
kernel=$(ls -v "$root/boot" | sed -n 's/^vmlinuz-//p' | tail -n 1) # an older one may be there
cp "$root/boot/vmlinuz-$kernel" "$out/vmlinuz"
cp "$root/boot/initrd.img-$kernel" "$out/initrd"
rm -f "$out/disk.img"
mkfs.ext4 -q -L machine -d "$root" "$out/disk.img" 3G
echo "$want" >"$out/stamp"
