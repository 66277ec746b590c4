// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/standin"
	"github.com/sextant-node/sextant/test/volumetest"
)

// storage is a rig with a CSI driver.
type storage struct {
	*rig
	name   string // of the driver
	data   string
	done   func(method string) // of the driver
	driver *csidriver.Driver
	node   *feed.Replica[*volumev1.VolumeNode]
}

func newStorage(t *testing.T, more ...csi.NodeServiceCapability_RPC_Type) *storage {
	t.Helper()
	return newStorageOf(t, "csi.example", more...)
}

// newStorageOf is newStorage with a driver of another name.
func newStorageOf(t *testing.T, driver string, more ...csi.NodeServiceCapability_RPC_Type) *storage {
	t.Helper()
	return newStorageWith(t, nil, driver, more...)
}

// newStorageWith is newStorageOf with other dependencies of the service.
func newStorageWith(t *testing.T, edit func(*volume.Deps), driver string, more ...csi.NodeServiceCapability_RPC_Type) *storage {
	t.Helper()
	s := &storage{rig: newRig(t, edit), name: driver, data: t.TempDir()}
	s.node = standin.Read(s.House, house.VolumeNode)
	conf := &kubeletconfig.Config{}
	conf.Kubelet.APIVersion, conf.Kubelet.Kind = kubeletconfig.APIVersion, kubeletconfig.Kind
	conf.Node.Name = "n1"
	standin.SetKubelet(s.House, s.kubelet, conf)
	s.serve(more...)
	s.Eventually("the driver is registered", func() bool {
		item, _ := s.node.Get("node")
		return len(item.GetDrivers()) == 1 && s.node.Complete()
	})
	return s
}

func (s *storage) serve(more ...csi.NodeServiceCapability_RPC_Type) {
	s.Helper()
	// The path of a socket is short.
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	registry := filepath.Join(s.root, "plugins_registry")
	if err := errors.Join(os.MkdirAll(registry, 0o750), os.Symlink(registry, filepath.Join(dir, "r"))); err != nil {
		s.Fatal(err)
	}
	s.driver, err = csidriver.Start(csidriver.Config{
		Name: s.name, NodeID: "node-1", Root: s.data, MaxVolumes: 5, Topology: map[string]string{"zone": "a"},
		Capabilities: append([]csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}, more...),
		Endpoint:     filepath.Join(dir, "csi.sock"), Registration: filepath.Join(dir, "r", "reg.sock"),
		Done: func(method string) {
			if s.done != nil {
				s.done(method)
			}
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(s.driver.Stop)
}

type object interface{ Marshal() ([]byte, error) }

func (s *storage) put(kind, namespace, name string, o object) {
	s.Helper()
	item := &configv1.Object{Kind: kind, Namespace: namespace, Name: name, Absent: o == nil}
	if o != nil {
		var err error
		if item.Object, err = o.Marshal(); err != nil {
			s.Fatal(err)
		}
	}
	standin.Set(s.House, s.objects, kind+"/"+namespace+"/"+name, item)
}

// claim makes a bound claim "data" of volume vol-1.
func (s *storage) claim() {
	s.Helper()
	s.claimOf("data", "claim-1", "pv")
	s.volume1("1Gi")
}

func (s *storage) claimOf(name string, uid types.UID, volume string) {
	s.Helper()
	s.put("PersistentVolumeClaim", "ns", name, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	})
}

// volume1 makes the volume of that claim.
func (s *storage) volume1(size string) {
	s.Helper()
	s.persistent("pv", "claim-1", "vol-1", size)
}

func (s *storage) persistent(name string, claim types.UID, handle, size string) {
	s.Helper()
	s.put("PersistentVolume", "", name, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)},
			ClaimRef: &v1.ObjectReference{UID: claim}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: handle, FSType: "ext4"}},
		},
	})
}

