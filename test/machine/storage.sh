#!/bin/sh
# Builds the disk of the emulated machine again, with an NFS server, an iSCSI
# target and the tools for both. Needs root.
#
#	storage.sh IMAGE OUT      OUT/disk.img, OUT/vmlinuz, OUT/initrd, from what image.sh made in IMAGE
#
# Skipped when they are there, and this script and the other disk are unchanged.
set -eu
[ $# -eq 2 ] || { echo "usage: storage.sh IMAGE OUT" >&2; exit 2; }
image=$1 out=$2
mkdir -p "$out"
want=$(cat "$0" "$image/stamp" | sha256sum)
exec 9>"$out/lock"
flock 9
[ "$(cat "$out/stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -rf "$out/stamp" "$out/root" "$out/disk.img"

root=$out/root
cp -a "$image/root" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Nothing is started while it is installed.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
# The small first disk stays as it is.
chroot "$root" dpkg-divert --quiet --local --rename --add /usr/sbin/update-initramfs
ln -s /bin/true "$root/usr/sbin/update-initramfs"
{
	chroot "$root" apt-get update
	DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends nfs-kernel-server nfs-common rpcbind open-iscsi multipath-tools e2fsprogs
} >"$out/install.log" 2>&1 || { tail -n 20 "$out/install.log" >&2; exit 1; }
rm "$root/usr/sbin/update-initramfs"
chroot "$root" dpkg-divert --quiet --local --rename --remove /usr/sbin/update-initramfs
cp "$image/root/etc/resolv.conf" "$root/etc/resolv.conf"
rm -rf "$root/usr/sbin/policy-rc.d" "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
cp "$image/vmlinuz" "$image/initrd" "$out"
mkfs.ext4 -q -L machine -d "$root" "$out/disk.img" 3G
rm -rf "$root"
echo "$want" >"$out/stamp"
