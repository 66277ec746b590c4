// SPDX-License-Identifier: Apache-2.0

package fakecri_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/fakecri"
)

// next reads n events as "<first letter of the id's kind> TYPE".
func next(t *testing.T, events <-chan *runtimeapi.ContainerEventResponse, n int) (ids []string) {
	t.Helper()
	for range n {
		ev, ok := <-events
		if !ok {
			t.Fatal("the stream ended")
		}
		ids = append(ids, ev.GetContainerId()+" "+ev.GetContainerEventType().String())
	}
	return ids
}

func TestDropEvents(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	events := n.events()
	n.DropEvents(2)
	n.run("lost") // created, started
	kept := n.run("kept")
	if got := next(t, events, 1)[0]; got != kept+" CONTAINER_CREATED_EVENT" {
		t.Errorf("first event %s", got)
	}
}

func TestDuplicateEvents(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	events := n.events()
	n.DuplicateEvents(1)
	id := n.run("a")
	want := []string{id + " CONTAINER_CREATED_EVENT", id + " CONTAINER_CREATED_EVENT", id + " CONTAINER_STARTED_EVENT"}
	if got := next(t, events, 3); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestHoldEvents(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	events := n.events()
	f := n.HoldEvents()
	_, ctr := n.pod("a", "app")
	n.Exit(ctr, 3)
	if len(events) != 0 {
		t.Error("an event came")
	}
	f.Undo()
	var running *runtimeapi.ContainerEventResponse
	for range 5 {
		ev := <-events
		if ev.GetContainerId() == ctr && ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
			running = ev
		}
	}
	// Held events are stale: they tell what was, not what is.
	if st := running.GetContainersStatuses(); len(st) != 1 || st[0].GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("started event with %v", st)
	}
}

func TestSetEvents(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	stream, err := n.rc.GetContainerEvents(n.ctx, &runtimeapi.GetEventsRequest{})
	n.must(err)
	n.waitFor("no stream", func() bool { return n.EventStreams() == 1 })
	n.SetEvents(false)
	_, err = stream.Recv()
	n.code(err, codes.Unimplemented)
	n.run("a")
	n.SetEvents(true)
	events := n.events()
	id := n.run("b")
	if got := next(t, events, 1)[0]; got != id+" CONTAINER_CREATED_EVENT" {
		t.Errorf("got %s", got)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	_, ctr := n.pod("a", "app")
	stream, err := n.rc.GetContainerEvents(n.ctx, &runtimeapi.GetEventsRequest{})
	n.must(err)
	n.waitFor("no stream", func() bool { return n.EventStreams() == 1 })
	s := n.Stall(fakecri.Match{Method: "StopContainer"})
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop(ctr, 30) }()
	n.must(s.Wait(n.ctx, 1))

	n.Restart()
	_, err = stream.Recv()
	n.code(err, codes.Unavailable)
	n.code(<-stopped, codes.Unavailable)
	s.Release()
	_, err = n.rc.Version(n.ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	n.must(err)
	if st := n.told(ctr); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("container %v", st)
	}
}

func TestDownAndUp(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	_, ctr := n.pod("a", "app")
	n.Down()
	n.Down()
	_, err := n.rc.Version(n.ctx, &runtimeapi.VersionRequest{})
	n.code(err, codes.Unavailable)
	n.Exit(ctr, 9) // processes live and die while the runtime is away
	n.Up()
	_, err = n.rc.Version(n.ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	n.must(err)
	if st := n.told(ctr); st.GetExitCode() != 9 {
		t.Errorf("container %v", st)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	n := start(t, fakecri.Config{})
	sb, ctr := n.pod("web", "app")
	n.must(n.stop(ctr, 5))
	_, err := n.tryRun("web")
	n.code(err, codes.FailedPrecondition)

	var got []string
	for _, c := range n.Calls(fakecri.Match{}) {
		got = append(got, c.Method+" "+c.Name+" "+c.Pod)
		if c.At.IsZero() || c.Ended.Before(c.At) || c.Request == nil || (c.Response == nil) != (c.Err != nil) {
			t.Errorf("call %+v", c)
		}
	}
	want := []string{"RunPodSandbox web web", "CreateContainer main web", "StartContainer main web", "StopContainer main web", "RunPodSandbox web web"}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q", got)
	}
	if n.Calls(fakecri.Match{Method: "RunPodSandbox"})[0].ID != sb || n.Calls(fakecri.Match{Method: "CreateContainer"})[0].ID != ctr {
		t.Error("a call does not know what it made")
	}
	if q := n.Calls(fakecri.Match{ID: ctr, Method: "StopContainer"})[0].Request.(*runtimeapi.StopContainerRequest); q.GetTimeout() != 5 {
		t.Errorf("request %v", q)
	}
	if n.Count(fakecri.Match{Name: "web"}) != 5 {
		t.Errorf("%d calls of the pod", n.Count(fakecri.Match{Name: "web"}))
	}
	n.ResetCalls()
	if len(n.Calls(fakecri.Match{})) != 0 {
		t.Error("calls remain")
	}
	go n.tryRun("later")
	n.must(n.WaitCall(n.ctx, fakecri.Match{Name: "later"}, 1))
}

func TestRunLeavesNoSocket(t *testing.T) {
	t.Parallel()
	var path string
	t.Run("inner", func(t *testing.T) {
		rt := fakecri.Start(t, fakecri.Config{})
		path = rt.Socket()
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		if err := rt.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
	})
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}