func (s *storage) csiDriver(edit func(*storagev1.CSIDriverSpec)) {
	s.Helper()
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	no, policy := false, storagev1.FileFSGroupPolicy
	d.Spec = storagev1.CSIDriverSpec{
		AttachRequired: &no, FSGroupPolicy: &policy,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}
	if edit != nil {
		edit(&d.Spec)
	}
	s.put("CSIDriver", "", s.name, d)
}

func (s *storage) calls() string {
	s.Helper()
	calls, err := csidriver.Calls(s.data)
	if err != nil {
		s.Fatal(err)
	}
	return strings.Join(calls, ", ")
}

// unstaged waits until no volume is in use.
func (s *storage) unstaged() {
	s.Helper()
	now := standin.Read(s.House, house.VolumeNode) // the other reader may be behind that of pods
	s.Eventually("no volume is in use", func() bool {
		item, ok := now.Get("node")
		return ok && now.Complete() && len(item.GetInUse()) == 0
	})
}

const claimed = `- {name: data, persistentVolumeClaim: {claimName: data}}`

func TestACSIVolume(t *testing.T) {
	s := newStorage(t)
	p := of(t, "u", claimed)
	group := int64(4242)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	s.declare(p)
	s.Eventually("it waits for the claim", func() bool { return strings.Contains(s.volume("u", "data").GetError(), "not known yet") })
	s.claim()
	s.Eventually("it waits for the driver's object", func() bool { return strings.Contains(s.volume("u", "data").GetError(), "CSIDriver") })
	s.csiDriver(nil)
	s.ready("u")
	path := s.path("u", "csi", "pv", "mount")
	if got := s.volume("u", "data").GetHostPath(); got != path {
		t.Errorf("at %s", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("not the group's: %v, %v", info.Mode(), err)
	}
	s.write(filepath.Join(path, "file"), "text")

	// Another life of the service, and of the driver.
	s.stop()
	s.driver.Stop()
	s.start(nil)
	s.ready("u")
	s.serve()
	if got := s.read(filepath.Join(path, "file")); got != "text" {
		t.Errorf("the volume has %q", got)
	}
	s.withdraw("u")
	s.gone("u")
	s.unstaged()
	if got := s.calls(); got != "NodeStageVolume vol-1, NodePublishVolume vol-1, NodeUnpublishVolume vol-1, NodeUnstageVolume vol-1" {
		t.Errorf("calls %s", got)
	}
	if points := volumetest.Mounts(t, s.root); len(points) > 0 {
		t.Errorf("mounted still: %v", points)
	}
	if got := s.read(filepath.Join(csidriver.Data(s.data, "vol-1"), "file")); got != "text" {
		t.Errorf("the volume has %q", got)
	}
}

// TestMigratedVolumes: a volume of an in-tree type is staged and published by the driver
// that makes such volumes now, at the paths of a kubelet, and stays over restarts (KEP-625).
func TestMigratedVolumes(t *testing.T) {
	gce := v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk-1", FSType: "ext4"}}
	for _, tc := range []struct {
		name, driver, volume string
		source               *v1.PersistentVolumeSource // of the claim's volume
		dir, handle          string
	}{
		{"persistent", "pd.csi.storage.gke.io", claimed, &gce, "pv", "projects/UNSPECIFIED/zones/a/disks/disk-1"},
		{"inline", "ebs.csi.aws.com", "- {name: data, awsElasticBlockStore: {volumeID: vol-1, fsType: ext4}}", nil, "ebs.csi.aws.com-vol-1", "vol-1"},
		{"inline with slashes", "disk.csi.azure.com",
			"- {name: data, azureDisk: {diskName: d, diskURI: /subscriptions/../d, cachingMode: None, kind: Managed, fsType: ext4}}", nil,
			"~subscriptions~..~d", "/subscriptions/../d"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStorageOf(t, tc.driver)
			s.csiDriver(nil)
			if tc.source != nil {
				s.claim()
				// The disk's zone is looked for under the driver's label.
				s.put("Node", "", "n1", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.gke.io/zone": "a"}}})
				s.put("PersistentVolume", "", "pv", &v1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{v1.LabelTopologyZone: "a"}},
					Spec: v1.PersistentVolumeSpec{
						Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
						ClaimRef: &v1.ObjectReference{UID: "claim-1"}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
						PersistentVolumeSource: *tc.source,
					},
				})
			}
			s.declare(of(t, "u", tc.volume))
			s.ready("u")
			path := s.path("u", "csi", tc.dir, "mount")
			if got := s.volume("u", "data").GetHostPath(); got != path {
				t.Errorf("at %s, want %s", got, path)
			}
			notes := s.read(filepath.Join(filepath.Dir(path), "vol_data.json"))
			for _, want := range []string{tc.driver, tc.handle, strings.ReplaceAll(tc.dir, "~", "/")} {
				if !strings.Contains(notes, fmt.Sprintf("%q", want)) {
					t.Errorf("vol_data.json has no %q: %s", want, notes)
				}
			}
			s.write(filepath.Join(path, "file"), "text")
			s.stop()
			s.start(nil)
			s.ready("u")
			if got := s.read(filepath.Join(path, "file")); got != "text" {
				t.Errorf("the volume has %q", got)
			}
			s.withdraw("u")
			s.gone("u")
			s.unstaged()
			// What was under way when the driver registered again is made again.
			calls := strings.Split(s.calls(), ", ")
			if len(calls) < 4 || calls[0] != "NodeStageVolume "+tc.handle || calls[1] != "NodePublishVolume "+tc.handle {
				t.Errorf("calls %q", calls)
			}
			if had := driverHas(s, calls, tc.handle); had != "" {
				t.Errorf("the driver has the volume %s: %q", had, calls)
			}
			if points := volumetest.Mounts(t, s.root); len(points) > 0 {
				t.Errorf("mounted still: %v", points)
			}
		})
	}
}

