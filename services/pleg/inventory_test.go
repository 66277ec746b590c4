// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"strconv"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/pleg"
	"github.com/sextant-node/sextant/test/fakecri"
)

// relisted waits until no relist is due for an hour: one is made at the start, and one when
// the runtime has answered for the first time.
func (n *node) relisted() {
	n.t.Helper()
	n.eventually("complete", n.pods.Complete)
	n.eventually("the runtime responds", func() bool { st, _ := n.state.Get("runtime"); return st.GetResponding() })
	if err := n.runtime.WaitCall(n.ctx, fakecri.Match{Method: "ListContainers"}, 2); err != nil {
		n.t.Fatal(err)
	}
}

// known has pleg read a pod of which its caller knows everything.
func (n *node) known(uid string, all *plegv1.Inventory) *plegv1.PodRecord {
	n.t.Helper()
	resp, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: uid, Inventory: all})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.GetRecord()
}

// asked is how often the runtime was asked about one thing, and how often to list.
func (n *node) asked(id string) (about, lists int) {
	for _, c := range n.runtime.Calls(fakecri.Match{}) {
		switch {
		case c.Method == "ListPodSandbox", c.Method == "ListContainers":
			lists++
		case c.ID == id:
			about++
		}
	}
	return about, lists
}

// sandboxOf is the sandbox of a pod with one.
func (n *node) sandboxOf(uid string) string {
	n.t.Helper()
	for _, s := range n.runtime.Sandboxes() {
		if s.GetMetadata().GetUid() == uid {
			return s.GetId()
		}
	}
	n.t.Fatalf("pod %s has no sandbox", uid)
	return ""
}

// TestWhatACallerKnowsIsNotListed: the runtime is asked about what the caller and pleg
// know, and about nothing that cannot have changed.
func TestWhatACallerKnowsIsNotListed(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: hour, Status: hour})
	n.relisted()
	first := n.run("a")
	sandbox := n.sandboxOf("a")
	n.runtime.ResetCalls()
	r := n.known("a", &plegv1.Inventory{Sandboxes: []string{sandbox}, Containers: map[string]string{first: sandbox}})
	if len(r.GetSandboxes()) != 1 || len(r.GetContainers()) != 1 || r.GetSandboxOf()[first] != sandbox || r.GetName() != "a" {
		t.Fatalf("record %v", r)
	}
	if about, lists := n.asked(first); about != 1 || lists != 0 {
		t.Errorf("asked about the container %d times, listed %d times", about, lists)
	}
	n.runtime.Exit(first, 0)
	if r = n.known("a", &plegv1.Inventory{}); len(r.GetContainers()) != 1 {
		t.Errorf("what pleg knows is not in the record: %v", r)
	}
	n.runtime.ResetCalls()
	if r = n.known("a", &plegv1.Inventory{}); len(r.GetContainers()) != 1 {
		t.Errorf("the container that has exited is not in the record: %v", r)
	}
	if about, lists := n.asked(first); about+lists != 0 {
		t.Errorf("asked about the container that has exited %d times, listed %d times", about, lists)
	}
	if _, err := n.cri.RemoveContainer(n.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: first}); err != nil {
		t.Fatal(err)
	}
	if r = n.known("a", &plegv1.Inventory{Removed: []string{first}}); len(r.GetContainers()) != 0 || len(r.GetSandboxes()) != 1 {
		t.Errorf("record after the removal: %v", r)
	}
	n.runtime.Forget(sandbox)
	n.runtime.ResetCalls()
	if r = n.known("a", &plegv1.Inventory{Removed: []string{sandbox}}); r != nil {
		t.Errorf("record of nothing: %v", r)
	}
	if about, lists := n.asked(sandbox); about+lists != 0 {
		t.Errorf("asked about what was removed %d times, listed %d times", about, lists)
	}
}

// TestWithoutAnInventoryTheRuntimeLists: a reading that was requested without an inventory
// finds everything.
func TestWithoutAnInventoryTheRuntimeLists(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: hour, Status: hour})
	n.relisted()
	n.run("a")
	if r := n.known("a", &plegv1.Inventory{}); r != nil {
		t.Errorf("record of what is neither listed nor known: %v", r)
	}
	if r := n.refresh("a"); len(r.GetContainers()) != 1 {
		t.Errorf("the container is not listed: %v", r)
	}
}

// TestAnEventBringsWhatItNames: of a pod that has been read before nothing is listed for an
// event; what the event names is in the record, though no caller knew it.
func TestAnEventBringsWhatItNames(t *testing.T) {
	n := start(t, fakecri.Containerd2, pleg.Config{Relist: hour, RelistWithEvents: hour, Status: hour})
	n.relisted()
	n.eventsFlow()
	id := n.run("a")
	n.eventually("running", n.running("a"))
	n.runtime.ResetCalls()
	n.runtime.Exit(id, 5)
	n.eventually("the exit", n.exited("a", 5))
	if about, lists := n.asked(id); about == 0 || lists != 0 {
		t.Errorf("asked about the container %d times, listed %d times", about, lists)
	}
}

// TestReadingsAreBounded: so many pods are read at once and no more, unless the runtime
// hangs on them.
func TestReadingsAreBounded(t *testing.T) {
	n := start(t, fakecri.Containerd16, pleg.Config{Relist: hour, Status: hour, Parallel: 1})
	n.relisted()
	stall := n.runtime.Stall(fakecri.Match{Method: "ListPodSandbox"})
	ended := make(chan error, 6)
	for _, uid := range []string{"a", "b", "c", "d", "e", "f"} {
		go func() {
			_, err := n.client.Refresh(n.ctx, &plegv1.RefreshRequest{Uid: uid})
			ended <- err
		}()
	}
	if err := stall.Wait(n.ctx, 4); err != nil {
		t.Fatal(err)
	}
	if caught := stall.Caught(); caught != 4 {
		t.Errorf("%d pods are read at once, want 4", caught)
	}
	if err := stall.Wait(n.ctx, 6); err != nil {
		t.Errorf("a runtime that hangs on four pods keeps the others waiting: %v", err)
	}
	stall.Release()
	for range 6 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestWhatRunsIsReadFirst: when pleg starts, pods that have ended are read after those that
// run, however many they are.
func TestWhatRunsIsReadFirst(t *testing.T) {
	n := observe(t, fakecri.Start(t, fakecri.Config{Flavor: fakecri.Containerd16, Images: []fakecri.Image{{Ref: "fake/sleep"}}}))
	live := map[string]bool{}
	for i := range 24 {
		uid := strconv.Itoa(i)
		n.run(uid)
		sandbox := n.sandboxOf(uid)
		if i%8 == 5 {
			live[sandbox] = true
		} else if _, err := n.cri.StopPodSandbox(n.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	n = startOver(t, n.runtime, pleg.Config{Relist: hour, Status: hour, Parallel: 1})
	n.eventually("all are known", n.pods.Listed)
	var order []string
	for _, c := range n.runtime.Calls(fakecri.Match{Method: "PodSandboxStatus"}) {
		order = append(order, c.ID)
	}
	for _, sandbox := range order[:len(live)] {
		if !live[sandbox] {
			t.Errorf("sandbox %s, which has ended, is read among the first %d of %v; %v run", sandbox, len(live), order, live)
		}
	}
}
