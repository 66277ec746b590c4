// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/volumetest"
)

// rig is a manager on real mounts before a real driver.
type rig struct {
	*testing.T
	*Manager
	root    string // of the node
	data    string // of the driver
	config  csidriver.Config
	driver  *csidriver.Driver
	drivers *Drivers
	store   *store.Store
	journal string
	boot    string

	mu    sync.Mutex
	given []string
	codes []string // of the calls, "METHOD CODE"
}

var all = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

func newRig(t *testing.T, capabilities ...csi.NodeServiceCapability_RPC_Type) *rig {
	t.Helper()
	// The path of a socket is short.
	sockets, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	r := &rig{T: t, root: volumetest.Root(t), data: t.TempDir(), boot: "boot-1"}
	r.config = csidriver.Config{
		Name: "csi.example", NodeID: "node-1", Root: r.data, Capabilities: capabilities, MaxVolumes: 7, Topology: map[string]string{"zone": "a"},
		Endpoint: filepath.Join(sockets, "csi.sock"), Registration: filepath.Join(sockets, "reg.sock"),
	}
	if r.driver, err = csidriver.Start(r.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.driver.Stop() })
	r.start(filepath.Join(t.TempDir(), "state.db"))
	if err := r.drivers.Register(t.Context(), r.plugin()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) plugin() pluginregistration.Plugin {
	return pluginregistration.Plugin{Name: r.config.Name, Endpoint: r.config.Endpoint, Socket: r.config.Registration, Versions: []string{"1.0.0"}}
}

// start begins a life of the manager on a journal.
func (r *rig) start(path string) {
	r.Helper()
	r.journal = path
	var err error
	if r.store, _, err = store.Open(store.Config{Path: path, Schema: 1, Log: slog.New(slog.DiscardHandler)}); err != nil {
		r.Fatal(err)
	}
	file := r.store
	r.Cleanup(func() { _ = file.Close() }) // twice, maybe
	observe := func(_, method, code string, _ time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.codes = append(r.codes, filepath.Base(method)+" "+code)
	}
	if r.drivers, err = NewDrivers(r.store, observe, func(string) {}, slog.New(slog.DiscardHandler)); err != nil {
		r.Fatal(err)
	}
	r.Manager, err = New(Config{
		Layout: pod.Layout{Root: r.root}, Drivers: r.drivers, Store: r.store, Boot: r.boot, Log: slog.New(slog.DiscardHandler),
		Give: func(path string, q *Request) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.given = append(r.given, fmt.Sprint(path, " ", *q.FSGroup))
			return nil
		},
	})
	if err != nil {
		r.Fatal(err)
	}
}

// again begins another life, on the same journal or without it.
func (r *rig) again(lost bool) {
	r.Helper()
	if err := r.store.Close(); err != nil {
		r.Fatal(err)
	}
	path := filepath.Join(r.TempDir(), "state.db")
	if !lost {
		path = r.journal
	}
	r.start(path)
	if lost {
		if err := r.drivers.Register(r.Context(), r.plugin()); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *rig) calls() string {
	r.Helper()
	calls, err := csidriver.Calls(r.data)
	if err != nil {
		r.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.data, "calls")); err != nil && !os.IsNotExist(err) {
		r.Fatal(err)
	}
	for i := range calls {
		calls[i] = strings.TrimSuffix(strings.TrimPrefix(calls[i], "Node"), " vol-1")
	}
	return strings.Join(calls, " ")
}

func (r *rig) want(calls string) {
	r.Helper()
	if got := r.calls(); got != calls {
		r.Errorf("calls %q, want %q", got, calls)
	}
}