func TestAVolumeThatIsAttached(t *testing.T) {
	s := newStorage(t)
	const unique = "kubernetes.io/csi/csi.example^vol-1"
	s.claim()
	s.put("CSIDriver", "", "csi.example", nil)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	s.put("Node", "", "n1", node)
	s.declare(of(t, "u", claimed))
	waits := func(text string) {
		t.Helper()
		s.Eventually(text, func() bool {
			v := s.volume("u", "data")
			return strings.Contains(v.GetError(), text) && v.GetStep() == "wait for being attached"
		})
	}
	waits("has not been added to the list of VolumesInUse")
	s.Eventually("the volume is told to be in use", func() bool {
		item, _ := s.node.Get("node")
		return slices.Equal(item.GetInUse(), []string{unique})
	})
	node.Status.VolumesInUse = []v1.UniqueVolumeName{unique}
	s.put("Node", "", "n1", node)
	waits("not attached according to the node")
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: unique}}
	s.put("Node", "", "n1", node)
	const id = "csi-c59aa9fdb6e704451dbd837db8aa988fe5ba4a80aaa589eb502c5a10c5b2b9c8"
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id}}
	s.put("VolumeAttachment", "", id, attachment)
	waits(id + " is not attached yet")
	attachment.Status.AttachError = &storagev1.VolumeError{Message: "no such disk"}
	s.put("VolumeAttachment", "", id, attachment)
	s.Eventually("an event", func() bool {
		return slices.Contains(s.messages(), `FailedMount ns/u-name: MountVolume.SetUp failed for volume "data" : no such disk`)
	})
	if s.calls() != "" {
		t.Errorf("the driver was asked: %s", s.calls())
	}
	attachment.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "sdx"}}
	s.put("VolumeAttachment", "", id, attachment)
	s.ready("u")
	if got := s.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetPublishContext()["device"]; got != "sdx" {
		t.Errorf("publish context %q", got)
	}
	s.withdraw("u")
	s.gone("u")
	s.Eventually("the volume is told to be free", func() bool { item, _ := s.node.Get("node"); return len(item.GetInUse()) == 0 })
}

