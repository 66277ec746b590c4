// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/store"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/netdisk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
	plugincsi "github.com/sextant-node/sextant/services/volume/internal/plugin/csi"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/disk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/emptydir"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/files"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/hostpath"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/image"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/local"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/nfs"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/csidriver"
	"github.com/sextant-node/sextant/test/volumetest"
)

// node is a machine on which processes with all plugins come and go, with its disk, its
// mounts, root's tools and a CSI driver.
type node struct {
	*testing.T
	root, data string // data is what volumes come from
	sockets    string
	steps      steps
	hang       atomic.Bool     // tools do not answer
	waits      chan struct{}   // a call of the tools that hangs has begun
	registry   plugin.Registry // of the process that runs
	journal    *store.Store
	drivers    *csi.Drivers
	toolsMu    sync.Mutex
}

// steps kills a process at its next call to the world around it but some.
type steps struct{ left atomic.Int64 }

// killed is what a process ends with.
type killed struct{}

func (s *steps) step() {
	if s.left.Add(-1) == 0 {
		panic(killed{})
	}
}

func newNode(t *testing.T) *node {
	t.Helper()
	sockets, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	n := &node{T: t, root: volumetest.Root(t), data: t.TempDir(), sockets: sockets, waits: make(chan struct{}, 1)}
	n.start()
	t.Cleanup(func() { _ = n.journal.Close() })
	n.driver("csi.example", csispec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	n.driver("inline.example")
	return n
}

// driver starts a CSI driver and registers it.
func (n *node) driver(name string, capabilities ...csispec.NodeServiceCapability_RPC_Type) {
	n.Helper()
	endpoint, registration := filepath.Join(n.sockets, name), filepath.Join(n.sockets, name+"-reg")
	driver, err := csidriver.Start(csidriver.Config{
		Name: name, NodeID: "n", Root: n.TempDir(), Capabilities: capabilities, Endpoint: endpoint, Registration: registration,
	})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(driver.Stop)
	if err := n.drivers.Register(n.Context(), pluginregistration.Plugin{Name: name, Endpoint: endpoint, Socket: registration, Versions: []string{"1.0.0"}}); err != nil {
		n.Fatal(err)
	}
}

// start begins a process on what the one before left.
func (n *node) start() {
	n.Helper()
	var err error
	n.steps.left.Store(0)
	if n.journal != nil {
		err = n.journal.Close()
	}
	log := slog.New(slog.DiscardHandler)
	fail := func(next error) { err = errors.Join(err, next) }
	var next error
	n.journal, _, next = store.Open(store.Config{Path: filepath.Join(n.sockets, "state.db"), Schema: 1, Log: log})
	fail(next)
	disks, next := netdisk.New(n.journal, tools{node: n}, "boot")
	fail(next)
	n.drivers, next = csi.NewDrivers(n.journal, func(string, string, string, time.Duration) { n.steps.step() }, func(string) {}, log)
	fail(next)
	h := host{setup.NewHost(n.root), &n.steps}
	manager, next := csi.New(csi.Config{Layout: pod.Layout{Root: n.root}, Drivers: n.drivers, Store: n.journal, Boot: "boot", Log: log,
		Give: func(path string, r *csi.Request) error { _, err := h.Give(path, int(*r.FSGroup), false); return err }})
	fail(next)
	if err != nil {
		n.Fatal(err)
	}
	api, locals := files.Plugin{Host: h, Now: time.Now}, local.Plugin{Host: h, Log: log}
	n.registry = plugin.Registry{
		volumetype.EmptyDir: emptydir.Plugin{Host: h}, volumetype.HostPath: hostpath.Plugin{Host: h}, volumetype.Image: image.Plugin{},
		volumetype.ConfigMap: api, volumetype.Secret: api, volumetype.DownwardAPI: api, volumetype.Projected: api,
		volumetype.Local: locals, volumetype.NFS: nfs.Plugin{Host: h, Tools: tools{node: n}},
		volumetype.ISCSI: disk.Plugin{Type: volumetype.ISCSI, Host: h, Local: locals, Disks: disks},
		volumetype.FC:    disk.Plugin{Type: volumetype.FC, Host: h, Local: locals, Disks: disks},
		volumetype.CSI:   plugincsi.Plugin{Host: h, Manager: manager, Now: time.Now},
	}
}

// dies reports whether f was killed at its k-th step, 1 being the first.
func (n *node) dies(k int64, f func() error) (was bool) {
	n.Helper()
	defer n.steps.left.Store(0)
	defer func() {
		if e := recover(); e != nil {
			if _, was = e.(killed); !was {
				panic(e)
			}
		}
	}()
	n.steps.left.Store(k)
	if err := f(); err != nil {
		n.Errorf("before step %d: %v", k, err)
	}
	return false
}

func (n *node) make(r *plugin.Request) (plugin.Made, error) {
	of, err := n.registry.For(r)
	if err != nil {
		return plugin.Made{}, err
	}
	return of.Make(n.Context(), r)
}

func (n *node) made(r *plugin.Request) plugin.Made {
	n.Helper()
	m, err := n.make(r)
	if err != nil {
		n.Fatalf("%s: %v", r.Pod.UID, err)
	}
	return m
}

// remove is what the service does with a pod that leaves, and what it leaves.
func (n *node) remove(uid types.UID) error {
	h := host{setup.NewHost(n.root), &n.steps}
	if err := n.registry.Unpublish(n.Context(), uid); err != nil {
		return err
	}
	if err := h.Remove(uid); err != nil {
		return err
	}
	if err := n.registry.Release(n.Context(), uid); err != nil {
		return err
	}
	var failed []error
	for _, reap := range n.registry.Left() {
		failed = append(failed, reap(n.Context()))
	}
	return errors.Join(failed...)
}

// left lists what a pod has on the node: mounts, and what is in its folder.
func (n *node) left(uid types.UID) []string {
	n.Helper()
	all := slices.Collect(maps.Keys(n.mounts(uid)))
	entries, err := os.ReadDir(filepath.Join(n.root, "pods", string(uid)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// mounts of a pod: which mount is at each point.
func (n *node) mounts(uid types.UID) map[string]int {
	n.Helper()
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(n.root, "pods", string(uid))))
	if err != nil {
		n.Fatal(err)
	}
	all := map[string]int{}
	for _, m := range table {
		all[m.Mountpoint] = m.ID
	}
	return all
}

// host is the disk; each call begins and ends with a step.
type host struct {
	*setup.Host
	steps *steps
}

func (h host) around() func() { h.steps.step(); return h.steps.step }

func (h host) EmptyDir(p *v1.Pod, v *v1.Volume, memory int64) (string, error) {
	after := h.around()
	path, err := h.Host.EmptyDir(p, v, memory)
	after()
	return path, err
}

func (h host) HostPath(v *v1.Volume) (string, error) {
	after := h.around()
	path, err := h.Host.HostPath(v)
	after()
	return path, err
}

func (h host) Files(p *v1.Pod, v *v1.Volume, set *content.Set, now time.Time) (string, error) {
	after := h.around()
	path, err := h.Host.Files(p, v, set, now)
	after()
	return path, err
}

func (h host) Local(uid types.UID, l setup.Local) (setup.Bound, error) {
	after := h.around()
	b, err := h.Host.Local(uid, l)
	after()
	return b, err
}

func (h host) Point(uid types.UID, plugin, volume, name string) (string, bool, error) {
	after := h.around()
	path, there, err := h.Host.Point(uid, plugin, volume, name)
	after()
	return path, there, err
}

func (h host) Release(uid types.UID) error {
	after := h.around()
	err := h.Host.Release(uid)
	after()
	return err
}

func (h host) Remove(uid types.UID) error {
	after := h.around()
	err := h.Host.Remove(uid)
	after()
	return err
}

// tools is root's, in this process: an export and a disk are folders that are bound.
type tools struct {
	supervisorv1.ToolsServiceClient
	node *node
}

// begin is a step, and hangs until the caller gives up if tools are to hang.
func (k tools) begin(ctx context.Context) error {
	k.node.steps.step()
	if !k.node.hang.Load() {
		return nil
	}
	k.node.waits <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (k tools) MountNFS(ctx context.Context, r *supervisorv1.MountNFSRequest, _ ...grpc.CallOption) (*supervisorv1.MountNFSResponse, error) {
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	err := k.bind(pod.Layout{Root: k.node.root}.Volume(types.UID(r.GetPodUid()), volumetype.NFS, r.GetVolume()))
	k.node.steps.step()
	return &supervisorv1.MountNFSResponse{}, err
}

func (k tools) StageDisk(ctx context.Context, r *supervisorv1.StageDiskRequest, _ ...grpc.CallOption) (*supervisorv1.StageDiskResponse, error) {
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	path := k.path(r.GetDisk())
	err := errors.Join(os.MkdirAll(path, 0o755), k.bind(path))
	k.node.steps.step()
	return &supervisorv1.StageDiskResponse{Path: path}, err
}

func (k tools) UnstageDisk(ctx context.Context, r *supervisorv1.UnstageDiskRequest, _ ...grpc.CallOption) (*supervisorv1.UnstageDiskResponse, error) {
	if err := k.begin(ctx); err != nil {
		return nil, err
	}
	err := unix.Unmount(k.path(r.GetDisk()), 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	k.node.steps.step()
	return &supervisorv1.UnstageDiskResponse{}, err
}

func (k tools) path(d *supervisorv1.NetworkDisk) string {
	name := d.GetIscsi().GetTarget() + strings.Join(d.GetFc().GetWwids(), "")
	return filepath.Join(k.node.root, "plugins", name)
}

func (k tools) bind(path string) error {
	k.node.toolsMu.Lock()
	defer k.node.toolsMu.Unlock()
	if is, err := mountinfo.Mounted(path); err != nil || is {
		return err
	}
	return unix.Mount(k.node.data, path, "", unix.MS_BIND, "")
}

// objects are the API's: a ConfigMap and a Secret of any name, and a driver that does not
// attach. Other methods are not called.
type objects struct {
	plugin.Objects
	step func()
}

func (o objects) ConfigMap(_, name string) (*v1.ConfigMap, error) {
	o.step()
	return &v1.ConfigMap{Data: map[string]string{"file": name}}, nil
}

func (o objects) Secret(_, name string) (*v1.Secret, error) {
	o.step()
	return &v1.Secret{Data: map[string][]byte{"file": []byte(name)}}, nil
}

func (o objects) Driver(string) (*storagev1.CSIDriver, error) {
	o.step()
	no := false
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
		storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}}, nil
}

func (objects) NodeName() (string, error)                    { return "n", nil }
func (objects) Gate(string) (bool, error)                    { return false, nil }
func (objects) FileLabel(*v1.SELinuxOptions) (string, error) { return "", nil }
func (objects) Allocatable() (v1.ResourceList, error)        { return v1.ResourceList{}, nil }
func (objects) AllocatableOnce() (v1.ResourceList, error)    { return v1.ResourceList{}, nil }
func (objects) Standalone() (bool, error)                    { return true, nil }

// reports counts what a plugin reports as steps.
type reports struct{ step func() }

func (r reports) Attaches(context.Context, string)                    { r.step() }
func (r reports) Changed(context.Context)                             { r.step() }
func (r reports) Expansion(context.Context, *volumev1.ClaimExpansion) { r.step() }
func (r reports) Event(_ context.Context, _ *eventv1.ObjectReference, _, reason, message string) {
	panic(fmt.Sprint(reason, " ", message)) // nothing here is worth one
}
