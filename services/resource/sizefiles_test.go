// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/resize/state"
	"github.com/sextant-node/sextant/test/standin"
)

// kubeletsSizes writes the files of a kubelet that had the node: allocated and actuated pods.
func (r *rig) kubeletsSizes(allocated, actuated []*v1.Pod) {
	r.Helper()
	for name, list := range map[string][]*v1.Pod{state.Allocated: allocated, state.Actuated: actuated} {
		pods := state.Pods{}
		for _, p := range list {
			pods[p.UID] = state.AllocationOf(p)
		}
		data, err := state.Encode(pods)
		if err != nil {
			r.Fatal(err)
		}
		r.file(name, strings.Replace(string(data), `,"writer":"sextant"`, "", 1))
	}
}

// sizes are the CPU requests of all pods in a file, by UID.
func (r *rig) sizes(name string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.machine, name))
	if err != nil {
		r.Fatal(err)
	}
	pods, others, err := state.Decode(data)
	if err != nil || others {
		r.Fatalf("another agent's: %t, %v", others, err)
	}
	var all []string
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		resources := pods[uid].ContainerResources["c"]
		all = append(all, fmt.Sprintf("%s=%s", uid, resources.Requests.Cpu()))
	}
	return strings.Join(all, " ")
}

// again starts the service once more, to where it admits pods; before that, what another does.
func (r *rig) again(meanwhile func()) {
	r.Helper()
	r.stop()
	meanwhile()
	r.start(nil)
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok && r.node.Complete() && r.pods.Complete() })
}

// TestSizesForAKubelet: the files have what pods are allocated, and what their containers have
// been given of it, when the service has stopped; of a resize under way what was before it.
func TestSizesForAKubelet(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	for _, uid := range []string{"a", "b", "gone"} {
		r.admit(sized(uid, "500m", "64Mi", 1), false)
	}
	r.release("gone")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("gone"); return !ok })
	r.again(func() {
		if all := [2]string{r.sizes(state.Allocated), r.sizes(state.Actuated)}; all != [2]string{"a=500m b=500m", "a=500m b=500m"} {
			t.Errorf("admitted: %q", all)
		}
	})
	r.resize(sized("a", "1", "64Mi", 2))
	r.resize(sized("b", "1", "64Mi", 2))
	r.settleResize("b", 1)
	r.item("b", func(a *resourcev1.PodAllocation) bool { return a.GetSettled() == 1 })
	r.again(func() {
		if all := [2]string{r.sizes(state.Allocated), r.sizes(state.Actuated)}; all != [2]string{"a=1 b=1", "a=500m b=1"} {
			t.Errorf("resized: %q", all)
		}
	})
	r.settleResize("a", 1)
	r.item("a", func(a *resourcev1.PodAllocation) bool { return a.GetSettled() == 1 })
	r.stop()
	if all := r.sizes(state.Actuated); all != "a=1 b=1" {
		t.Errorf("settled: %q", all)
	}
}