func TestAnInlineVolumeWithTokens(t *testing.T) {
	s := newStorage(t)
	yes := true
	s.csiDriver(func(d *storagev1.CSIDriverSpec) {
		d.PodInfoOnMount, d.RequiresRepublish = &yes, &yes
		d.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	})
	s.secret("creds", map[string]string{"user": "me"})
	p := of(t, "u", `- {name: scratch, csi: {driver: csi.example, volumeAttributes: {size: "1"}, nodePublishSecretRef: {name: creds}}}`)
	p.Spec.ServiceAccountName = "app"
	s.declare(p)
	s.ready("u")
	got := s.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest)
	for key, want := range map[string]string{
		"size": "1", "csi.storage.k8s.io/pod.name": "u-name", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "u",
		"csi.storage.k8s.io/serviceAccount.name": "app", "csi.storage.k8s.io/ephemeral": "true",
	} {
		if got.GetVolumeContext()[key] != want {
			t.Errorf("%s: %q, want %q", key, got.GetVolumeContext()[key], want)
		}
	}
	if tokens := got.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]; !strings.HasPrefix(tokens, `{"vault":{"token":"token `) {
		t.Errorf("tokens %s", tokens)
	}
	if got.GetSecrets()["user"] != "me" || got.GetStagingTargetPath() != "" {
		t.Errorf("published with %v", got)
	}
	// The pod as it is now is what the driver is asked to publish again.
	before := len(s.tokens.asked())
	s.secret("creds", map[string]string{"user": "you"})
	s.Eventually("it is published again", func() bool {
		return s.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetSecrets()["user"] == "you" && len(s.tokens.asked()) > before
	})
	s.withdraw("u")
	s.gone("u")
	if points := volumetest.Mounts(t, s.root); len(points) > 0 {
		t.Errorf("mounted still: %v", points)
	}
}

func TestADriverThatComesAndGoes(t *testing.T) {
	s := newStorage(t)
	item, _ := s.node.Get("node")
	if d := item.GetDrivers()[0]; d.GetName() != "csi.example" || d.GetNodeId() != "node-1" || d.GetMaxVolumes() != 5 || d.GetTopology()["zone"] != "a" {
		t.Errorf("%v", d)
	}
	s.driver.Stop()
	s.Eventually("the driver is gone", func() bool { item, _ := s.node.Get("node"); return len(item.GetDrivers()) == 0 })
	s.claim()
	s.csiDriver(nil)
	s.declare(of(t, "u", claimed))
	s.Eventually("an event", func() bool {
		return slices.Contains(s.messages(), `FailedMount ns/u-name: MountVolume.SetUp failed for volume "data" : driver name csi.example not found in the list of registered CSI drivers`)
	})
	s.serve()
	s.ready("u")
	// One that hangs holds up nobody else.
	if err := csidriver.Faults(s.data, "NodeUnpublishVolume stall"); err != nil {
		t.Fatal(err)
	}
	s.withdraw("u")
	s.declare(of(t, "v", `- {name: e, emptyDir: {}}`))
	s.ready("v")
	if err := csidriver.Faults(s.data); err != nil {
		t.Fatal(err)
	}
	s.driver.Stop() // which ends the call
	s.serve()
	s.gone("u")
}

