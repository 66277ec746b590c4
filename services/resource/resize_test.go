// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/resize/state"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// sized is a pod with one container of so much CPU (request) and memory (limit).
func sized(uid, cpu, memory string, generation int64) *v1.Pod {
	p := burstable(uid, cpu)
	p.Generation = generation
	p.Spec.Containers[0].Resources.Requests["memory"] = apiresource.MustParse(memory)
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"memory": apiresource.MustParse(memory)}
	return p
}

func (r *rig) resize(p *v1.Pod) *resourcev1.PodAllocation {
	r.Helper()
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.client.Resize(r.Context(), &resourcev1.ResizeRequest{Pod: data}); err != nil {
		r.Fatal(err)
	}
	return r.item(string(p.UID), func(a *resourcev1.PodAllocation) bool {
		sizes := &v1.PodSpec{}
		if err := sizes.Unmarshal(a.GetSizes()); err != nil {
			r.Fatal(err)
		}
		judged := a.GetPending() != nil || pod.SizesID(&v1.Pod{Spec: *sizes}) == pod.SizesID(p)
		return a.GetAsked() == pod.SizesID(p) && judged
	})
}

// item waits for a pod's item to be as told.
func (r *rig) item(uid string, is func(*resourcev1.PodAllocation) bool) (item *resourcev1.PodAllocation) {
	r.Helper()
	r.Eventually("the item of "+uid, func() bool {
		var ok bool
		item, ok = r.pods.Get(uid)
		return ok && is(item)
	})
	return item
}

func (r *rig) settleResize(uid string, allocation uint64) {
	r.Helper()
	if _, err := r.client.Settle(r.Context(), &resourcev1.SettleRequest{Uid: uid, Allocation: allocation}); err != nil {
		r.Fatal(err)
	}
}

// has says which CPU request an item gives to its first container.
func has(t testing.TB, item *resourcev1.PodAllocation) string {
	t.Helper()
	sizes := &v1.PodSpec{}
	if err := sizes.Unmarshal(item.GetSizes()); err != nil {
		t.Fatal(err)
	}
	return sizes.Containers[0].Resources.Requests.Cpu().String()
}

func (r *rig) memoryLimit(uid string) string {
	r.Helper()
	return cgrouptest.Value(r, r.kubepods("burstable", "pod"+uid), "memory/memory.limit_in_bytes", "memory.max")
}

func (r *rig) told(reason string) (found []*eventv1.Event) {
	for _, e := range r.events.Items() {
		if e.GetReason() == reason {
			found = append(found, e)
		}
	}
	return found
}

func TestAResizeGrowsAtOnceAndShrinksWhenSettled(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("u", "1", "64Mi", 1), false)
	first := r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAsked() != "" })
	if first.GetAllocation() != 0 || has(t, first) != "1" {
		t.Errorf("as admitted: %v", first)
	}
	// More CPU and less memory: the cgroup has room for both until that is done.
	got := r.resize(sized("u", "2", "32Mi", 2))
	if has(t, got) != "2" || got.GetAllocation() != 1 || got.GetSettled() != 0 || got.GetGeneration() != 2 || got.GetMemoryLimit() != 64<<20 {
		t.Errorf("allocated: %v", got)
	}
	cgroup := r.kubepods("burstable", "podu")
	if r.shares(cgroup) != sharesOf(2048) || r.memoryLimit("u") != "67108864" {
		t.Errorf("in between: shares %s, memory %s", r.shares(cgroup), r.memoryLimit("u"))
	}
	if r.shares(r.kubepods("burstable")) != sharesOf(2048) {
		t.Errorf("the class has %s", r.shares(r.kubepods("burstable")))
	}
	r.settleResize("u", 7) // some other allocation
	r.settleResize("u", 1)
	r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetSettled() == 1 && a.GetMemoryLimit() == 0 })
	if r.memoryLimit("u") != "33554432" {
		t.Errorf("settled: memory %s", r.memoryLimit("u"))
	}
	r.settleResize("u", 1) // again
	r.Eventually("event", func() bool { return len(r.told("ResizeStarted")) == 1 })
	if m := r.told("ResizeStarted")[0].GetMessage(); !strings.HasPrefix(m, `Pod resize started: {"containers":[{"name":"c","resources":{"limits":{"memory":"32Mi"}`) || !strings.HasSuffix(m, `"generation":2}`) {
		t.Error(m)
	}
}