func (r *rig) faults(lines ...string) {
	r.Helper()
	if err := csidriver.Faults(r.data, lines...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) mount(q *Request) string {
	r.Helper()
	path, err := r.Mount(r.Context(), r.Context(), q)
	if err != nil {
		r.Fatal(err)
	}
	return path
}

func (r *rig) refused(q *Request, text string) {
	r.Helper()
	if _, err := r.Mount(r.Context(), r.Context(), q); err == nil || !strings.Contains(err.Error(), text) {
		r.Errorf("error %v, want %q", err, text)
	}
}

// unmount takes a pod's volumes from it, and reaps what it leaves.
func (r *rig) unmount(uid types.UID) {
	r.Helper()
	if err := errors.Join(r.Unmount(r.Context(), uid), r.reap()); err != nil {
		r.Fatal(err)
	}
}

// reap lets go of what is left.
func (r *rig) reap() error {
	var failed []error
	for _, volume := range r.Left() {
		failed = append(failed, r.Reap(r.Context(), volume))
	}
	return errors.Join(failed...)
}

// clean makes sure that nothing is left.
func (r *rig) clean() {
	r.Helper()
	if points := volumetest.Mounts(r, r.root); len(points) > 0 {
		r.Errorf("mounted still: %v", points)
	}
	err := filepath.WalkDir(r.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			r.Errorf("left over: %s", path)
		}
		return err
	})
	if err != nil {
		r.Error(err)
	}
	if len(r.InUse()) > 0 {
		r.Errorf("in use still: %v", r.InUse())
	}
}

func persistent(uid types.UID) *Request {
	return &Request{
		UID: uid, Volume: "data", Name: "pv", Driver: "csi.example", Handle: "vol-1", Attachable: true,
		FSType: "ext4", AccessMode: v1.ReadWriteOnce, MountOptions: []string{"noatime"},
		Attributes: map[string]string{"own": "1"}, PublishAttributes: map[string]string{"pod": "2"},
		StageSecrets: map[string]string{"stage": "s"}, PublishSecrets: map[string]string{"publish": "p"},
		PublishContext: map[string]string{"device": "sdx"}, Node: "n1", Attachment: "csi-att",
	}
}

func unmountPoint(point string) error { return unix.Unmount(point, 0) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTwoPodsOfOneVolume(t *testing.T) {
	r := newRig(t, all...)
	one := r.mount(persistent("one"))
	if want := filepath.Join(r.root, "pods/one/volumes/kubernetes.io~csi/pv/mount"); one != want {
		t.Errorf("at %s, want %s", one, want)
	}
	r.want("StageVolume PublishVolume")
	write(t, filepath.Join(one, "file"), "text")
	if got := read(t, filepath.Join(r.data, "volumes/vol-1/file")); got != "text" {
		t.Errorf("the volume has %q", got)
	}
	if got := r.mount(persistent("one")); got != one {
		t.Errorf("made sure of at %s", got)
	}
	two := r.mount(persistent("two"))
	r.want("PublishVolume") // staged once, and nothing done twice
	if got := read(t, filepath.Join(two, "file")); got != "text" {
		t.Errorf("the other pod reads %q", got)
	}
	if got := strings.Join(r.InUse(), " "); got != "kubernetes.io/csi/csi.example^vol-1" {
		t.Errorf("in use: %s", got)
	}

	stage := r.driver.Last("NodeStageVolume").(*csi.NodeStageVolumeRequest)
	staging := filepath.Join(r.root, "plugins/kubernetes.io/csi/csi.example", fmt.Sprintf("%x", sha256.Sum256([]byte("vol-1"))), "globalmount")
	if stage.GetStagingTargetPath() != staging ||
		stage.GetSecrets()["stage"] != "s" || stage.GetPublishContext()["device"] != "sdx" || stage.GetVolumeContext()["own"] != "1" || stage.GetVolumeContext()["pod"] != "" ||
		stage.GetVolumeCapability().GetMount().GetFsType() != "ext4" || stage.GetVolumeCapability().GetMount().GetMountFlags()[0] != "noatime" ||
		stage.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("staged with %v", stage)
	}
	publish := r.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest)
	if publish.GetStagingTargetPath() != stage.GetStagingTargetPath() || publish.GetTargetPath() != two || publish.GetSecrets()["publish"] != "p" ||
		publish.GetVolumeContext()["pod"] != "2" || publish.GetVolumeContext()["own"] != "1" || publish.GetReadonly() {
		t.Errorf("published with %v", publish)
	}
	data := `{"specVolID":"pv","volumeHandle":"vol-1","driverName":"csi.example","nodeName":"n1","attachmentID":"csi-att","volumeLifecycleMode":"Persistent"}`
	if got := read(t, filepath.Join(filepath.Dir(one), "vol_data.json")); got != data {
		t.Errorf("vol_data.json: %s", got)
	}
	if got := read(t, filepath.Join(filepath.Dir(stage.GetStagingTargetPath()), "vol_data.json")); got != `{"volumeHandle":"vol-1","driverName":"csi.example"}` {
		t.Errorf("vol_data.json of what is staged: %s", got)
	}

	r.unmount("one")
	r.want("UnpublishVolume")
	if got := read(t, filepath.Join(two, "file")); got != "text" {
		t.Errorf("the other pod reads %q", got)
	}
	r.unmount("two")
	r.want("UnpublishVolume UnstageVolume")
	r.clean()
	r.unmount("two") // nothing to do
	r.want("")
	if got := read(t, filepath.Join(r.data, "volumes/vol-1/file")); got != "text" {
		t.Errorf("the volume has %q", got)
	}
}

