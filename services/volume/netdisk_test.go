// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// StageDisk mounts memory for a disk. A target that ends in "denies" says no.
func (k *tools) StageDisk(ctx context.Context, r *supervisorv1.StageDiskRequest) (*supervisorv1.StageDiskResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil { // of a client that was killed
		return nil, err
	}
	i := r.GetDisk().GetIscsi()
	k.disks = append(k.disks, "stage "+i.GetTarget()+strings.Join(r.GetDisk().GetFc().GetWwids(), ""))
	k.staged = append(k.staged, r)
	if strings.HasSuffix(i.GetTarget(), "denies") {
		return nil, rpc.Conflict.Errorf("failed to log in to target %s: iscsiadm: no (exit status 24)", i.GetTarget())
	}
	if r.GetBlock() {
		return &supervisorv1.StageDiskResponse{Device: "/dev/sdz"}, nil
	}
	dir := k.diskFolder(r.GetDisk())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if len(volumetest.Mounts(k.t, dir)) == 0 {
		if err := unix.Mount("disk", dir, "tmpfs", 0, ""); err != nil {
			return nil, err
		}
	}
	k.did("StageDisk")
	return &supervisorv1.StageDiskResponse{Path: dir}, nil
}

// UnstageDisk unmounts it. While one of its binds is left, it is in use.
func (k *tools) UnstageDisk(ctx context.Context, r *supervisorv1.UnstageDiskRequest) (*supervisorv1.UnstageDiskResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	line := "unstage " + r.GetDisk().GetIscsi().GetTarget() + strings.Join(r.GetDisk().GetFc().GetWwids(), "")
	if r.GetKeepSession() {
		line += ", session stays"
	}
	k.disks = append(k.disks, line)
	if k.stuck != nil {
		return nil, k.stuck
	}
	if bound := mountedFrom(k.t, k.diskFolder(r.GetDisk())); len(bound) > 1 {
		k.t.Errorf("unstaged while it is mounted at %v", bound)
	}
	err := unix.Unmount(k.diskFolder(r.GetDisk()), 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	k.did("UnstageDisk")
	return &supervisorv1.UnstageDiskResponse{}, err
}

// mountedFrom lists where the file system that is mounted on a folder is mounted.
func mountedFrom(t testing.TB, folder string) (points []string) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Error(err)
	}
	for _, disk := range table {
		for _, m := range table {
			if disk.Mountpoint == folder && m.Major == disk.Major && m.Minor == disk.Minor {
				points = append(points, m.Mountpoint)
			}
		}
	}
	return points
}

func (k *tools) diskFolder(d *supervisorv1.NetworkDisk) string {
	name := strings.Join(d.GetFc().GetWwids(), "-")
	if i := d.GetIscsi(); i != nil {
		name = i.GetTarget() + "-" + string(rune('0'+i.GetLun()))
	}
	return filepath.Join(k.root, "plugins", name)
}

// sticks has disks not let go of, for a reason, or let go of again.
func (k *tools) sticks(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stuck = err
}

// becomes waits for what is to have been asked for.
func (k *tools) becomes(r *rig, want ...string) {
	r.Helper()
	r.Eventually(strings.Join(want, "; "), func() bool { return slices.Equal(k.deeds(), want) })
}

func (k *tools) deeds() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.disks)
}

// standalone has the node stand alone: nobody gives it disks.
func (r *rig) standalone() {
	r.Helper()
	r.configured("", "")
}

// configured gives the node a name, and credentials for an API server.
func (r *rig) configured(name, credentials string) {
	r.Helper()
	conf := &kubeletconfig.Config{}
	conf.Kubelet.APIVersion, conf.Kubelet.Kind = kubeletconfig.APIVersion, kubeletconfig.Kind
	conf.Node.Name, conf.Node.KubeConfig = name, credentials
	standin.SetKubelet(r.House, r.kubelet, conf)
}