// TestClaimsOfAPod: the volumes of two claims are made at the same time, those of one claim are
// one volume, which is made once.
func TestClaimsOfAPod(t *testing.T) {
	s := newStorage(t)
	s.csiDriver(nil)
	s.claim()
	s.claimOf("other", "claim-2", "pv-2")
	s.persistent("pv-2", "claim-2", "vol-2", "1Gi")
	if err := csidriver.Faults(s.data, "NodeStageVolume stall"); err != nil {
		t.Fatal(err)
	}
	s.declare(of(t, "u", claimed+`
- {name: other, persistentVolumeClaim: {claimName: other}}
- {name: again, persistentVolumeClaim: {claimName: other}}
- {name: dev, hostPath: {path: /dev}}
`))
	s.Eventually("the driver is asked for both", func() bool {
		return strings.Contains(s.calls(), "NodeStageVolume vol-1") && strings.Contains(s.calls(), "NodeStageVolume vol-2")
	})
	s.Eventually("what is of no driver", func() bool { return s.volume("u", "dev").GetState() == volumev1.VolumeState_VOLUME_STATE_MOUNTED })
	if err := csidriver.Faults(s.data); err != nil {
		t.Fatal(err)
	}
	s.driver.Stop() // which ends the calls
	s.serve()
	s.ready("u")
	if n := strings.Count(s.calls(), "NodePublishVolume vol-2"); n != 1 {
		t.Errorf("published %d times: %s", n, s.calls())
	}
	if other, again := s.volume("u", "other").GetHostPath(), s.volume("u", "again").GetHostPath(); other != again {
		t.Errorf("at %s and at %s", other, again)
	}
}

// TestAnOrphan: a volume that another agent left staged, for its driver could not let go of
// it, is unstaged when the driver can. It is not in use then any more, which lets it be
// attached to another node.
func TestAnOrphan(t *testing.T) {
	s := newStorage(t)
	s.stop()
	dir := filepath.Join(s.root, "plugins/kubernetes.io/csi/csi.example/0123")
	if err := os.MkdirAll(filepath.Join(dir, "globalmount"), 0o750); err != nil {
		t.Fatal(err)
	}
	s.write(filepath.Join(dir, "vol_data.json"), `{"driverName":"csi.example","volumeHandle":"vol-9"}`)
	if err := csidriver.Faults(s.data, "NodeUnstageVolume fail INTERNAL"); err != nil {
		t.Fatal(err)
	}
	s.start(nil)
	// Once at the start, once when the driver has registered, and again.
	s.Eventually("it is asked for", func() bool { return strings.Count(s.calls(), "NodeUnstageVolume vol-9") > 2 })
	if item, _ := s.node.Get("node"); !slices.Equal(item.GetInUse(), []string{"kubernetes.io/csi/csi.example^vol-9"}) {
		t.Errorf("in use: %v", item.GetInUse())
	}
	if err := csidriver.Faults(s.data); err != nil {
		t.Fatal(err)
	}
	s.Eventually("it is gone", func() bool {
		item, ok := s.node.Get("node")
		_, err := os.Stat(dir)
		return ok && len(item.GetInUse()) == 0 && errors.Is(err, fs.ErrNotExist)
	})
}

// TestAFailedUnstagingHoldsNoPod: a pod has left when its volume is unmounted from it. The
// volume is in use until it is unstaged, which is tried until it succeeds; another pod gets it
// meanwhile.
func TestAFailedUnstagingHoldsNoPod(t *testing.T) {
	s := newStorage(t)
	s.claim()
	s.csiDriver(nil)
	s.declare(of(t, "u", claimed))
	s.ready("u")
	if err := csidriver.Faults(s.data, "NodeUnstageVolume fail INTERNAL"); err != nil {
		t.Fatal(err)
	}
	inUse := func() bool { item, _ := s.node.Get("node"); return len(item.GetInUse()) == 1 }
	for i, uid := range []string{"u", "v"} {
		s.withdraw(uid)
		s.gone(uid)
		s.Eventually("the volume is staged, and in use", inUse) // the other feed says it when it likes
		s.Eventually("it is asked for again", func() bool { return strings.Count(s.calls(), "NodeUnstageVolume vol-1") > 2+2*i })
		if n := strings.Count(s.calls(), "NodeUnpublishVolume vol-1"); n != i+1 {
			t.Errorf("unpublished %d times from %d pods", n, i+1)
		}
		if uid == "u" {
			s.declare(of(t, "v", claimed))
			s.ready("v")
			s.write(s.path("v", "csi", "pv", "mount", "file"), "text")
		}
	}
	if err := csidriver.Faults(s.data); err != nil {
		t.Fatal(err)
	}
	s.unstaged()
	if has := driverHas(t, strings.Split(s.calls(), ", "), "vol-1"); has != "" {
		t.Errorf("the driver has the volume %s", has)
	}
	if points := volumetest.Mounts(t, s.root); len(points) > 0 {
		t.Errorf("mounted still: %v", points)
	}
}