func TestADriverThatStagesNothing(t *testing.T) {
	r := newRig(t)
	q := persistent("one")
	q.ReadOnly = true
	path := r.mount(q)
	r.want("PublishVolume")
	if err := os.WriteFile(filepath.Join(path, "x"), nil, 0o600); err == nil {
		t.Error("wrote to a volume that is read-only")
	}
	if got := r.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetVolumeCapability().GetAccessMode().GetMode(); got != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("access mode %s", got)
	}
	r.unmount("one")
	r.want("UnpublishVolume")
	r.clean()
}

func TestInline(t *testing.T) {
	r := newRig(t, all...)
	q := &Request{
		UID: "one", Volume: "scratch", Name: "scratch", Driver: "csi.example", Handle: InlineHandle("one", "scratch"), Inline: true,
		PublishAttributes: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	}
	path := r.mount(q)
	if calls := r.calls(); !strings.HasPrefix(calls, "PublishVolume csi-") || strings.Contains(calls, "Stage") {
		t.Errorf("calls %s", calls)
	}
	if len(r.InUse()) != 0 {
		t.Errorf("attached: %v", r.InUse())
	}
	write(t, filepath.Join(path, "x"), "")
	r.unmount("one")
	r.clean()
}

func TestBlock(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	q.Block = true
	path := r.mount(q)
	r.want("StageVolume PublishVolume")
	devices := filepath.Join(r.root, "plugins/kubernetes.io/csi/volumeDevices")
	if want := filepath.Join(devices, "publish/pv/one"); path != want {
		t.Errorf("at %s, want %s", path, want)
	}
	if got, err := os.Readlink(filepath.Join(r.root, "pods/one/volumeDevices/kubernetes.io~csi/pv")); err != nil || got != path {
		t.Errorf("the pod's name for it: %s, %v", got, err)
	}
	stage := r.driver.Last("NodeStageVolume").(*csi.NodeStageVolumeRequest)
	if stage.GetStagingTargetPath() != filepath.Join(devices, "staging/pv") || stage.GetVolumeCapability().GetBlock() == nil {
		t.Errorf("staged with %v", stage)
	}
	r.again(true) // the data file tells both
	r.mount(q)
	r.want("StageVolume PublishVolume")
	r.unmount("one")
	r.want("UnpublishVolume UnstageVolume")
	r.clean()
}

// TestABlockVolumeWithoutStats is not measured by its path, which is a device node.
func TestABlockVolumeWithoutStats(t *testing.T) {
	r := newRig(t)
	for _, block := range []bool{true, false} {
		q := persistent("one")
		q.Block = block
		path := r.mount(q)
		if reading, err := r.Measure(t.Context(), path, false); err == nil || errors.Is(err, ErrNoStats) == block {
			t.Errorf("block %v: %+v, %v", block, reading, err)
		}
		r.unmount("one")
	}
	r.clean()
}

func TestOnePodOnly(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	q.Exclusive, q.AccessMode = true, v1.ReadWriteOncePod
	r.mount(q)
	if got := r.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetVolumeCapability().GetAccessMode().GetMode(); got != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		t.Errorf("access mode %s", got)
	}
	other := persistent("two")
	other.Exclusive, other.AccessMode = true, v1.ReadWriteOncePod
	r.refused(other, "volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	r.unmount("one")
	r.mount(other)
	r.unmount("two")
	r.clean()
}