func TestAResizeIsDeferredUntilThereIsRoom(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("u", "1", "64Mi", 1), false)
	r.admit(burstable("other", "2"), false)
	r.resize(sized("u", "3", "64Mi", 2))
	got := r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
	if p := got.GetPending(); p.GetReason() != "Deferred" || p.GetGeneration() != 2 || got.GetAllocation() != 0 || has(t, got) != "1" ||
		p.GetMessage() != "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000" {
		t.Errorf("%v", got)
	}
	r.resize(sized("u", "3", "64Mi", 2)) // the same again tells nothing new
	r.release("other")
	got = r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 })
	if has(t, got) != "3" || got.GetPending() != nil {
		t.Errorf("%v", got)
	}
	r.Eventually("events", func() bool { return len(r.told("ResizeDeferred")) == 1 && len(r.told("ResizeStarted")) == 1 })
	// It counts: a pod for which there was room before is refused.
	if got := decision(r.admit(burstable("next", "2"), false)); !strings.HasPrefix(got, "rejected OutOfcpu") {
		t.Error(got)
	}
	// What is taken back is no resize any more.
	r.resize(sized("u", "4500m", "64Mi", 3))
	r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
	got = r.resize(sized("u", "3", "64Mi", 4))
	if got.GetPending() != nil || got.GetAllocation() != 1 {
		t.Errorf("taken back: %v", got)
	}
}

// TestARestartKeepsResizes: allocated is allocated, the cgroup keeps its room, and
// what waits goes on waiting.
func TestARestartKeepsResizes(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("u", "1", "64Mi", 1), false)
	r.admit(sized("v", "1", "64Mi", 1), false)
	r.resize(sized("u", "500m", "32Mi", 2))
	r.resize(sized("v", "3600m", "64Mi", 2))
	r.item("v", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
	before, _, _, _ := r.pods.State()
	unsettled, _, _, _ := r.node.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	got := r.item("u", func(*resourcev1.PodAllocation) bool { return true })
	if has(t, got) != "500m" || got.GetAllocation() != 1 || got.GetSettled() != 0 || got.GetAsked() != pod.SizesID(sized("u", "500m", "32Mi", 2)) {
		t.Errorf("%v", got)
	}
	r.Eventually("settled", func() bool { now, complete, _, _ := r.node.State(); return now.Epoch != unsettled.Epoch && complete })
	if r.memoryLimit("u") != "67108864" {
		t.Errorf("the cgroup shrank under its containers: %s", r.memoryLimit("u"))
	}
	r.settleResize("u", 1)
	if r.memoryLimit("u") != "33554432" {
		t.Errorf("memory %s", r.memoryLimit("u"))
	}
	if got := r.item("v", func(*resourcev1.PodAllocation) bool { return true }); got.GetPending().GetReason() != "Deferred" {
		t.Errorf("%v", got)
	}
	r.release("u")
	r.item("v", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 && has(t, a) == "3600m" })
	if n := len(r.told("ResizeDeferred")); n > 1 {
		t.Errorf("told %d times", n)
	}
}

// TestACgroupThatCannotGrowHoldsContainersBack, and is tried again.
func TestACgroupThatCannotGrowHoldsContainersBack(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("u", "1", "64Mi", 1), false)
	if err := fault.Set("resource.grow=1*error(no room)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fault.Set("") })
	r.resize(sized("u", "1", "128Mi", 2))
	r.item("u", func(a *resourcev1.PodAllocation) bool { return strings.Contains(a.GetBlocked(), "no room") })
	r.Eventually("grown", func() bool {
		item, _ := r.pods.Get("u")
		return item.GetBlocked() == "" && r.memoryLimit("u") == "134217728"
	})
}

func TestAResizeOfAnUnknownPodIsRefused(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	p := sized("nobody", "1", "64Mi", 1)
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Resize(r.Context(), &resourcev1.ResizeRequest{Pod: data}); err == nil || !strings.Contains(err.Error(), "not admitted") {
		t.Error(err)
	}
	p.UID = types.UID("")
	data, _ = p.Marshal()
	if _, err := r.client.Resize(r.Context(), &resourcev1.ResizeRequest{Pod: data}); err == nil || !strings.Contains(err.Error(), "pod.metadata.uid") {
		t.Error(err)
	}
	if _, err := r.client.Settle(r.Context(), &resourcev1.SettleRequest{}); err == nil {
		t.Error("settled without a pod")
	}
	r.settleResize("nobody", 1) // gone meanwhile
}