// nodeWith has the node's status say which disks are in use, and attached.
func (r *rig) nodeWith(names ...v1.UniqueVolumeName) {
	r.Helper()
	r.configured("here", "/kubeconfig")
	node := &v1.Node{}
	node.Name = "here"
	for _, name := range names {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, name)
		node.Status.VolumesAttached = append(node.Status.VolumesAttached, v1.AttachedVolume{Name: name})
	}
	data, err := node.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.objects, "Node//here", &configv1.Object{Kind: "Node", Name: "here", Object: data})
}

// TestDisk: two pods share a disk that is mounted once, through a restart, and the last
// one to leave has it let go of.
func TestDisk(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.nodeWith()
	const inline = `- {name: d, iscsi: {targetPortal: 10.0.0.1, iqn: "iqn.2001-04.example:a", lun: 0, iscsiInterface: default, fsType: xfs}}`
	r.declare(of(t, "one", inline))
	r.Eventually("it waits for the attach controller", func() bool {
		v := r.volume("one", "d")
		return v.GetStep() == "wait for being attached" && strings.Contains(v.GetError(), "VolumesInUse")
	})
	if n := len(k.deeds()); n != 0 {
		t.Errorf("asked for %q before it was attached", k.deeds())
	}
	unique := "kubernetes.io/iscsi/10.0.0.1:iqn.2001-04.example:a:0"
	nodes := standin.Read(r.House, house.VolumeNode)
	inUse := func() []string { item, _ := nodes.Get("node"); return item.GetInUse() }
	r.Eventually("it is said to be in use", func() bool { return slices.Equal(inUse(), []string{unique}) })
	r.nodeWith(v1.UniqueVolumeName(unique))
	r.ready("one")
	r.declare(of(t, "two", strings.Replace(inline, "xfs", "xfs, readOnly: true", 1)))
	r.ready("two")
	one, two := r.path("one", "iscsi", "d"), r.path("two", "iscsi", "d")
	r.write(filepath.Join(one, "file"), "ours")
	if got := r.read(filepath.Join(two, "file")); got != "ours" {
		t.Errorf("the other pod has %q", got)
	}
	if err := os.WriteFile(filepath.Join(two, "mine"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only one: %v", err)
	}
	if got := k.staged[0]; got.GetFsType() != "xfs" || got.GetDisk().GetIscsi().GetPortals()[0] != "10.0.0.1:3260" {
		t.Errorf("asked for %v", got)
	}
	r.stop()
	r.start(nil)
	r.ready("one")
	r.withdraw("one")
	r.gone("one")
	r.withdraw("two")
	r.gone("two")
	const target = " iqn.2001-04.example:a"
	k.becomes(r, "stage"+target, "stage"+target, "unstage"+target)
	r.Eventually("it is not in use any more", func() bool { return len(inUse()) == 0 })
	if left := volumetest.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// TestDiskOfClaim: a device and a file system on the same target by claims, with
// credentials; the session stays until both are gone.
func TestDiskOfClaim(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.standalone()
	r.secret("chap", map[string]string{"node.session.auth.username": "me", "node.session.auth.password": "pass-phrase"})
	block := v1.PersistentVolumeBlock
	source := func(lun int32) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
			TargetPortal: "10.0.0.1:3260", IQN: "iqn.2001-04.example:b", Lun: lun, SessionCHAPAuth: true, SecretRef: &v1.SecretReference{Name: "chap"},
		}}
	}
	r.volumeOf("raw", "pv-raw", v1.PersistentVolumeSpec{VolumeMode: &block, PersistentVolumeSource: source(0)})
	r.volumeOf("files", "pv-files", v1.PersistentVolumeSpec{MountOptions: []string{"noatime"}, PersistentVolumeSource: source(1)})
	raw := of(t, "raw", `- {name: d, persistentVolumeClaim: {claimName: raw}}`)
	raw.Spec.Containers = []v1.Container{{Name: "c", VolumeDevices: []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/d"}}}}
	r.declare(raw)
	r.ready("raw")
	r.declare(of(t, "files", `- {name: d, persistentVolumeClaim: {claimName: files}}`))
	r.ready("files")
	if got := r.volume("raw", "d").GetHostPath(); got != "/dev/sdz" {
		t.Errorf("device %q", got)
	}
	if got, want := r.volume("files", "d").GetHostPath(), r.path("files", "iscsi", "pv-files"); got != want {
		t.Errorf("mounted at %q, want %q", got, want)
	}
	last := k.staged[1]
	if c := last.GetSession(); c.GetUsername() != "me" || c.GetPassword() != "pass-phrase" || last.GetDiscovery() != nil || !slices.Equal(last.GetOptions(), []string{"noatime"}) {
		t.Errorf("asked for %v", last)
	}
	r.stop()
	// Nothing that is kept has the secret.
	err := filepath.WalkDir(filepath.Dir(r.Paths.Tools()), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "pass-phrase") {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.ready("raw")
	const target = " iqn.2001-04.example:b"
	want := []string{"stage" + target, "stage" + target, "unstage" + target + ", session stays", "unstage" + target}
	r.withdraw("raw")
	r.gone("raw")
	k.becomes(r, want[:3]...)
	r.withdraw("files")
	r.gone("files")
	k.becomes(r, want...)
}

// TestDiskFails: a pod says what its target says, and leaves; FC by a disk's name.
func TestDiskFails(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.standalone()
	r.declare(of(t, "u", `- {name: d, iscsi: {targetPortal: 10.0.0.1, iqn: "iqn.2001-04.example:denies", lun: 0}}`))
	want := `FailedMount ns/u-name: MountVolume.SetUp failed for volume "d" : failed to log in to target iqn.2001-04.example:denies: iscsiadm: no (exit status 24)`
	r.Eventually("the event", func() bool { return slices.Contains(r.messages(), want) })
	r.withdraw("u")
	r.gone("u")
	r.Eventually("it is let go of", func() bool { return slices.Contains(k.deeds(), "unstage iqn.2001-04.example:denies") })
	r.declare(of(t, "fc", `- {name: d, fc: {wwids: ["3600508b400105e210000900000490000"]}}`))
	r.ready("fc")
	r.withdraw("fc")
	r.gone("fc")
}

// TestADiskThatIsNotLetGoOf holds no pod. It is in use until it is let go of, which is tried
// until it succeeds, also by the next life of the service; another pod gets it meanwhile.
func TestADiskThatIsNotLetGoOf(t *testing.T) {
	r := newRig(t, nil)
	k := serveTools(t, r)
	r.standalone()
	nodes := standin.Read(r.House, house.VolumeNode)
	inUse := func() int { item, _ := nodes.Get("node"); return len(item.GetInUse()) }
	const target = "iqn.2001-04.example:c"
	unstaged := func() (n int) {
		for _, deed := range k.deeds() {
			if deed == "unstage "+target {
				n++
			}
		}
		return n
	}
	k.sticks(rpc.Conflict.Errorf("target is busy"))
	for _, uid := range []string{"one", "two"} {
		before := unstaged()
		r.declare(of(t, uid, `- {name: d, iscsi: {targetPortal: 10.0.0.1, iqn: "`+target+`", lun: 0}}`))
		r.ready(uid)
		r.withdraw(uid)
		r.gone(uid)
		if n := inUse(); n != 1 {
			t.Errorf("%d disks are in use, want the one that was not let go of", n)
		}
		r.Eventually("it is tried again", func() bool { return unstaged() > before+1 })
	}
	r.stop()
	k.sticks(nil)
	r.start(nil)
	r.Eventually("it is not in use any more", func() bool { return nodes.Complete() && inUse() == 0 })
	if left := volumetest.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}