func TestRestarts(t *testing.T) {
	for name, lost := range map[string]bool{"with its journal": false, "without its journal": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, all...)
			path := r.mount(persistent("one"))
			r.calls()
			r.again(lost)
			standing, ok := r.Standing("one", "data")
			if ok == lost || ok && standing != path {
				t.Errorf("standing %v at %s", ok, standing)
			}
			if len(r.InUse()) != 1 {
				t.Errorf("in use: %v", r.InUse())
			}
			if err := r.reap(); err != nil {
				t.Error(err)
			}
			r.mount(persistent("one"))
			if got := r.calls(); lost != (got == "StageVolume PublishVolume") || !lost && got != "" {
				t.Errorf("calls %q", got)
			}
			r.again(lost)
			r.unmount("one") // of which nothing is known but what the disk or the journal say
			r.want("UnpublishVolume UnstageVolume")
			r.clean()
		})
	}
}

func TestAnotherBoot(t *testing.T) {
	r := newRig(t, all...)
	path := r.mount(persistent("one"))
	r.calls()
	for _, point := range volumetest.Mounts(t, r.root) { // as the machine's end does
		if err := unmountPoint(point); err != nil {
			t.Fatal(err)
		}
	}
	r.boot = "boot-2"
	r.again(false)
	if _, ok := r.Standing("one", "data"); ok {
		t.Error("a volume of another boot stands")
	}
	if got := r.mount(persistent("one")); got != path {
		t.Errorf("at %s", got)
	}
	r.want("StageVolume PublishVolume")
	r.unmount("one")
	r.clean()
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	r.faults("NodeStageVolume fail INTERNAL")
	r.refused(q, "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Internal desc = NodeStageVolume fails as it was told to")
	r.faults("NodePublishVolume fail UNAVAILABLE")
	r.refused(q, "code = Unavailable")
	r.want("StageVolume StageVolume PublishVolume")
	r.faults("NodePublishVolume fail FAILED_PRECONDITION") // the driver forgot that it staged
	r.refused(q, "code = FailedPrecondition")
	r.faults("NodePublishVolume lie")
	r.refused(q, "nothing is mounted at")
	r.want("PublishVolume StageVolume PublishVolume")
	r.faults()
	r.mount(q)
	r.faults("NodeUnpublishVolume fail INTERNAL")
	if err := r.Unmount(t.Context(), "one"); err == nil || !strings.Contains(err.Error(), `volume "data": UnmountVolume.TearDown failed: `) {
		t.Errorf("error %v", err)
	}
	r.faults("NodeUnpublishVolume lie")
	if err := r.Unmount(t.Context(), "one"); err == nil || !strings.Contains(err.Error(), "is mounted still") {
		t.Errorf("error %v", err)
	}
	r.faults("NodeUnstageVolume fail INTERNAL")
	if err := r.Unmount(t.Context(), "one"); err != nil { // the pod does not wait for it
		t.Error(err)
	}
	if err := r.reap(); err == nil || !strings.Contains(err.Error(), "UnmountDevice failed") {
		t.Errorf("error %v", err)
	}
	r.faults()
	r.calls()
	// Another pod comes before that was tried again: it stages again, and keeps it.
	r.mount(persistent("two"))
	r.want("StageVolume PublishVolume")
	r.unmount("one")
	r.want("")
	r.unmount("two")
	r.clean()
	if !slices.Contains(r.codes, "NodeStageVolume Internal") || !slices.Contains(r.codes, "NodeStageVolume OK") {
		t.Errorf("observed %v", r.codes)
	}
}