// TestBackFromAKubeletThatResized: pods have what a kubelet gave them, settled where their
// containers have it; what was judged before is judged anew.
func TestBackFromAKubeletThatResized(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	for _, uid := range []string{"given", "allocated", "waits", "granted"} {
		r.admit(sized(uid, "500m", "64Mi", 1), false)
	}
	for _, uid := range []string{"waits", "granted"} {
		if item := r.resize(sized(uid, "3", "64Mi", 2)); item.GetPending() == nil {
			t.Fatalf("not deferred: %v", item)
		}
	}
	before, _ := r.pods.Get("waits")
	one := func(uid string) *v1.Pod { return sized(uid, "1", "64Mi", 2) }
	was := func(uid string) *v1.Pod { return sized(uid, "500m", "64Mi", 2) }
	r.again(func() {
		r.kubeletsSizes(
			[]*v1.Pod{one("given"), one("allocated"), was("waits"), sized("granted", "3", "64Mi", 2)},
			[]*v1.Pod{one("given"), was("allocated"), was("waits"), sized("granted", "3", "64Mi", 2)})
	})
	for uid, want := range map[string]string{"given": "1 1/1", "allocated": "1 1/0", "granted": "3 1/1", "waits": "500m 0/0"} {
		item, _ := r.pods.Get(uid)
		if got := fmt.Sprintf("%s %d/%d", has(t, item), item.GetAllocation(), item.GetSettled()); got != want {
			t.Errorf("%s has %s, want %s", uid, got, want)
		}
	}
	if item, _ := r.pods.Get("granted"); item.GetPending() != nil {
		t.Errorf("it has what it asked for: %v", item.GetPending())
	}
	item := r.item("waits", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
	if item.GetPending().GetMessage() == before.GetPending().GetMessage() {
		t.Errorf("judged with what the node had before: %v", item.GetPending())
	}
}

// TestFilesOfItsOwnAreNotFollowed: the ledger is newer than a file that this agent has written,
// of which a kill may have lost the last, and than a kubelet's of before this agent wrote any.
func TestFilesOfItsOwnAreNotFollowed(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("a", "500m", "64Mi", 1), false)
	r.again(func() {})
	path := filepath.Join(r.machine, state.Allocated)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.resize(sized("a", "1", "64Mi", 2))
	r.again(func() {
		if err := os.WriteFile(path, older, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if item, _ := r.pods.Get("a"); has(t, item) != "1" {
		t.Errorf("an older file of its own is followed: %v", item)
	}
	r.again(func() {
		file := r.kit.StoreConfig("state.db")
		file.Schema = 1
		s, _, err := store.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.NewTable(s, "sizeFiles", store.JSON[bool]()).Delete(state.Allocated); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		r.kubeletsSizes([]*v1.Pod{sized("a", "2", "64Mi", 1)}, nil)
	})
	if item, _ := r.pods.Get("a"); has(t, item) != "1" {
		t.Errorf("a file of before this agent wrote any is followed: %v", item)
	}
}

// TestARunningPodHasWhatAKubeletAllocated: whatever podworker asks for it with.
func TestARunningPodHasWhatAKubeletAllocated(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	r.kubeletsSizes(
		[]*v1.Pod{sized("given", "1", "64Mi", 1), sized("allocated", "1", "64Mi", 1), sized("ended", "1", "64Mi", 1)},
		[]*v1.Pod{sized("given", "1", "64Mi", 1), sized("allocated", "500m", "64Mi", 1)})
	r.start(nil)
	r.settle()
	for uid, want := range map[string]string{"given": "1 0/0", "allocated": "1 1/0"} {
		r.admit(sized(uid, "3", "64Mi", 2), true)
		item, _ := r.pods.Get(uid)
		if got := fmt.Sprintf("%s %d/%d", has(t, item), item.GetAllocation(), item.GetSettled()); got != want {
			t.Errorf("%s has %s, want %s", uid, got, want)
		}
	}
	r.admit(sized("new", "100m", "64Mi", 1), false)
	r.again(func() {
		if got, want := r.sizes(state.Allocated), "allocated=1 ended=1 given=1 new=100m"; got != want {
			t.Errorf("%q, want %q: a pod that may come yet is kept", got, want)
		}
		for _, uid := range []string{"given", "allocated", "new"} {
			standin.Set(r.House, r.desired, uid, &configv1.DesiredPod{})
		}
		r.desired.SetComplete(r.Context(), true)
	})
	r.stop()
	if got, want := r.sizes(state.Allocated), "allocated=1 given=1 new=100m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAResizeWaitsForThePodsOfAKubelet: what is free is not known while a pod of a kubelet's
// file may yet be admitted.
func TestAResizeWaitsForThePodsOfAKubelet(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	all := []*v1.Pod{sized("first", "500m", "64Mi", 1), sized("second", "1", "64Mi", 1)}
	r.kubeletsSizes(all, all)
	r.start(nil)
	r.settle()
	for _, p := range all {
		standin.Set(r.House, r.desired, string(p.UID), &configv1.DesiredPod{})
		if err := (cgroup.Tree{Driver: "cgroupfs"}).Ensure(r.kubepods("burstable", "pod"+string(p.UID)), cgroup.Values{}); err != nil {
			t.Fatal(err)
		}
	}
	r.desired.SetComplete(r.Context(), true)
	r.admit(all[0], true)
	asks := sized("first", "3500m", "64Mi", 2)
	data, err := asks.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		return r.client.Resize(t.Context(), &resourcev1.ResizeRequest{Pod: data})
	})
	if item, _ := r.pods.Get("first"); has(t, item) != "500m" || item.GetPending() != nil {
		t.Fatalf("judged by what is not all: %v", item)
	}
	r.admit(all[1], true)
	item := r.item("first", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
	if !strings.Contains(item.GetPending().GetMessage(), "used: 1000") {
		t.Errorf("judged without the other: %v", item.GetPending())
	}
}

// TestAResizeDoesNotWaitForAPodThatIsOver: also where no cgroup tells that it is.
func TestAResizeDoesNotWaitForAPodThatIsOver(t *testing.T) {
	r := newRig(t, nil)
	r.stop()
	all := []*v1.Pod{sized("runs", "500m", "64Mi", 1), sized("completed", "1", "64Mi", 1)}
	r.kubeletsSizes(all, all)
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.CgroupsPerQOS, c.Kubelet.EnforceNodeAllocatable = new(false), []string{"none"}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	for _, p := range all {
		standin.Set(r.House, r.desired, string(p.UID), &configv1.DesiredPod{})
	}
	r.desired.SetComplete(r.Context(), true)
	r.admit(all[0], true)
	asks, err := sized("runs", "1", "64Mi", 2).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	standin.Commanded(r.House, r.pods, func() (standin.Answer, error) {
		return r.client.Resize(t.Context(), &resourcev1.ResizeRequest{Pod: asks})
	})
	if item, _ := r.pods.Get("runs"); has(t, item) != "500m" {
		t.Fatalf("judged by what is not all: %v", item)
	}
	r.release("completed")
	r.item("runs", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 })
}

// TestADamagedFileOfSizes is set aside: a kubelet would not start with it.
func TestADamagedFileOfSizes(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("a", "500m", "64Mi", 1), false)
	r.again(func() {
		r.file(state.Allocated, `{"data":"{}","checksum":1}`)
		r.file(state.Actuated, "{")
	})
	r.stop()
	if all := [2]string{r.sizes(state.Allocated), r.sizes(state.Actuated)}; all != [2]string{"a=500m", "a=500m"} {
		t.Errorf("%q", all)
	}
	if aside, err := filepath.Glob(filepath.Join(r.machine, "*_pods_state.damaged-*")); err != nil || len(aside) != 2 {
		t.Errorf("set aside: %q, %v", aside, err)
	}
}