// TestWhatMadeADeferredResizeFit: the metric has the kubelet's word for what was followed by
// room: the end of a pod, its removal, or the first look of a life.
func TestWhatMadeADeferredResizeFit(t *testing.T) {
	for trigger, makeRoom := range map[string]func(r *rig){
		"pod_terminated": func(r *rig) { r.release("other") },
		"pods_removed": func(r *rig) {
			r.desired.Delete(r.Context(), "other")
			r.hasDesired(1)
			r.release("other")
		},
		"pods_added": func(r *rig) {
			r.stop()
			r.file("sys/devices/system/cpu/online", "0-7")
			r.start(nil)
		},
	} {
		t.Run(trigger, func(t *testing.T) {
			r := newRig(t, nil)
			r.settle()
			for _, uid := range []string{"u", "other"} {
				standin.Set(r.House, r.desired, uid, &configv1.DesiredPod{})
			}
			r.desired.SetComplete(r.Context(), true)
			r.hasDesired(2)
			r.admit(sized("u", "1", "64Mi", 1), false)
			r.admit(burstable("other", "2"), false)
			r.resize(sized("u", "3", "64Mi", 2))
			r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetPending() != nil })
			makeRoom(r)
			r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 })
			measure.Expect(t, r.kit.Metrics, map[string]float64{`kubelet_pod_deferred_accepted_resizes_total{retry_trigger="` + trigger + `"}`: 1})
		})
	}
}

// hasDesired waits until the service has read so many pods of config's, which are all.
func (r *rig) hasDesired(pods uint64) {
	r.Helper()
	r.Eventually("config.pods", func() bool {
		return slices.ContainsFunc(r.kit.Hello().GetMirrors(), func(m *nodev1.MirrorState) bool {
			return m.GetName() == house.ConfigPods.Name && m.GetComplete() && m.GetItems() == pods
		})
	})
}

// TestAnUpdateNeedsFeaturesOfTheNode: one that the node does not declare is an event.
func TestAnUpdateNeedsFeaturesOfTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.FeatureGates = map[string]bool{"InPlacePodLevelResourcesVerticalScaling": false}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	level := func(cpu string, generation int64) *v1.Pod {
		p := sized("u", "1", "64Mi", generation)
		p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": apiresource.MustParse(cpu)}}
		return p
	}
	r.admit(level("1", 1), false)
	r.resize(level("2", 2))
	r.Eventually("the event", func() bool { return len(r.told("FailedNodeDeclaredFeaturesCheck")) == 1 })
	const want = "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling"
	if e := r.told("FailedNodeDeclaredFeaturesCheck")[0]; e.GetMessage() != want || e.GetType() != v1.EventTypeWarning {
		t.Error(e)
	}
	// Neither may a pod start that needs one.
	host := burstable("host", "1")
	no := false
	host.Spec.HostNetwork, host.Spec.HostUsers = true, &no
	const unsupported = "rejected PodFeatureUnsupported: Pod requires node features that are not available: UserNamespacesHostNetworkSupport"
	if got := decision(r.admit(host, false)); got != unsupported {
		t.Error(got)
	}
	measure.Expect(t, r.kit.Metrics, map[string]float64{`kubelet_admission_rejections_total{reason="PodFeatureUnsupported"}`: 1})
}