// TestAFailedUnstagingIsTriedAgain, also by the next life of the service. The pod is not held,
// and the volume is in use until it is unstaged.
func TestAFailedUnstagingIsTriedAgain(t *testing.T) {
	for _, block := range []bool{false, true} {
		for _, life := range []string{"same", "next", "without a journal"} {
			r := newRig(t, all...)
			q := persistent("one")
			q.Block = block
			r.mount(q)
			r.faults("NodeUnstageVolume fail INTERNAL")
			if err := r.Unmount(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if r.Uses("one") {
				t.Error("the pod has the volume still")
			}
			if err := r.reap(); err == nil || !strings.Contains(err.Error(), "UnmountDevice failed") {
				t.Errorf("error %v", err)
			}
			if r.faults(); life != "same" {
				r.again(life != "next")
			}
			if used := r.InUse(); len(used) != 1 {
				t.Errorf("block %v, the %s life: in use: %v", block, life, used)
			}
			r.calls()
			if err := r.reap(); err != nil {
				t.Error(err)
			}
			r.want("UnstageVolume")
			r.clean()
		}
	}
}

// TestAVolumeThatIsLeftAndComesBack: a volume that was not unstaged has another pod, by another
// PersistentVolume: nothing stays where it was staged first.
func TestAVolumeThatIsLeftAndComesBack(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	q.Block = true
	r.mount(q)
	if err := r.Unmount(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	other := persistent("two")
	other.Block, other.Name = true, "pv-2"
	r.calls()
	r.mount(other)
	r.want("UnstageVolume StageVolume PublishVolume")
	if err := r.reap(); err != nil { // it has a pod
		t.Error(err)
	}
	r.want("")
	r.unmount("two")
	r.clean()
}

// TestAPodThatLeavesIsStagedNothing: it waited behind another's unstaging.
func TestAPodThatLeavesIsStagedNothing(t *testing.T) {
	r := newRig(t, all...)
	end, err := r.turns.Enter(t.Context(), "csi.example^vol-1")
	if err != nil {
		t.Fatal(err)
	}
	wanted, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.Mount(t.Context(), wanted, persistent("one")); !errors.Is(err, context.Canceled) {
		t.Errorf("while another has its turn: %v", err)
	}
	end()
	if _, err := r.Mount(t.Context(), wanted, persistent("one")); !errors.Is(err, context.Canceled) {
		t.Errorf("in its turn: %v", err)
	}
	r.want("")
	r.mount(persistent("one"))
	r.unmount("one")
	r.clean()
}

func TestAFailedPublishLeavesSomethingToUndo(t *testing.T) {
	r := newRig(t, all...)
	r.faults("NodePublishVolume fail INTERNAL")
	r.refused(persistent("one"), "Internal")
	r.again(false)
	r.calls()
	r.unmount("one")
	r.want("UnpublishVolume UnstageVolume")
	r.clean()
}

func TestRepublish(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	group := int64(7)
	q.FSGroup, q.GiveFSGroup = &group, true
	q.Republish, q.PublishAttributes = true, map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "first"}
	path := r.mount(q)
	q.PublishAttributes = map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "second"}
	r.mount(q)
	if got := read(t, filepath.Join(path, "tokens")); got != "second" {
		t.Errorf("tokens %s", got)
	}
	r.want("StageVolume PublishVolume PublishVolume")
	if len(r.given) != 2 { // new files are the group's as well
		t.Errorf("given to the group: %q", r.given)
	}
	r.faults("NodePublishVolume fail INTERNAL")
	r.refused(q, "Internal")
	if _, ok := r.Standing("one", "data"); !ok {
		t.Error("a failed republish took the volume away")
	}
	r.faults()
	r.unmount("one")
	r.clean()
}

func TestOrphansAreReaped(t *testing.T) {
	r := newRig(t, all...)
	r.mount(persistent("one"))
	// A life that ended between the last pod and the unstaging.
	if err := r.uses.drop("one/pv"); err != nil {
		t.Fatal(err)
	}
	if err := unmountPoint(filepath.Join(r.root, "pods/one/volumes/kubernetes.io~csi/pv/mount")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(r.root, "pods/one")); err != nil {
		t.Fatal(err)
	}
	r.again(false)
	r.calls()
	if err := r.reap(); err != nil {
		t.Fatal(err)
	}
	r.want("UnstageVolume")
	r.clean()
}

func TestFSGroup(t *testing.T) {
	group := int64(2000)
	q := persistent("one")
	q.FSGroup, q.GiveFSGroup = &group, true

	r := newRig(t, all...)
	path := r.mount(q)
	if want := path + " 2000"; len(r.given) != 1 || r.given[0] != want {
		t.Errorf("given %v", r.given)
	}
	if r.mount(q); len(r.given) != 1 {
		t.Errorf("given again, under containers: %v", r.given)
	}
	r.unmount("one")

	able := newRig(t, append(slices.Clone(all), csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)...)
	able.mount(q)
	if len(able.given) != 0 {
		t.Errorf("given %v, though the driver does that", able.given)
	}
	for _, c := range []*csi.VolumeCapability{
		able.driver.Last("NodeStageVolume").(*csi.NodeStageVolumeRequest).GetVolumeCapability(),
		able.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest).GetVolumeCapability(),
	} {
		if got := c.GetMount().GetVolumeMountGroup(); got != "2000" {
			t.Errorf("the driver was told group %q", got)
		}
	}
	able.unmount("one")
}

