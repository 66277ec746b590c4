// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// node is a pleg over a fake runtime, seen through its socket.
type node struct {
	t       *testing.T
	ctx     context.Context
	runtime *fakecri.Runtime
	cri     runtimeapi.RuntimeServiceClient
	pods    *feed.Replica[*plegv1.PodRecord]
	state   *feed.Replica[*plegv1.RuntimeState]
	client  plegv1.PlegServiceClient
	changed chan struct{}
	kit     *service.Kit
	house   *standin.House
}

func start(t *testing.T, flavor fakecri.Flavor, cfg pleg.Config) *node {
	t.Helper()
	return startOver(t, fakecri.Start(t, fakecri.Config{Flavor: flavor, Images: []fakecri.Image{{Ref: "fake/sleep"}}}), cfg)
}

// observe is a node without a pleg.
func observe(t *testing.T, runtime *fakecri.Runtime) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return &node{
		t: t, ctx: ctx, runtime: runtime, cri: runtimeapi.NewRuntimeServiceClient(runtime.Conn(t)), changed: make(chan struct{}, 1),
	}
}

// startOver starts a pleg over a runtime.
func startOver(t *testing.T, runtime *fakecri.Runtime, cfg pleg.Config) *node {
	t.Helper()
	return startThrough(t, runtime, runtime.Conn(t), cfg)
}

// startThrough starts a pleg over a connection to a runtime.
func startThrough(t *testing.T, runtime *fakecri.Runtime, conn grpc.ClientConnInterface, cfg pleg.Config) *node {
	t.Helper()
	n, h := observe(t, runtime), standin.NewQuiet(t)
	kit := h.Kit(house.Pleg)
	if _, err := pleg.New(cfg, pleg.Deps{Kit: kit, Runtime: conn}); err != nil {
		t.Fatal(err)
	}
	n.kit, n.house = kit, h
	h.Start(kit)
	own := h.Dial(house.Pleg)
	n.client = plegv1.NewPlegServiceClient(own)
	remote := feed.Remote{Client: feedv1.NewFeedServiceClient(own)}
	n.pods = feed.NewReplica(feed.ReplicaConfig{Feed: house.PlegPods.Name, Puller: remote, Poll: 10 * time.Millisecond}, feed.Decoder(feed.Whole[*plegv1.PodRecord]))
	n.state = feed.NewReplica(feed.ReplicaConfig{Feed: house.PlegRuntime.Name, Puller: remote, Poll: 10 * time.Millisecond}, feed.Decoder(feed.Whole[*plegv1.RuntimeState]))
	tell := func([]string) {
		select {
		case n.changed <- struct{}{}:
		default:
		}
	}
	n.pods.Watch(tell)
	n.state.Watch(tell)
	h.Go("pods", n.pods.Run)
	h.Go("runtime", n.state.Run)
	return n
}

func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for !ok() {
		select {
		case <-n.ctx.Done():
			n.t.Fatalf("never: %s", what)
		case <-n.changed:
		}
	}
}

// sandbox makes a sandbox in the runtime.
func (n *node) sandbox(uid string) (string, *runtimeapi.PodSandboxConfig) {
	n.t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
		Labels:       map[string]string{pod.PodUIDLabel: uid, pod.PodNameLabel: uid, pod.PodNamespaceLabel: "default"},
		LogDirectory: n.t.TempDir(),
	}
	sandbox, err := n.cri.RunPodSandbox(n.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.t.Fatal(err)
	}
	return sandbox.GetPodSandboxId(), config
}

// startIn starts a container in a sandbox.
func (n *node) startIn(sandbox string, config *runtimeapi.PodSandboxConfig, name string) string {
	n.t.Helper()
	container, err := n.cri.CreateContainer(n.ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "fake/sleep"},
			Labels: config.GetLabels(), LogPath: name + ".log",
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.cri.StartContainer(n.ctx, &runtimeapi.StartContainerRequest{ContainerId: container.GetContainerId()}); err != nil {
		n.t.Fatal(err)
	}
	return container.GetContainerId()
}

