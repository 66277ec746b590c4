#!/bin/sh
# Builds the disk of the emulated machine: Debian 12 with systemd and containerd,
# and nothing of Sextant. Needs root, debootstrap and mkfs.ext4.
#
#	image.sh DIR      DIR/disk.img, DIR/vmlinuz, DIR/initrd
#
# Skipped when they are there and this script is unchanged.
set -eu
[ $# -eq 1 ] || { echo "usage: image.sh DIR" >&2; exit 2; }
out=$1
mkdir -p "$out"
want=$(sha256sum <"$0")
exec 9>"$out/lock"
flock 9
[ "$(cat "$out/stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -f "$out/stamp"

# The tree of packages is kept: what follows it changes more often. kubeadm asks for
# conntrack, and misses ethtool.
root=$out/root
packages=systemd,systemd-sysv,dbus,iproute2,procps,kmod,containerd,runc,containernetworking-plugins,iptables,linux-image-cloud-amd64,initramfs-tools,conntrack,ethtool
if [ "$(cat "$out/packages" 2>/dev/null)" != "$packages" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase --include="$packages" bookworm "$root" >"$out/debootstrap.log" 2>&1 ||
		{ tail -n 20 "$out/debootstrap.log" >&2; exit 1; }
	rm -f "$root"/var/cache/apt/archives/*.deb
	echo "$packages" >"$out/packages"
fi

echo machine >"$root/etc/hostname"
printf '127.0.0.1 localhost\n10.99.0.2 machine\n' >"$root/etc/hosts"
printf 'virtio_console\nvirtio_net\noverlay\nbridge\nveth\n' >"$root/etc/modules-load.d/machine.conf"
: >"$root/etc/fstab"
mkdir -p "$root/payload" "$root/var/log/journal" "$root/etc/kubernetes/manifests" "$root/etc/cni/net.d"
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
cp "$root"/boot/vmlinuz-* "$out/vmlinuz"
cp "$root"/boot/initrd.img-* "$out/initrd"
rm -f "$out/disk.img"
mkfs.ext4 -q -L machine -d "$root" "$out/disk.img" 3G
echo "$want" >"$out/stamp"
