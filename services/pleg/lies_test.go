// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

func (n *node) exited(uid string, code int32) func() bool {
	return func() bool {
		c := n.container(uid)
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && c.GetExitCode() == code
	}
}

func (n *node) running(uid string) func() bool {
	return func() bool { return n.container(uid).GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING }
}

func (n *node) refresh(uid string) *plegv1.PodRecord {
	n.t.Helper()
	resp, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: uid})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetRecord()
}

// TestLostEventsAreRepairedByRelisting: the events of an exit are lost; a relist
// shows it.
func TestLostEventsAreRepairedByRelisting(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: 20 * time.Millisecond, RelistWithEvents: 20 * time.Millisecond, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	n.runtime.DropEvents(1000)
	id := n.run("a")
	n.eventually("running", n.running("a"))
	n.runtime.Exit(id, 7)
	n.eventually("the exit", n.exited("a", 7))
}

func TestDoubledEventsChangeNothing(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	n.runtime.DuplicateEvents(1000)
	id := n.run("a")
	n.eventually("running", n.running("a"))
	n.runtime.Exit(id, 7)
	n.eventually("the exit", n.exited("a", 7))
	if first, second := n.refresh("a"), n.refresh("a"); !proto.Equal(first, second) || len(first.GetContainers()) != 1 || len(first.GetSandboxes()) != 1 {
		t.Errorf("record %v, then %v", first, second)
	}
}

// TestABurstIsAnswered: calls while a pod is being read are all answered, by a reading
// that shows what happened since. How many readings that takes is the subject of
// TestABurstIsOneMoreReading.
func TestABurstIsAnswered(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	id := n.run("a")
	n.refresh("a")
	n.runtime.ResetCalls()
	match := fakecri.Match{Method: "ContainerStatus", ID: id}
	stall := n.runtime.Stall(match)
	const asked = 20
	answers := make(chan error, asked)
	ask := func() {
		_, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: "a"})
		answers <- err
	}
	go ask()
	if err := stall.Wait(n.ctx, 1); err != nil {
		t.Fatal(err)
	}
	n.runtime.Exit(id, 9)
	for range asked - 1 {
		go ask()
	}
	stall.Release()
	for range asked {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	n.eventually("the exit", n.exited("a", 9))
}

// TestAStaleListIsCorrected: the runtime lists what was (containerd does, for a
// moment); what the status says counts, and when the list is true again so is
// the record.
func TestAStaleListIsCorrected(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: 20 * time.Millisecond, Status: hour})
	id := n.run("a")
	n.eventually("running", n.running("a"))
	freeze := n.runtime.FreezeLists()
	n.runtime.Exit(id, 5)
	n.run("b")
	n.refresh("a") // listed as running, but its status is true
	n.eventually("the exit", n.exited("a", 5))
	freeze.Undo()
	n.eventually("the new pod", n.running("b"))
	n.eventually("still the exit", n.exited("a", 5))
}

// TestAVanishedPodLeaves, though no event said so.
func TestAVanishedPodLeaves(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	id := n.run("a")
	n.eventually("running", n.running("a"))
	for _, s := range n.runtime.Sandboxes() {
		n.runtime.Forget(s.GetId())
	}
	n.runtime.Forget(id)
	if record := n.refresh("a"); record != nil {
		t.Errorf("record %v of nothing", record)
	}
	n.eventually("gone", func() bool { _, ok := n.pods.Get("a"); return !ok && n.pods.Complete() })
}

// TestAPodThatCannotBeReadIsNotAbsent: from the start on, the runtime hangs on
// one pod. The feed must not say that there is no such pod, nor wait for it.
func TestAPodThatCannotBeReadIsNotAbsent(t *testing.T) {
	runtime := fakecri.Start(t, fakecri.Config{Flavor: fakecri.Containerd16, Images: []fakecri.Image{{Ref: "fake/sleep"}}})
	outside := observe(t, runtime)
	stuck := outside.run("stuck")
	outside.run("fine")
	fault := runtime.Fail(fakecri.Match{Method: "ContainerStatus", ID: stuck}, -1, status.Error(codes.DeadlineExceeded, "shim does not answer"))
	n := startOver(t, runtime, pleg.Config{Relist: 20 * time.Millisecond, Status: hour})
	n.eventually("complete", n.pods.Complete)
	r, ok := n.pods.Get("stuck")
	if !ok || r.GetError() == "" || r.GetErrorSince() == nil || len(r.GetContainers()) > 0 {
		t.Errorf("record of the stuck pod: %v", r)
	}
	if !n.running("fine")() {
		t.Error("the other pod was not read")
	}
	fault.Undo()
	n.eventually("read", func() bool { r, _ := n.pods.Get("stuck"); return n.running("stuck")() && r.GetError() == "" })
}