// TestARunningPodKeepsTheMemoryOfItsCgroup: the agent before had not lowered the limit yet, for
// the memory was in use. It is lowered when podworker says that the containers have it, and
// not by a restart before that.
func TestARunningPodKeepsTheMemoryOfItsCgroup(t *testing.T) {
	for had, want := range map[string]string{"512Mi": "536870912", "": ""} {
		t.Run("it has "+had, func(t *testing.T) {
			r := newRig(t, nil)
			r.settle()
			made := burstable("u", "1")
			if had != "" {
				made = sized("u", "1", had, 1)
			}
			r.admit(made, false) // stands for what the agent before made
			before := r.memoryLimit("u")
			if want != "" && before != want {
				t.Fatalf("memory %s", before)
			}
			r.stop()
			for _, known := range []string{r.Paths.StateOf("resource"), filepath.Join(r.machine, state.Allocated), filepath.Join(r.machine, state.Actuated)} {
				if err := os.RemoveAll(known); err != nil {
					t.Fatal(err)
				}
			}
			r.start(nil)
			r.Eventually("nothing is known", func() bool { _, ok := r.pods.Get("u"); return !ok && r.pods.Complete() })
			small := sized("u", "1", "32Mi", 2)
			r.Eventually("admitted", func() bool { return strings.HasPrefix(decision(r.admit(small, true)), "admitted") })
			unfinished := func() {
				t.Helper()
				got := r.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 })
				if got.GetSettled() != 0 || got.GetGeneration() != 2 || got.GetMemoryLimit() <= 32<<20 || got.GetAsked() != pod.SizesID(small) {
					t.Errorf("%v", got)
				}
				if now := r.memoryLimit("u"); now != before {
					t.Errorf("memory %s, was %s", now, before)
				}
			}
			unfinished()
			r.stop()
			was, _, _, _ := r.node.State()
			r.start(nil)
			r.Eventually("another life", func() bool { now, complete, _, _ := r.node.State(); return now.Epoch != was.Epoch && complete })
			unfinished()
			r.settleResize("u", 1)
			if r.memoryLimit("u") != "33554432" {
				t.Errorf("settled: memory %s", r.memoryLimit("u"))
			}
		})
	}
}

// TestAPodThatAnotherAgentResizedKeepsTheMemoryOfItsCgroup: a kubelet had the node between two
// lives of the service, and gave a pod that runs more memory than it has by the checkpoint. Its
// cgroup keeps the limit until podworker says that the containers have the other.
func TestAPodThatAnotherAgentResizedKeepsTheMemoryOfItsCgroup(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(sized("u", "1", "64Mi", 1), false)
	r.admit(sized("ended", "1", "64Mi", 1), false)
	tree, large := cgroup.Tree{Driver: pod.Cgroupfs}, int64(512<<20)
	of := func(uid string) pod.CgroupName { return r.kubepods("burstable", "pod"+uid) }
	if err := tree.Ensure(of("u").Child("container"), cgroup.Values{}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	for _, uid := range []string{"u", "ended"} {
		if err := tree.Ensure(of(uid), cgroup.Values{CgroupResources: pod.CgroupResources{Memory: &large}}); err != nil {
			t.Fatal(err)
		}
	}
	was, _, _, _ := r.node.State()
	r.start(nil)
	r.Eventually("another life", func() bool { now, complete, _, _ := r.node.State(); return now.Epoch != was.Epoch && complete })
	got := r.item("u", func(item *resourcev1.PodAllocation) bool { return item.GetAllocation() == 1 })
	if r.memoryLimit("u") != "536870912" || got.GetSettled() != 0 || got.GetMemoryLimit() != large {
		t.Errorf("memory %s, %v", r.memoryLimit("u"), got)
	}
	if r.memoryLimit("ended") != "67108864" {
		t.Errorf("of a pod of which nothing runs: memory %s", r.memoryLimit("ended"))
	}
	r.settleResize("u", 1)
	if r.memoryLimit("u") != "67108864" {
		t.Errorf("settled: memory %s", r.memoryLimit("u"))
	}
	r.resize(sized("u", "1", "512Mi", 2))
	if r.memoryLimit("u") != "536870912" {
		t.Errorf("granted: memory %s", r.memoryLimit("u"))
	}
}

// TestARunningPodWithItsOwnCgroupIsSettled: nothing is outstanding where the cgroup is as this
// service would make it.
func TestARunningPodWithItsOwnCgroupIsSettled(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	for _, p := range []*v1.Pod{sized("u", "1", "64Mi", 1), burstable("open", "1")} {
		r.admit(p, false)
	}
	r.stop()
	if err := os.RemoveAll(r.Paths.StateOf("resource")); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.Eventually("nothing is known", func() bool { _, ok := r.pods.Get("u"); return !ok && r.pods.Complete() })
	for _, p := range []*v1.Pod{sized("u", "1", "64Mi", 1), burstable("open", "1"), sized("new", "1", "64Mi", 1)} {
		r.Eventually("admitted", func() bool { return strings.HasPrefix(decision(r.admit(p, true)), "admitted") })
		if got := r.item(string(p.UID), func(*resourcev1.PodAllocation) bool { return true }); got.GetAllocation() != 0 {
			t.Errorf("%v", got)
		}
	}
}
