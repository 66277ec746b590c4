// SPDX-License-Identifier: Apache-2.0

package fakecri_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

func TestFail(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.Fail(fakecri.Match{Method: "RunPodSandbox"}, 2, status.Error(codes.Unavailable, "not now"))
	for range 2 {
		_, err := n.tryRun("a")
		n.code(err, codes.Unavailable)
	}
	n.run("a")
	if got := len(n.Sandboxes()); got != 1 {
		t.Errorf("%d sandboxes; a failed call must do nothing", got)
	}

	f := n.Fail(fakecri.Match{Method: "RunPodSandbox", Name: "b"}, -1, errors.New("plain"))
	for range 3 {
		_, err := n.tryRun("b")
		n.code(err, codes.Unknown)
	}
	n.run("c") // another name
	f.Undo()
	f.Undo()
	n.run("b")
}

func TestFailuresQueue(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.Fail(fakecri.Match{Method: "Version"}, 1, status.Error(codes.Internal, "first"))
	n.Fail(fakecri.Match{Method: "Version"}, 1, status.Error(codes.Aborted, "second"))
	for _, want := range []codes.Code{codes.Internal, codes.Aborted, codes.OK} {
		_, err := n.rc.Version(n.ctx, &runtimeapi.VersionRequest{})
		n.code(err, want)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb, ctr := n.pod("a", "app")
	_, other := n.pod("b", "app")
	boom := status.Error(codes.Internal, "boom")
	for _, tt := range []struct {
		name  string
		match fakecri.Match
		call  func() error
		hit   bool
	}{
		{"container ID", fakecri.Match{Method: "StopContainer", ID: ctr}, func() error { return n.stop(ctr, 0) }, true},
		{"other container ID", fakecri.Match{Method: "StopContainer", ID: ctr}, func() error { return n.stop(other, 0) }, false},
		{"other method", fakecri.Match{Method: "RemoveContainer", ID: other}, func() error { return n.stop(other, 0) }, false},
		{"pod of a container", fakecri.Match{Name: "a"}, func() error { return n.stop(ctr, 0) }, true},
		{"container name", fakecri.Match{Name: "main"}, func() error { return n.stop(ctr, 0) }, true},
		{"short ID", fakecri.Match{ID: ctr}, func() error { return n.stop(ctr[:10], 0) }, true},
		{"sandbox ID", fakecri.Match{ID: sb}, func() error {
			_, err := n.rc.PodSandboxStatus(n.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb})
			return err
		}, true},
		{"image", fakecri.Match{Name: "fake/x"}, func() error { _, err := n.pull("fake/x"); return err }, true},
		{"image of another name", fakecri.Match{Name: "fake/x"}, func() error { _, err := n.pull("fake/y"); return err }, false},
		{"everything", fakecri.Match{}, func() error {
			_, err := n.rc.Version(n.ctx, &runtimeapi.VersionRequest{})
			return err
		}, true},
	} {
		f := n.Fail(tt.match, 1, boom)
		if got := status.Code(tt.call()) == codes.Internal; got != tt.hit {
			t.Errorf("%s: hit %v, want %v", tt.name, got, tt.hit)
		}
		f.Undo()
	}
}

func TestFailStream(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.Fail(fakecri.Match{Method: "GetContainerEvents"}, 1, status.Error(codes.Unavailable, "x"))
	stream, err := n.rc.GetContainerEvents(n.ctx, &runtimeapi.GetEventsRequest{})
	n.must(err)
	_, err = stream.Recv()
	n.code(err, codes.Unavailable)
}

func TestFailAfter(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.FailAfter(fakecri.Match{Method: "RunPodSandbox"}, 1, status.Error(codes.DeadlineExceeded, "lost"))
	_, err := n.tryRun("a")
	n.code(err, codes.DeadlineExceeded)
	if n.Sandbox("a") == nil {
		t.Fatal("the work was not done")
	}
	_, err = n.tryRun("a")
	n.code(err, codes.FailedPrecondition) // the name is taken by what was done
}