// run makes a pod with one container in the runtime and returns its container.
func (n *node) run(uid string) string {
	n.t.Helper()
	sandbox, config := n.sandbox(uid)
	return n.startIn(sandbox, config, "c")
}

func (n *node) container(uid string) *runtimeapi.ContainerStatus {
	r, ok := n.pods.Get(uid)
	if !ok || len(r.GetContainers()) == 0 {
		return nil
	}
	st := &runtimeapi.ContainerStatus{}
	if err := proto.Unmarshal(r.GetContainers()[0], st); err != nil {
		n.t.Fatal(err)
	}
	return st
}

// eventsFlow waits until the runtime has a stream to send events on.
func (n *node) eventsFlow() {
	n.t.Helper()
	if err := n.runtime.WaitFor(n.ctx, func() bool { return n.runtime.EventStreams() == 1 }); err != nil {
		n.t.Fatal(err)
	}
}

const hour = time.Hour // a relist that does not come by itself

func TestExitIsSeenByEventAlone(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	id := n.run("a")
	n.eventually("running", func() bool {
		return n.container("a").GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	n.runtime.Exit(id, 3)
	n.eventually("exited", func() bool { return n.container("a").GetExitCode() == 3 })
}

// TestOOMIsHeardOfAfterTheExit: the runtime tells of the exit, and says OOMKilled later, without
// an event. What has failed is read a second time for that, and not again.
func TestOOMIsHeardOfAfterTheExit(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour, SecondLook: 10 * time.Millisecond})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	var exits atomic.Int32 // answers that report the container as exited
	early := n.runtime.Lie(fakecri.Match{Method: "ContainerStatus"}, func(_, resp proto.Message) {
		st := resp.(*runtimeapi.ContainerStatusResponse).GetStatus()
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && exits.Add(1) == 1 {
			st.Reason = "Error"
		}
	})
	defer early.Undo()
	for pod, oom := range map[string]bool{"killed": true, "fails": false} {
		exits.Store(0)
		id := n.run(pod)
		n.eventually("running", func() bool {
			return n.container(pod).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		})
		want := "Error"
		if oom {
			want = "OOMKilled"
			n.runtime.OOMKill(id)
		} else {
			n.runtime.Exit(id, 3)
		}
		n.house.Eventually("both looks", func() bool { return exits.Load() >= 2 && n.container(pod).GetReason() == want })
		n.house.Eventually("no more looks", func() bool {
			before := exits.Load()
			_, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: pod})
			return err == nil && exits.Load() == before
		})
	}
}

// TestAStartIsLeftToWhoAsks: of what starts, the event is not the first to tell,
// for podworker asks by itself; what ends is seen at once.
func TestAStartIsLeftToWhoAsks(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour, Settle: hour})
	n.eventsFlow()
	// One as each start has it, one as the runtime answers for the first time.
	n.house.Eventually("the relists of the start are over", func() bool {
		return measure.Value(t, n.kit, "kubelet_pleg_relist_duration_seconds") == 2
	})
	n.run("a")
	n.runtime.Exit(n.run("b"), 3)
	n.eventually("exited", func() bool { return n.container("b").GetExitCode() == 3 })
	if r, ok := n.pods.Get("a"); ok {
		t.Errorf("read for nobody: %v", r)
	}
	if _, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: "a"}); err != nil {
		t.Fatal(err)
	}
	n.eventually("asked for", func() bool { return n.container("a") != nil })
}