func TestExpand(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	q.Had, q.Size = 100, 200
	r.mount(q)
	r.want("StageVolume ExpandVolume PublishVolume")
	r.mount(q)
	r.want("")
	if !r.Expanded(q) {
		t.Error("not expanded")
	}
	q.Had, q.Size = 200, 300
	r.mount(q)
	r.want("ExpandVolume")
	if got := r.driver.Last("NodeExpandVolume").(*csi.NodeExpandVolumeRequest).GetCapacityRange().GetRequiredBytes(); got != 300 {
		t.Errorf("expanded to %d", got)
	}
	// Another node grew it; the claim says so, and this node had 300.
	q.Had, q.Size = 400, 400
	r.mount(q)
	r.want("ExpandVolume")
	r.unmount("one")
	// Who stages it now has it as it is.
	r.calls()
	r.mount(q)
	r.want("StageVolume PublishVolume")
	r.unmount("one")
}

func TestExpandWithoutStaging(t *testing.T) {
	r := newRig(t, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	q := persistent("one")
	q.Had, q.Size = 100, 200
	path := r.mount(q)
	r.want("PublishVolume ExpandVolume")
	if got := r.driver.Last("NodeExpandVolume").(*csi.NodeExpandVolumeRequest).GetVolumePath(); got != path {
		t.Errorf("expanded at %s, published at %s", got, path)
	}
	q.Had, q.Size = 200, 300
	r.mount(q)
	r.want("ExpandVolume")
	if !r.Expanded(q) {
		t.Error("not expanded")
	}
	r.unmount("one")
}

func TestExpandFails(t *testing.T) {
	r := newRig(t, all...)
	q := persistent("one")
	q.Had = 100
	r.mount(q)
	r.calls()
	q.Size = 200
	for code, want := range map[string]struct{ final, infeasible bool }{
		"OUT_OF_RANGE": {true, true}, "INTERNAL": {true, false}, "UNAVAILABLE": {false, false}, "UNKNOWN": {true, false},
	} {
		r.faults("NodeExpandVolume fail " + code)
		path, err := r.Mount(t.Context(), t.Context(), q)
		var failed *ExpandError
		if !errors.As(err, &failed) || failed.Final() != want.final || failed.Infeasible() != want.infeasible || path == "" {
			t.Errorf("%s: at %q: %v, final %v, infeasible %v", code, path, err, failed.Final(), failed.Infeasible())
		}
	}
	r.calls()
	// One that cannot be expanded while it is in use is left alone until it is to have
	// another size.
	r.faults("NodeExpandVolume fail FAILED_PRECONDITION")
	r.mount(q)
	r.mount(q)
	r.want("ExpandVolume")
	r.faults()
	q.Size = 300
	r.mount(q)
	r.want("ExpandVolume")
	r.unmount("one")
}

// TestExpandOnceItIsFree: a volume that its driver does not expand while it is in use is
// expanded when it is mounted the next time, for the same pod's successor.
func TestExpandOnceItIsFree(t *testing.T) {
	for _, stages := range []bool{true, false} {
		r := newRig(t, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
		if stages {
			r = newRig(t, all...)
		}
		q := persistent("one")
		q.Had = 100
		r.mount(q)
		q.Size = 200
		r.faults("NodeExpandVolume fail FAILED_PRECONDITION")
		r.mount(q)
		if r.Expanded(q) {
			t.Error("expanded while it is in use")
		}
		r.unmount("one")
		r.faults()
		next := persistent("two")
		next.Had, next.Size = 100, 200
		r.mount(next)
		if !r.Expanded(next) {
			t.Errorf("stages %v: not expanded for the next pod", stages)
		}
		r.unmount("two")
	}
}

func TestStats(t *testing.T) {
	r := newRig(t, all...)
	path := r.mount(persistent("one"))
	got, err := r.Measure(t.Context(), path, false)
	if err != nil || got.Capacity != 1000 || got.Available != 900 || got.Used != 100 || got.Inodes != 10 || got.InodesFree != 9 || got.InodesIn != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.Measure(t.Context(), "/elsewhere", false); err != ErrNoStats {
		t.Errorf("error %v", err)
	}
	r.unmount("one")
}

func TestHealth(t *testing.T) {
	for _, tells := range []bool{false, true} {
		capabilities := all
		if tells {
			capabilities = append(slices.Clone(all), csi.NodeServiceCapability_RPC_VOLUME_CONDITION)
		}
		r := newRig(t, capabilities...)
		path := r.mount(persistent("one"))
		r.faults("NodeGetVolumeStats abnormal degraded")
		for _, asked := range []bool{false, true} {
			got, err := r.Measure(t.Context(), path, asked)
			if err != nil || got.Capacity != 1000 {
				t.Fatalf("%+v, %v", got, err)
			}
			if (got.Health != nil) != (tells && asked) || got.Health != nil && *got.Health != (measure.Health{Abnormal: true, Message: "degraded"}) {
				t.Errorf("the driver tells %v, and is asked %v: %+v", tells, asked, got.Health)
			}
		}
		r.unmount("one")
	}
}

func TestLabels(t *testing.T) {
	r := newRig(t, all...)
	label := func(uid types.UID, label string) *Request {
		q := persistent(uid)
		q.MountOptions, q.Label = []string{"noatime"}, label
		return q
	}
	flags := func(r interface {
		GetVolumeCapability() *csi.VolumeCapability
	}) []string {
		return r.GetVolumeCapability().GetMount().GetMountFlags()
	}
	r.mount(label("one", "u:r:t:s0:c1,c2"))
	want := []string{"noatime", `context="u:r:t:s0:c1,c2"`}
	if got := flags(r.driver.Last("NodeStageVolume").(*csi.NodeStageVolumeRequest)); !slices.Equal(got, want) {
		t.Errorf("staged with %q", got)
	}
	if got := flags(r.driver.Last("NodePublishVolume").(*csi.NodePublishVolumeRequest)); !slices.Equal(got, want) {
		t.Errorf("published with %q", got)
	}
	text, err := os.ReadFile(filepath.Join(r.root, "pods/one/volumes/kubernetes.io~csi/pv/vol_data.json"))
	if err != nil || !strings.Contains(string(text), `"seLinuxMountContext":"u:r:t:s0:c1,c2"`) {
		t.Errorf("vol_data.json: %s, %v", text, err)
	}
	r.calls()
	r.again(false) // it is known still
	r.refused(label("two", "u:r:t:s0:c3"), `conflicting SELinux labels of volume pv: another pod has it mounted with "u:r:t:s0:c1,c2", this one asks for "u:r:t:s0:c3"`)
	r.mount(label("three", "u:r:t:s0:c1,c2"))
	r.want("PublishVolume")
	r.unmount("one")
	r.unmount("three")
	r.calls()
	// The one that was refused has meant to have it, so that it is staged as before.
	r.mount(label("two", "u:r:t:s0:c3"))
	r.want("UnstageVolume StageVolume PublishVolume")
	r.unmount("two")
	r.clean()
}

// TestALabelAfterAFailedUnstaging: a volume that could not be unstaged may be mounted with the
// label of before. A pod with another label gets it once it has been unstaged.
func TestALabelAfterAFailedUnstaging(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		r := newRig(t, all...)
		q := persistent("one")
		q.Label = "u:r:t:s0:c1,c2"
		r.mount(q)
		r.faults("NodeUnstageVolume fail INTERNAL")
		if err := r.Unmount(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if err := r.reap(); err == nil {
			t.Error("unstaged, though the driver failed")
		}
		if restarts {
			r.again(false)
		}
		next := persistent("two")
		next.Label = "u:r:t:s0:c3"
		for range 2 {
			r.refused(next, "UnmountDevice failed")
		}
		r.faults()
		r.calls()
		r.mount(next)
		r.want("UnstageVolume StageVolume PublishVolume")
		r.unmount("two")
		r.clean()
	}
}

func TestOneHungVolumeHoldsUpNoOther(t *testing.T) {
	r := newRig(t, all...)
	r.faults("NodeStageVolume stall")
	hung := persistent("hung")
	hung.Handle = "vol-hung"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := r.Mount(ctx, ctx, hung); done <- err }()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(time.Minute); ; <-again.C {
		calls, err := csidriver.Calls(r.data)
		if err != nil || time.Now().After(limit) {
			t.Fatalf("the driver was asked for %v, %v", calls, err)
		}
		if slices.Contains(calls, "NodeStageVolume vol-hung") {
			break
		}
	}
	r.faults()
	r.mount(persistent("one")) // of the same driver
	cancel()
	if err := <-done; err == nil {
		t.Error("a hung driver staged a volume")
	}
	r.unmount("one")
	r.unmount("hung")
	r.clean()
}

func TestDrivers(t *testing.T) {
	r := newRig(t, all...)
	list := r.drivers.List()
	if len(list) != 1 || list[0].NodeID != "node-1" || list[0].MaxVolumes != 7 || list[0].Topology["zone"] != "a" {
		t.Fatalf("%+v", list)
	}
	// Known at once in another life, and forgotten when its socket is gone.
	r.again(false)
	if len(r.drivers.List()) != 1 {
		t.Error("a driver was forgotten")
	}
	r.drivers.Scanned(nil) // its socket is there
	if len(r.drivers.List()) != 1 {
		t.Error("a driver whose socket is there was let go")
	}
	other := r.plugin()
	other.Socket = "/another.sock"
	if err := r.drivers.Register(t.Context(), other); err == nil || !strings.Contains(err.Error(), "is registered at") {
		t.Errorf("a second driver of the name: %v", err)
	}
	old := r.plugin()
	old.Versions = []string{"2.0.0"}
	if err := r.drivers.Register(t.Context(), old); err == nil {
		t.Error("a version of the future was taken")
	}
	r.faults("NodeGetInfo fail INTERNAL")
	if err := r.drivers.Register(t.Context(), r.plugin()); err == nil {
		t.Error("a driver that does not know its node was taken")
	}
	r.faults()
	r.driver.Stop()
	r.drivers.Scanned(nil)
	if len(r.drivers.List()) != 0 {
		t.Error("a driver is kept without its socket")
	}
	r.refused(persistent("one"), "driver name csi.example not found in the list of registered CSI drivers")
	r.again(false)
	if len(r.drivers.List()) != 0 {
		t.Error("a driver was remembered that had gone")
	}
}

func TestNamesThatAreNotFolders(t *testing.T) {
	r := newRig(t, all...)
	for _, name := range []string{"", ".", "..", "a/b"} {
		q := persistent("one")
		q.Name = name
		r.refused(q, "is not the name of a folder")
	}
	r.want("")
}

// TestADeadSocketOfADriver: a driver that was killed left its registration socket. Its
// successor registers at another path, and is the driver.
func TestADeadSocketOfADriver(t *testing.T) {
	r := newRig(t, all...)
	r.drivers.Unregister(r.plugin())
	dead := r.plugin()
	dead.Socket = filepath.Join(t.TempDir(), "old-reg.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := r.drivers.Register(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	if err := r.drivers.Register(t.Context(), r.plugin()); err == nil || !strings.Contains(err.Error(), "is registered at") {
		t.Errorf("while the first one lives: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.drivers.Register(t.Context(), r.plugin()); err != nil {
		t.Errorf("the successor is refused: %v", err)
	}
	r.drivers.Unregister(dead) // the socket is removed at last
	if list := r.drivers.List(); len(list) != 1 || list[0].Socket != r.config.Registration {
		t.Errorf("drivers: %+v", list)
	}
}

// TestADriverIsDialledAgainSoon: one that was away for long is called soon after it is back.
func TestADriverIsDialledAgainSoon(t *testing.T) {
	at := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: at})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	driver, err := new(Drivers).open(Info{Name: "csi.example", Endpoint: at})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(driver, nil) //nolint:errcheck // nothing to lose in it
	driver.conn.Connect()
	if err := listener.SetDeadline(time.Now().Add(8 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // with gRPC's own pauses the sixth comes after more than 12 seconds
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("attempt %d: %v", i, err)
		}
		_ = conn.Close() // it is not well yet
	}
}