func TestStall(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	s := n.Stall(fakecri.Match{Method: "RunPodSandbox"})
	done := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() { _, err := n.tryRun(name); done <- err }()
	}
	n.must(s.Wait(n.ctx, 2))
	if s.Caught() != 2 || n.InFlight() != 2 || len(n.Sandboxes()) != 0 {
		t.Errorf("caught %d, in flight %d, sandboxes %d", s.Caught(), n.InFlight(), len(n.Sandboxes()))
	}
	s.Release()
	s.Release()
	n.must(<-done)
	n.must(<-done)
	n.run("c") // the gate is gone
}

func TestStallNext(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	s := n.StallNext(fakecri.Match{Method: "RunPodSandbox"}, 1)
	done := make(chan error, 1)
	go func() { _, err := n.tryRun("a"); done <- err }()
	n.must(s.Wait(n.ctx, 1))
	n.run("b")
	s.Release()
	n.must(<-done)
	if s.Caught() != 1 || len(n.Sandboxes()) != 2 {
		t.Errorf("caught %d, sandboxes %d", s.Caught(), len(n.Sandboxes()))
	}
}

func TestStallLetsCallersLeave(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	s := n.Stall(fakecri.Match{Method: "RunPodSandbox"})
	defer s.Release()
	ctx, cancel := context.WithCancel(n.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := n.rc.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("a")})
		done <- err
	}()
	n.must(s.Wait(n.ctx, 1))
	cancel()
	n.code(<-done, codes.Canceled)
	n.must(n.WaitCall(n.ctx, fakecri.Match{Method: "RunPodSandbox"}, 1))
	if len(n.Sandboxes()) != 0 {
		t.Error("a call that left in the gate did its work")
	}
	n.code(n.Calls(fakecri.Match{Method: "RunPodSandbox"})[0].Err, codes.Canceled)
}

func TestLie(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	f := n.Lie(fakecri.Match{Method: "Version"}, func(_, resp proto.Message) {
		resp.(*runtimeapi.VersionResponse).RuntimeVersion = "9.9.9"
	})
	v, err := n.rc.Version(n.ctx, &runtimeapi.VersionRequest{})
	n.must(err)
	if v.GetRuntimeVersion() != "9.9.9" {
		t.Errorf("told %v", v)
	}
	f.Undo()
	if v, err = n.rc.Version(n.ctx, &runtimeapi.VersionRequest{}); err != nil || v.GetRuntimeVersion() == "9.9.9" {
		t.Errorf("after Undo: %v, %v", v, err)
	}

	n.Lie(fakecri.Match{Method: "GetContainerEvents"}, func(_, resp proto.Message) {
		resp.(*runtimeapi.ContainerEventResponse).ContainerId = "elsewhere"
	})
	events := n.events()
	n.run("a")
	if ev := <-events; ev.GetContainerId() != "elsewhere" {
		t.Errorf("event %v", ev)
	}
}

func TestLieContainerState(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	_, ctr := n.pod("a", "fake/exit:3")
	n.ended("a")
	f := n.LieContainerState(ctr, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if st := n.told(ctr).GetState(); st != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("status tells %v", st)
	}
	if st := n.listed()[0].GetState(); st != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("list tells %v", st)
	}
	if st := n.Container("a", "main").GetState(); st != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("the truth is %v", st)
	}
	f.Undo()
	if st := n.told(ctr).GetState(); st != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("after Undo: %v", st)
	}
}

func TestLieSandbox(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb := n.run("a")
	state, ip := n.LieSandboxState(sb, runtimeapi.PodSandboxState_SANDBOX_NOTREADY), n.HideIP(sb)
	st := n.toldSandbox(sb)
	if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
		t.Errorf("told %v", st)
	}
	list, err := n.rc.ListPodSandbox(n.ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	n.must(err)
	if len(list.GetItems()) != 0 {
		t.Errorf("listed %v", list)
	}
	if truth := n.Sandbox("a"); truth.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || truth.GetNetwork().GetIp() == "" {
		t.Errorf("the truth is %v", truth)
	}
	state.Undo()
	ip.Undo()
	if st := n.toldSandbox(sb); !proto.Equal(st, n.Sandbox("a")) {
		t.Errorf("after Undo: %v", st)
	}
}

