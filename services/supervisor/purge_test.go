// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestPurgeRemovesPodsAlone: podworker says which pods there are, and may have been
// taken over; a name that is no UID is nothing to remove by.
func TestPurgeRemovesPodsAlone(t *testing.T) {
	top := t.TempDir()
	p := &Plan{Run: filepath.Join(top, "run"), RootDir: filepath.Join(top, "kubelet"), PodLogsDir: filepath.Join(top, "logs"), LinksDir: filepath.Join(top, "links")}
	const api, static = "4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e", "0123456789abcdef0123456789abcdef"
	keep := []string{"kubelet/config", "kubelet/pki/x", "logs/ns_other_5be03a5a", "kubelet/pods/..x"}
	gone := []string{"kubelet/pods/" + api + "/volumes/x", "kubelet/pods/" + static, "logs/ns_a_" + api, "logs/ns_b_" + static}
	for _, dir := range append(slices.Clone(keep), gone...) {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	states := feed.NewOwner[*podworkerv1.PodState](house.PodWorkerPods.Name, "e", nil)
	for _, uid := range []string{api, "", ".", "..", "../pki", "../../kubelet", "*", "?????????", "/etc", "a/../../config", "x\n", "[0-9]*"} {
		if _, err := states.Set(t.Context(), uid, &podworkerv1.PodState{}); err != nil {
			t.Fatal(err)
		}
	}
	states.SetComplete(t.Context(), true)
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: p.Paths().Socket(house.PodWorker), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	feeds := feed.NewServer()
	feeds.Add(states)
	feedv1.RegisterFeedServiceServer(server, feeds)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx)
		close(ended)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-server.Listening():
	case err := <-ended:
		t.Fatal(err)
	}
	uids := p.PodUIDs(t.Context())
	if want := []string{static, api}; !slices.Equal(uids, want) {
		t.Errorf("pods %q, want %q", uids, want)
	}
	if err := (purge{p}).removePodFiles(uids); err != nil {
		t.Fatal(err)
	}
	for _, dir := range keep {
		if _, err := os.Stat(filepath.Join(top, dir)); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range gone {
		if _, err := os.Stat(filepath.Join(top, dir)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestPurgeAgain: a purge that the runtime does not answer leaves what the next one finds
// the pods by.
func TestPurgeAgain(t *testing.T) {
	top := t.TempDir()
	p := &Plan{
		Run: filepath.Join(top, "run"), State: filepath.Join(top, "state"), RootDir: filepath.Join(top, "kubelet"),
		PodLogsDir: filepath.Join(top, "logs"), LinksDir: filepath.Join(top, "links"), Endpoint: "unix://" + top + "/none.sock",
		CgroupRoot: "/sextant-test-none",
	}
	const uid = "4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e"
	for _, dir := range []string{p.Run, p.State, filepath.Join(p.RootDir, "pods", uid), p.PodLogsDir, p.LinksDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Write(); err != nil {
		t.Fatal(err)
	}
	if err := p.Purge(t.Context(), p.PodUIDs(t.Context())); err == nil {
		t.Fatal("the runtime is away, and there is no error")
	}
	again, err := ReadPlan(p.Run)
	if err != nil {
		t.Fatalf("the next purge finds no node: %v", err)
	}
	if left := again.PodUIDs(t.Context()); !slices.Equal(left, []string{uid}) {
		t.Errorf("the next purge finds the pods %q", left)
	}
	again.Endpoint = fakecri.Start(t, fakecri.Config{}).Endpoint()
	if err := again.Purge(t.Context(), again.PodUIDs(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(p.Run); !errors.Is(err, ErrNoNode) {
		t.Errorf("after a purge that has done all: %v", err)
	}
}

// TestPurgeOfHangingSandboxes: a call of which the runtime does not return is made again,
// and one sandbox does not wait for another.
func TestPurgeOfHangingSandboxes(t *testing.T) {
	runtime := fakecri.Start(t, fakecri.Config{})
	client := runtimeapi.NewRuntimeServiceClient(runtime.Conn(t))
	uids := []string{"4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e", "5be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e"}
	var stalls []*fakecri.Stall
	for _, uid := range uids {
		made, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid},
			Labels:   map[string]string{pod.PodUIDLabel: uid},
		}})
		if err != nil {
			t.Fatal(err)
		}
		stalls = append(stalls, runtime.Stall(fakecri.Match{Method: "StopPodSandbox", ID: made.GetPodSandboxId()}))
	}
	type answer struct {
		left []string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		left, err := removePods(t.Context(), runtime.Endpoint(), uids, removal{try: 50 * time.Millisecond, limit: 2 * time.Minute, pause: time.Millisecond})
		answers <- answer{left, err}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, s := range stalls {
		if err := s.Wait(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range stalls {
		s.Release()
	}
	if a := <-answers; a.err != nil || len(a.left) > 0 {
		t.Errorf("left %q, %v", a.left, a.err)
	}
	list, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.GetItems()) > 0 {
		t.Errorf("in the runtime: %v, %v", list.GetItems(), err)
	}
}

// TestPurgeOfASandboxWithATask: a sandbox that the runtime refuses to remove, as one of its
// containers has a task of which the CRI does not know, is removed.
func TestPurgeOfASandboxWithATask(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	client := runtimeapi.NewRuntimeServiceClient(rt.Conn(t))
	const uid = "4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e"
	sandbox, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: uid},
		Labels:   map[string]string{pod.PodUIDLabel: uid},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rt.Preload(fakecri.Image{Ref: "example/app:v1"})
	for _, name := range []string{"first", "second"} {
		c, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox.GetPodSandboxId(),
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "example/app:v1"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		rt.LeaveTask(c.GetContainerId())
	}
	left, err := removePods(t.Context(), rt.Endpoint(), []string{uid}, removal{try: 20 * time.Second, pause: time.Millisecond, limit: 20 * time.Second})
	if err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	if all := rt.Sandboxes(); len(all) > 0 {
		t.Errorf("in the runtime: %v", all)
	}
}

// TestPurgeOfFiles: of the root directory all goes that the node made, and what is the
// kubelet's or a driver's stays.
func TestPurgeOfFiles(t *testing.T) {
	top := t.TempDir()
	p := &Plan{
		RootDir: filepath.Join(top, "kubelet"), CertDir: filepath.Join(top, "kubelet/pki"), PodLogsDir: filepath.Join(top, "logs"), LinksDir: filepath.Join(top, "links"),
	}
	layout := pod.Layout{Root: p.RootDir}
	made := append(layout.ManagerState(), filepath.Join(layout.DevicePlugins(), "kubelet.sock"), filepath.Join(layout.PodResources(), "kubelet.sock"))
	write := func(files ...string) {
		t.Helper()
		for _, dir := range []string{layout.Pods(), layout.Checkpoints(), layout.PluginsRegistry(), layout.GlobalPlugins(), p.CertDir, p.PodLogsDir, p.LinksDir} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range files {
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(made...)
	if err := (purge{p}).removePrepared(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	others := []string{filepath.Join(p.RootDir, "config.yaml"), filepath.Join(layout.DevicePlugins(), "vendor.sock"), filepath.Join(layout.PluginsRegistry(), "csi.sock")}
	write(append(made, others...)...)
	if err := (purge{p}).removePrepared(); err != nil {
		t.Fatal(err)
	}
	for _, file := range others {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	for _, file := range made {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left: %s, %v", file, err)
		}
	}
}

// TestPurgeThroughLinks: the root directory and the state may be links to another disk. What
// is there goes as well.
func TestPurgeThroughLinks(t *testing.T) {
	top := mountable(t)
	const uid = "4be03a5a-6e7c-4a3c-8e21-8a2b5b2f5f4e"
	p := &Plan{
		Run: filepath.Join(top, "run"), State: filepath.Join(top, "state"), RootDir: filepath.Join(top, "kubelet"),
		PodLogsDir: filepath.Join(top, "logs"), LinksDir: filepath.Join(top, "links"), CgroupRoot: "/sextant-test-none",
		Disposable: []string{filepath.Join(top, "state")},
	}
	volume := filepath.Join(top, "disk/kubelet/pods", uid, "volumes/v")
	for _, dir := range []string{p.Run, volume, filepath.Join(top, "disk/state/config"), p.PodLogsDir, p.LinksDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"kubelet", "state"} {
		if err := os.Symlink(filepath.Join("disk", name), filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	if err := (purge{p}).run(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := (purge{p}).removePodFiles([]string{uid}); err != nil {
		t.Errorf("volumes of pods are mounted still: %v", err)
	}
	for _, gone := range []string{"disk/state", "state", "run", "disk/kubelet/pods/" + uid} {
		if _, err := os.Lstat(filepath.Join(top, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there still: %v", gone, err)
		}
	}
}

// TestPurgeOfDisks: the root directory and the state may be disks of their own. What is there
// goes, and the empty disks stay mounted: they are the administrator's.
func TestPurgeOfDisks(t *testing.T) {
	top := mountable(t)
	p := &Plan{
		RootDir: filepath.Join(top, "kubelet"), CertDir: filepath.Join(top, "kubelet/pki"), State: filepath.Join(top, "state"),
		PodLogsDir: filepath.Join(top, "logs"), LinksDir: filepath.Join(top, "links"),
	}
	disks := []string{p.RootDir, p.State, p.PodLogsDir}
	for _, dir := range disks {
		if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	for _, dir := range []string{filepath.Join(p.RootDir, "pods"), p.CertDir, filepath.Join(p.State, "config/more")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := (purge{p}).removePrepared(); err != nil {
		t.Error(err)
	}
	if err := removeLed(p.State); err != nil {
		t.Error(err)
	}
	for _, dir := range disks {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

// TestUnmountFollowsNoLink: between the mount table and the unmounting, who owns a
// folder on the way may put a link there.
func TestUnmountFollowsNoLink(t *testing.T) {
	top := mountable(t)
	other, link, last := filepath.Join(top, "other/m"), filepath.Join(top, "link"), filepath.Join(top, "last")
	if err := errors.Join(os.MkdirAll(other, 0o755), os.Symlink("other", link), os.Symlink("other/m", last), unix.Mount("tmpfs", other, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	mounted := func() bool {
		points, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(other))
		if err != nil {
			t.Fatal(err)
		}
		return len(points) > 0
	}
	for _, path := range []string{filepath.Join(link, "m"), last} {
		if err := unmount(path); err == nil || !mounted() {
			t.Errorf("%s: %v; mounted %v", path, err, mounted())
		}
	}
	if err := unmount(other); err != nil || mounted() {
		t.Errorf("%v; mounted %v", err, mounted())
	}
}