// TestAnUnstagingThatHangsHoldsNoPod: neither the one that had the volume, nor one that waits
// for it and leaves.
func TestAnUnstagingThatHangsHoldsNoPod(t *testing.T) {
	s := newStorage(t)
	unstaging, goOn := make(chan bool, 1), make(chan bool)
	s.done = func(method string) {
		if method == "NodeUnstageVolume" {
			unstaging <- true
			<-goOn
		}
	}
	s.claim()
	s.csiDriver(nil)
	s.declare(of(t, "a", claimed))
	s.ready("a")
	s.withdraw("a")
	s.gone("a")
	<-unstaging
	s.declare(of(t, "b", claimed))
	s.Eventually("it is being set up", func() bool { return strings.HasPrefix(s.volume("b", "data").GetStep(), "set up ") })
	s.withdraw("b")
	s.gone("b")
	if item, _ := s.node.Get("node"); len(item.GetInUse()) != 1 {
		t.Errorf("in use while it is unstaged: %v", item.GetInUse())
	}
	s.declare(of(t, "c", claimed))
	close(goOn)
	s.ready("c")
	s.withdraw("c")
	s.gone("c")
	s.unstaged()
	if n := strings.Count(s.calls(), "NodeStageVolume"); n != 2 {
		t.Errorf("staged %d times for a and c: %s", n, s.calls())
	}
	if events := s.messages(); len(events) > 0 {
		t.Errorf("events: %q", events)
	}
}

// TestAVolumeIsInUseWhileItMayBeStaged: what a pod that is withdrawn has attached is in use
// while its volumes are still being set up, for it may be staged yet.
func TestAVolumeIsInUseWhileItMayBeStaged(t *testing.T) {
	hang := make(chan struct{})
	s := newStorage(t)
	s.stop()
	s.start(func(d *volume.Deps) { d.Host = stuck{Host: setup.NewHost(s.root), hang: hang} })
	s.claim()
	s.csiDriver(func(d *storagev1.CSIDriverSpec) { d.AttachRequired = nil })
	s.put("Node", "", "n1", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	s.volumeOf("more", "pv-2", v1.PersistentVolumeSpec{
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "vol-2"}},
	})
	const one, two = "kubernetes.io/csi/csi.example^vol-1", "kubernetes.io/csi/csi.example^vol-2"
	inUse := func() []string { item, _ := s.node.Get("node"); return item.GetInUse() }
	s.declare(of(t, "v", "- {name: data, persistentVolumeClaim: {claimName: more}}"))
	// All objects have arrived then: u has one pass only.
	s.Eventually("the volume is told to be in use", func() bool { return slices.Equal(inUse(), []string{two}) })
	s.declare(of(t, "u", claimed+"\n- {name: hang, hostPath: {path: /dev}}\n"))
	s.Eventually("the volumes are told to be in use", func() bool { return slices.Equal(inUse(), []string{one, two}) })
	s.Eventually("the next one is set up", func() bool { return s.volume("u", "hang").GetStep() == "set up kubernetes.io/host-path" })
	s.withdraw("u")
	s.withdraw("v") // its removal publishes the volumes in use again
	s.gone("v")
	s.Eventually("its volume is free", func() bool { return !slices.Contains(inUse(), two) })
	if !slices.Equal(inUse(), []string{one}) {
		t.Errorf("in use: %q, want %q", inUse(), one)
	}
	close(hang)
	s.gone("u")
	s.unstaged()
}