func TestExitIsSeenByRelistingAlone(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: 20 * time.Millisecond})
	id := n.run("a")
	n.eventually("running", func() bool {
		return n.container("a").GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	n.runtime.Exit(id, 3)
	n.eventually("exited", func() bool { return n.container("a").GetExitCode() == 3 })
	for _, s := range n.runtime.Sandboxes() {
		n.runtime.Forget(s.GetId())
	}
	n.runtime.Forget(id)
	n.eventually("gone", func() bool { _, ok := n.pods.Get("a"); return !ok && n.pods.Complete() })
}

func TestRefreshReadsTheTruth(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: hour})
	n.eventually("complete", n.pods.Complete)
	n.run("a")
	resp, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.GetRecord().GetSandboxes()) != 1 || len(resp.GetRecord().GetContainers()) != 1 {
		t.Fatalf("record %v, want one sandbox and one container", resp.GetRecord())
	}
	n.eventually("mirror there", func() bool { return n.pods.At(feed.RevisionFrom(resp.GetRevision())) })
	if n.container("a") == nil {
		t.Fatal("the revision Refresh answered does not hold the record")
	}
	if _, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("refresh without uid: %v, want invalid", err)
	}
}

func TestAStuckPodHarmsOnlyItself(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: 20 * time.Millisecond, Call: 200 * time.Millisecond})
	stuck := n.run("stuck")
	fine := n.run("fine")
	n.eventually("both", func() bool { return n.container("stuck") != nil && n.container("fine") != nil })
	stall := n.runtime.Stall(fakecri.Match{Method: "ContainerStatus", ID: stuck})
	n.runtime.Exit(stuck, 1)
	n.runtime.Exit(fine, 2)
	n.eventually("the other's exit", func() bool { return n.container("fine").GetExitCode() == 2 })
	n.eventually("the error in the record", func() bool {
		r, _ := n.pods.Get("stuck")
		return r.GetError() != "" && r.GetErrorSince() != nil
	})
	if n.container("stuck").GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Error("the last reading did not stay")
	}
	stall.Release()
	n.eventually("recovery", func() bool {
		r, _ := n.pods.Get("stuck")
		return r.GetError() == "" && n.container("stuck").GetExitCode() == 1
	})
}

// TestPodWorkerAwayIsNoErrorOfAPod: through its broker all calls go, and it is killed and comes back.
func TestPodWorkerAwayIsNoErrorOfAPod(t *testing.T) {
	broker := fakecri.Start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "fake/sleep"}}})
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: broker.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n := startThrough(t, broker, conn, pleg.Config{Relist: hour})
	n.run("a")
	refresh := func(uid string) error {
		_, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: uid})
		return err
	}
	if err := refresh("a"); err != nil {
		t.Fatal(err)
	}
	broker.Down()
	for _, uid := range []string{"a", "never-read"} {
		if err := refresh(uid); !rpc.Is(err, rpc.Unavailable) {
			t.Errorf("reading of %s: %v, want unavailable", uid, err)
		}
	}
	n.eventually("the later of the two is told", func() bool { r, _ := n.pods.Get("never-read"); return r.GetError() != "" })
	if r, _ := n.pods.Get("a"); r.GetError() != "" || len(r.GetContainers()) != 1 {
		t.Errorf("the record is %v", r)
	}
	broker.Up()
	n.eventually("it is read again", func() bool { return refresh("a") == nil })
	undo := broker.Fail(fakecri.Match{Method: "PodSandboxStatus"}, -1, status.Error(codes.Unavailable, "the runtime is away"))
	defer undo.Undo()
	if err := refresh("a"); err == nil {
		t.Error("the runtime fails, and the reading does not")
	}
	n.eventually("what the runtime answers is told", func() bool { r, _ := n.pods.Get("a"); return r.GetError() != "" })
}

func TestRuntimeAwayLosesNothing(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: 20 * time.Millisecond, Status: 20 * time.Millisecond})
	n.run("a")
	n.eventually("seen", func() bool { return n.container("a") != nil })
	undo := n.runtime.Fail(fakecri.Match{}, -1, status.Error(codes.Unavailable, "runtime restarts"))
	n.eventually("not responding", func() bool {
		st, ok := n.state.Get("runtime")
		return ok && !st.GetResponding() && st.GetError() != ""
	})
	if n.container("a") == nil {
		t.Error("a runtime that does not answer emptied the record")
	}
	undo.Undo()
	n.eventually("responding", func() bool {
		st, ok := n.state.Get("runtime")
		return ok && st.GetResponding() && st.GetName() != ""
	})
}