// TestAFailedReadingIsRepeatedWhileEventsFlow: the next relist of the slow kind
// would be an hour away.
func TestAFailedReadingIsRepeatedWhileEventsFlow(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: 20 * time.Millisecond, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	id := n.run("a")
	n.eventually("running", n.running("a"))
	n.runtime.Fail(fakecri.Match{Method: "ContainerStatus", ID: id}, 3, status.Error(codes.Unavailable, "not now"))
	n.runtime.Exit(id, 4)
	n.eventually("the exit", n.exited("a", 4))
}

// TestABrokenEventStreamIsOpenedAgain, and what happened meanwhile is seen.
func TestABrokenEventStreamIsOpenedAgain(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: 20 * time.Millisecond, RelistWithEvents: hour, Status: 20 * time.Millisecond})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	id := n.run("a")
	n.eventually("events are believed", func() bool { st, _ := n.state.Get("runtime"); return st.GetEvents() })
	n.runtime.Down()
	n.runtime.Exit(id, 6)
	n.runtime.Up()
	n.eventually("the exit", n.exited("a", 6))
	n.eventsFlow()
	id = n.run("b")
	n.eventually("running", n.running("b"))
	n.runtime.Exit(id, 8)
	n.eventually("the exit after", n.exited("b", 8))
}

// TestEachEventIsAnswered: two containers start, and one reading is to answer both events.
// That it asks about the one alone must not let the other pass.
func TestEachEventIsAnswered(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour, Settle: 200 * time.Millisecond})
	n.relisted()
	n.eventsFlow()
	sandbox, config := n.sandbox("a")
	n.eventually("the sandbox", func() bool { r, _ := n.pods.Get("a"); return len(r.GetSandboxes()) == 1 })
	for _, name := range []string{"one", "two", "three"} {
		n.startIn(sandbox, config, name)
	}
	n.eventually("all of them", func() bool { r, _ := n.pods.Get("a"); return len(r.GetContainers()) == 3 })
}

// TestAReadingThatFailsForACallerIsRepeated, as one that an event causes is: the next relist
// would be an hour away.
func TestAReadingThatFailsForACallerIsRepeated(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour, Settle: hour})
	n.relisted()
	n.eventsFlow()
	id := n.run("a")
	n.refresh("a")
	n.eventually("running", n.running("a"))
	n.runtime.ResetCalls()
	n.runtime.Fail(fakecri.Match{Method: "ContainerStatus", ID: id}, 1, status.Error(codes.Unavailable, "not now"))
	if _, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: "a", Inventory: &plegv1.Inventory{}}); err == nil {
		t.Fatal("the reading did not fail")
	}
	if err := n.runtime.WaitCall(n.ctx, fakecri.Match{Method: "ContainerStatus", ID: id}, 2); err != nil {
		t.Fatal(err)
	}
	n.eventually("read again", func() bool { r, _ := n.pods.Get("a"); return n.running("a")() && r.GetError() == "" })
}

// TestAListBeforeTheEventsIsNotTheLast: what happened between the list and the stream of
// events that has opened since is seen, though events flow when the relist ends.
func TestAListBeforeTheEventsIsNotTheLast(t *testing.T) {
	runtime := fakecri.Start(t, fakecri.Config{Flavor: fakecri.Containerd2, Images: []fakecri.Image{{Ref: "fake/sleep"}}})
	stream := runtime.Fail(fakecri.Match{Method: "GetContainerEvents"}, -1, status.Error(codes.Unavailable, "not now"))
	lists := runtime.FreezeLists()
	stall := runtime.Stall(fakecri.Match{Method: "ListContainers"})
	// A runtime that responds for the first time has a relist of its own.
	runtime.Fail(fakecri.Match{Method: "Status"}, -1, status.Error(codes.Unavailable, "not now"))
	n := startOver(t, runtime, pleg.Config{Relist: 20 * time.Millisecond, RelistWithEvents: hour, Status: hour})
	if err := stall.Wait(n.ctx, 1); err != nil {
		t.Fatal(err)
	}
	n.run("between")
	stream.Undo()
	n.eventsFlow()
	n.run("after")
	n.house.Eventually("events flow", func() bool {
		return measure.Value(t, n.kit, "kubelet_evented_pleg_connection_success_count") == 1
	})
	next := runtime.Stall(fakecri.Match{Method: "ListPodSandbox"})
	stall.Release()
	n.eventually("complete", n.pods.Complete)
	lists.Undo()
	next.Release()
	n.eventually("what happened between", n.running("between"))
}

func TestTwoHundredPods(t *testing.T) {
	const pods = 200
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.eventually("complete", n.pods.Complete)
	n.eventsFlow()
	ids := make([]string, pods)
	for i := range pods {
		ids[i] = n.run(fmt.Sprintf("p%d", i))
	}
	all := func(ok func(uid string) bool) func() bool {
		return func() bool {
			for i := range pods {
				if !ok(fmt.Sprintf("p%d", i)) {
					return false
				}
			}
			return true
		}
	}
	n.eventually("all running", all(func(uid string) bool { return n.running(uid)() }))
	for _, id := range ids {
		n.runtime.Exit(id, 2)
	}
	n.eventually("all exited", all(func(uid string) bool { return n.exited(uid, 2)() }))
}