// TestExpansion is the node's part of KEP-1790: the claim says that it goes on
// before the driver is asked, and is told what came of it.
func TestExpansion(t *testing.T) {
	s := newStorage(t, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	s.csiDriver(nil)
	size := func(text string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceStorage: resource.MustParse(text)}
	}
	claim := func(version, had string, state v1.ClaimResourceStatus) {
		t.Helper()
		c := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim-1", ResourceVersion: version},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: v1.VolumeResourceRequirements{Requests: size("2Gi")}},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size(had)},
		}
		if state != "" {
			c.Status.AllocatedResources = size("2Gi")
			c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: state}
		}
		s.put("PersistentVolumeClaim", "ns", "data", c)
	}
	told := func(what, want string) {
		t.Helper()
		s.Eventually(what, func() bool {
			item, _ := s.node.Get("node")
			got := ""
			for _, e := range item.GetExpansions() {
				got = fmt.Sprintf("%s/%s %s at %s: %s %s %s", e.GetNamespace(), e.GetName(), e.GetUid(), e.GetResourceVersion(),
					strings.TrimPrefix(e.GetState().String(), "EXPANSION_STATE_"), e.GetSize(), e.GetError())
			}
			return got == want
		})
	}
	s.volume1("1Gi")
	claim("1", "1Gi", "")
	s.declare(of(t, "u", claimed))
	s.ready("u")
	// The controller's order: without a state in the claim, a larger volume is one of a
	// controller from before KEP-1790, and is expanded at once.
	claim("2", "1Gi", v1.PersistentVolumeClaimControllerResizeInProgress)
	s.volume1("2Gi")
	claim("2", "1Gi", v1.PersistentVolumeClaimNodeResizePending)
	told("the claim is to say so first", "ns/data claim-1 at 2: IN_PROGRESS  ")
	if calls := s.calls(); strings.Contains(calls, "NodeExpandVolume") {
		t.Errorf("asked %s", calls)
	}
	if err := csidriver.Faults(s.data, "NodeExpandVolume fail OUT_OF_RANGE"); err != nil {
		t.Fatal(err)
	}
	claim("3", "1Gi", v1.PersistentVolumeClaimNodeResizeInProgress)
	told("it cannot be done", `ns/data claim-1 at 3: INFEASIBLE  NodeExpandVolume failed for volume "pv" : rpc error: code = OutOfRange desc = NodeExpandVolume fails as it was told to`)
	s.Eventually("an event", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(s.events.Items())), func(e *eventv1.Event) bool {
			return e.GetReason() == "VolumeResizeFailed" && e.GetObject().GetUid() == "u"
		})
	})
	s.ready("u") // what is mounted stays
	if err := csidriver.Faults(s.data); err != nil {
		t.Fatal(err)
	}
	claim("4", "1Gi", v1.PersistentVolumeClaimNodeResizeInfeasible)
	told("it is for the controller", "")
	claim("5", "1Gi", v1.PersistentVolumeClaimNodeResizeInProgress)
	told("it is done", "ns/data claim-1 at 5: DONE 2Gi ")
	s.Eventually("events about pod and claim", func() bool {
		about := map[string]bool{}
		for _, e := range s.events.Items() {
			if e.GetReason() == "FileSystemResizeSuccessful" && e.GetMessage() == `MountVolume.NodeExpandVolume succeeded for volume "pv" n1` {
				about[e.GetObject().GetKind()+" "+e.GetObject().GetUid()] = true
			}
		}
		return about["Pod u"] && about["PersistentVolumeClaim claim-1"]
	})
	before := s.calls()
	s.stop()
	s.start(nil) // another life before the claim was told
	told("it is done still", "ns/data claim-1 at 5: DONE 2Gi ")
	claim("6", "2Gi", "")
	told("the claim says so", "")
	if calls := s.calls(); calls != before {
		t.Errorf("asked again: %s", strings.TrimPrefix(calls, before))
	}
}