func TestFreezeLists(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb, ctr := n.pod("a", "app")
	f := n.FreezeLists()
	n.pod("b", "app")
	_, err := n.rc.RemovePodSandbox(n.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
	n.must(err)
	if got := n.listed(); len(got) != 1 || got[0].GetId() != ctr || got[0].GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("listed %v", got)
	}
	sandboxes, err := n.rc.ListPodSandbox(n.ctx, &runtimeapi.ListPodSandboxRequest{})
	n.must(err)
	if len(sandboxes.GetItems()) != 1 || sandboxes.GetItems()[0].GetId() != sb {
		t.Errorf("listed %v", sandboxes)
	}
	_, err = n.rc.ContainerStatus(n.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: ctr})
	n.code(err, codes.NotFound) // only lists are stale
	f.Undo()
	if got := n.listed(); len(got) != 1 || got[0].GetId() == ctr {
		t.Errorf("after Undo: %v", got)
	}
}

func TestJumpClock(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.run("before")
	n.JumpClock(-time.Hour)
	n.run("after")
	before, after := n.Sandbox("before").GetCreatedAt(), n.Sandbox("after").GetCreatedAt()
	if jumped := time.Duration(before - after); jumped < 59*time.Minute || jumped > time.Hour {
		t.Errorf("jumped back by %v", jumped)
	}
}

func TestSetCondition(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	n.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady", "cni plugin not initialized")
	n.SetCondition("Other", true, "", "")
	st, err := n.rc.Status(n.ctx, &runtimeapi.StatusRequest{})
	n.must(err)
	got := map[string]*runtimeapi.RuntimeCondition{}
	for _, c := range st.GetStatus().GetConditions() {
		if got[c.GetType()] != nil {
			t.Errorf("%s twice", c.GetType())
		}
		got[c.GetType()] = c
	}
	if c := got[runtimeapi.NetworkReady]; c.GetStatus() || c.GetReason() != "NetworkPluginNotReady" || c.GetMessage() == "" {
		t.Errorf("network: %v", c)
	}
	if !got[runtimeapi.RuntimeReady].GetStatus() || !got["Other"].GetStatus() {
		t.Errorf("conditions %v", got)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{Delay: 30 * time.Millisecond})
	began := time.Now()
	n.run("a")
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// TestLinger: a creating call that its caller gave up is carried out later, and its
// name is taken from then on.
func TestLinger(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	late := n.Linger(fakecri.Match{Method: "RunPodSandbox", Name: "a"})
	ctx, cancel := context.WithCancel(n.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := n.rc.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("a")})
		ended <- err
	}()
	n.must(late.Wait(n.ctx, 1))
	cancel()
	n.code(<-ended, codes.Canceled)
	if got := len(n.Sandboxes()); got != 0 {
		t.Errorf("%d sandboxes before the release", got)
	}
	late.Release()
	n.waitFor("the sandbox", func() bool { return n.Sandbox("a") != nil })
	_, err := n.tryRun("a")
	n.code(err, codes.FailedPrecondition)
	stall := n.Stall(fakecri.Match{Method: "RunPodSandbox", Name: "b"})
	ctx, cancel = context.WithCancel(n.ctx)
	go func() {
		_, err := n.rc.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("b")})
		ended <- err
	}()
	n.must(stall.Wait(n.ctx, 1))
	cancel()
	n.code(<-ended, codes.Canceled)
	n.waitFor("the call's end", func() bool { return n.Count(fakecri.Match{Method: "RunPodSandbox", Name: "b"}) == 1 })
	stall.Release()
	if n.Sandbox("b") != nil {
		t.Error("a call that was only stalled came to something")
	}
}
