// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var storage = flag.String("storage", "", "folder made by storage.sh")

// storagePod is a static pod with a volume, in YAML's flow style, at /data.
func (b *bench) storagePod(name, volume string) {
	b.Helper()
	b.write("/etc/kubernetes/manifests/"+name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: hello
    image: sextant.local/hello:v1
    imagePullPolicy: Never
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 2, timeoutSeconds: 60, failureThreshold: 10}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, %s}]`, name, volume))
}

const (
	export = "nfs: {server: 10.99.0.2, path: /srv/data}"
	iqn    = "iqn.2001-04.example:store"
	disk0  = `iscsi: {targetPortal: 10.99.0.2, iqn: "` + iqn + `", lun: 0, fsType: ext4}`
)

// volumeMounts are the mounts of one kind of volume in pods: type and options.
func (b *bench) volumeMounts(plugin string) string {
	b.Helper()
	return b.do(`awk '$2 ~ "^/var/lib/kubelet/pods/.*kubernetes.io~` + plugin + `/" {print $3, $4}' /proc/self/mounts`)
}

func (b *bench) unmounted(plugin string) {
	b.Helper()
	b.until("no "+plugin+" volume is left", "grep 'kubernetes.io.*"+plugin+"' /proc/self/mounts || true", func(out string) bool { return out == "" })
}

// TestStorage has pods on a real NFS server and a real iSCSI target, both of the machine's
// own kernel.
func TestStorage(t *testing.T) {
	if *storage == "" {
		t.Fatal("no disk with a storage server: make machine-storage runs this")
	}
	*image = *storage
	b := start(t)
	t.Cleanup(b.dump)
	b.boot()
	b.until("the runtime is up", "systemctl is-active containerd || true", func(out string) bool { return out == "active" })
	b.do(`for i in /payload/*.tar; do ctr -n k8s.io images import $i || exit; done; mkdir -p /var/lib/kubelet /etc/kubernetes/manifests`)
	b.target()
	b.install()
	b.iscsi()
	b.nfs()
}

// target gives the kernel an iSCSI target with two units and an NFS export.
func (b *bench) target() {
	b.Helper()
	b.do(`set -e
modprobe target_core_file; modprobe iscsi_target_mod; mount -t configfs none /sys/kernel/config 2>/dev/null || true
cd /sys/kernel/config/target
truncate -s 64M /srv/disk0 /srv/disk1
mkdir -p core/fileio_0/disk0 core/fileio_0/disk1
for d in disk0 disk1; do
  echo fd_dev_name=/srv/$d,fd_dev_size=67108864 > core/fileio_0/$d/control
  echo 1 > core/fileio_0/$d/enable
done
mkdir -p iscsi/` + iqn + `/tpgt_1/np/10.99.0.2:3260 iscsi/` + iqn + `/tpgt_1/lun/lun_0 iscsi/` + iqn + `/tpgt_1/lun/lun_1
cd iscsi/` + iqn + `/tpgt_1
ln -s /sys/kernel/config/target/core/fileio_0/disk0 lun/lun_0/disk0
ln -s /sys/kernel/config/target/core/fileio_0/disk1 lun/lun_1/disk1
echo 0 > attrib/authentication; echo 1 > attrib/generate_node_acls; echo 0 > attrib/demo_mode_write_protect; echo 1 > attrib/cache_dynamic_acls
echo 1 > enable`)
	b.do(`set -e
mkdir -p /srv/data && echo theirs > /srv/data/file && echo '/srv/data *(rw,no_root_squash,no_subtree_check,insecure)' > /etc/exports
systemctl restart nfs-server`)
}

// iscsi: an empty disk gets a file system, two pods share it, kills leave it alone, and
// what was written is there when it comes again.
func (b *bench) iscsi() {
	b.Helper()
	b.storagePod("first", disk0)
	b.ready("web", "first")
	b.Log("mounted: " + b.volumeMounts("iscsi"))
	if got := b.volumeMounts("iscsi"); !strings.HasPrefix(got, "ext4 rw") {
		b.Errorf("mounts: %q", got)
	}
	b.do("for d in /var/lib/kubelet/pods/*/volumes/kubernetes.io~iscsi/data; do echo ours >$d/file; done")
	b.storagePod("second", disk0)
	b.ready("second")
	before := b.container("first")
	for _, s := range []string{"tools", "volume"} {
		b.killed(s)
	}
	b.do("rm /etc/kubernetes/manifests/first.yaml")
	b.until("one pod has it", "ls -d /var/lib/kubelet/pods/*/volumes/kubernetes.io~iscsi | wc -l", func(out string) bool { return out == "1" })
	if got := b.do("iscsiadm -m session | wc -l"); got != "1" {
		b.Errorf("%s sessions while a pod has the disk", got)
	}
	b.do("rm /etc/kubernetes/manifests/second.yaml")
	b.unmounted("iscsi")
	b.until("it is logged out", "iscsiadm -m session 2>&1 || true", func(out string) bool { return strings.Contains(out, "No active sessions") })
	b.Log("logged out, container was " + before)
	b.storagePod("third", strings.Replace(disk0, "fsType: ext4", "readOnly: true", 1))
	b.ready("third")
	if got := b.do("cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~iscsi/data/file"); got != "ours" {
		b.Errorf("on the disk: %q", got)
	}
	if got := b.volumeMounts("iscsi"); !strings.HasPrefix(got, "ext4 ro") {
		b.Errorf("mounts of a read-only one: %q", got)
	}
	b.do("rm /etc/kubernetes/manifests/third.yaml")
	b.unmounted("iscsi")
	b.Log("iSCSI: formatted once, shared, kept through kills, logged out and in again")
}

// nfs: by mount.nfs, through kills of those who mount.
func (b *bench) nfs() {
	b.Helper()
	b.storagePod("files", export)
	b.ready("files")
	mounts := b.volumeMounts("nfs")
	if !strings.HasPrefix(mounts, "nfs4 rw") {
		b.Errorf("mounts: %q", mounts)
	}
	for _, s := range []string{"tools", "volume"} {
		b.killed(s)
	}
	if now := b.volumeMounts("nfs"); now != mounts {
		b.Errorf("kills changed the mounts: %q, then %q", mounts, now)
	}
	if got := b.do("cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~nfs/data/file"); got != "theirs" {
		b.Errorf("in the volume: %q", got)
	}
	b.do("rm /etc/kubernetes/manifests/files.yaml")
	b.unmounted("nfs")
	b.Log("NFS: mounted, kept through kills, unmounted: " + mounts)
}