func TestLabelledVolumes(t *testing.T) {
	s := newStorage(t)
	s.stop()
	s.start(func(d *volume.Deps) {
		d.FileLabel = func(o *v1.SELinuxOptions) (string, error) {
			if o == nil {
				return "", nil
			}
			return "u:r:t:" + o.Level, nil
		}
	})
	s.serve()
	s.claim()
	s.csiDriver(func(d *storagev1.CSIDriverSpec) { can := true; d.SELinuxMount = &can })
	s.configMap("c", map[string]string{"k": "v"})
	relabelled := func(uid string) string {
		var all []string
		item, _ := s.pods.Get(uid)
		for _, v := range item.GetVolumes() {
			if v.GetRelabel() {
				all = append(all, v.GetName())
			}
		}
		return strings.Join(all, " ")
	}
	p := of(t, "u", claimed+`
- {name: e, emptyDir: {}}
- {name: c, configMap: {name: c}}
- {name: h, hostPath: {path: /dev}}
`)
	p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1"}}
	p.Spec.Containers = []v1.Container{{Name: "a", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	s.declare(p)
	s.ready("u")
	// A claim that others may share is labelled by the runtime, file by file.
	if got := relabelled("u"); got != "data e c" {
		t.Errorf("relabelled: %s", got)
	}
	s.withdraw("u")
	s.gone("u")

	s.put("PersistentVolumeClaim", "ns", "own", &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own", UID: "claim-2"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv2"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	})
	s.put("PersistentVolume", "", "pv2", &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv2"},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef: &v1.ObjectReference{UID: "claim-2"}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example", VolumeHandle: "vol-2", FSType: "ext4"}},
		},
	})
	p.UID, p.Name = "u2", "u2-name"
	p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "own"
	s.declare(p)
	s.ready("u2")
	if got := relabelled("u2"); got != "e c" {
		t.Errorf("relabelled: %s", got)
	}
	flags := s.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetVolumeCapability().GetMount().GetMountFlags()
	if !slices.Contains(flags, `context="u:r:t:s0:c1"`) {
		t.Errorf("mounted with %q", flags)
	}
	s.withdraw("u2")
	s.gone("u2")
}

func TestAVolumeThatIsNotWell(t *testing.T) {
	s := newStorage(t, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_VOLUME_CONDITION)
	if err := csidriver.Faults(s.data, "NodeGetVolumeStats abnormal degraded"); err != nil {
		t.Fatal(err)
	}
	s.claim()
	s.csiDriver(nil)
	s.declare(of(t, "u", claimed))
	s.ready("u")
	configure := func(on bool) {
		conf := &kubeletconfig.Config{}
		conf.Kubelet.APIVersion, conf.Kubelet.Kind = kubeletconfig.APIVersion, kubeletconfig.Kind
		conf.Kubelet.FeatureGates = map[string]bool{"CSIVolumeHealth": on}
		conf.Kubelet.VolumeStatsAggPeriod.Duration = time.Millisecond
		standin.SetKubelet(s.House, s.kubelet, conf)
	}
	told := func() *volumev1.VolumeStats {
		resp, err := s.client.Stats(t.Context(), &volumev1.StatsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range resp.GetVolumes() {
			if v.GetName() == "data" && v.GetCapacity() == 1000 {
				return v
			}
		}
		return nil
	}
	configure(false)
	s.Eventually("it is measured", func() bool { return told() != nil })
	if v := told(); v.Abnormal != nil {
		t.Errorf("its health is told: %v", v)
	}
	configure(true)
	s.Eventually("an event, though nobody asks", func() bool {
		return slices.Contains(s.messages(), "VolumeConditionAbnormal ns/u-name: Volume data: degraded")
	})
	if v := told(); v.Abnormal == nil || !v.GetAbnormal() {
		t.Errorf("%v", v)
	}
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	abnormal := -1.0
	for _, f := range families {
		if f.GetName() == "kubelet_volume_stats_health_status_abnormal" {
			abnormal = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if abnormal != 1 {
		t.Errorf("kubelet_volume_stats_health_status_abnormal is %v", abnormal)
	}
	s.withdraw("u")
	s.gone("u")
}
