// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/test/fakecri"
)

// sized is a pod whose container has so much CPU and memory.
func sized(name, cpu, memory string, generation int64) *v1.Pod {
	p := web(name)
	p.Generation = generation
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
		Limits:   v1.ResourceList{"memory": resource.MustParse(memory)},
	}
	return p
}

// has says what the runtime gives to a pod's container.
func (n *node) has(name string) (shares, memory int64) {
	status, err := n.cri.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: n.rt.Container(name, "web").GetId()})
	n.must(err)
	l := status.GetStatus().GetResources().GetLinux()
	return l.GetCpuShares(), l.GetMemoryLimitInBytes()
}

// resized waits until nothing is left to be done about a pod's resources.
func (n *node) resized(p *v1.Pod, allocation uint64) {
	n.t.Helper()
	n.until("resized", func() bool {
		item, _ := n.allocations.Get(string(p.UID))
		s := n.state(p.UID)
		return item.GetSettled() == allocation && s.GetResize() == nil && n.settled(p.UID) && n.running(p.Name)
	})
}

// volumesKnow is the memory limit that volume was told of last.
func (n *node) volumesKnow() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.declared.Spec.Containers[0].Resources.Limits.Memory().String()
}

// spec is the specification a pod is run by.
func (n *node) spec(p *v1.Pod) *v1.Pod {
	n.t.Helper()
	out := &v1.Pod{}
	n.must(out.Unmarshal(n.state(p.UID).GetPod()))
	return out
}

func TestAResizeChangesARunningContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	before := n.rt.Container("a", "web").GetId()
	n.desire(sized("a", "2", "128Mi", 2))
	n.resized(p, 1)
	if shares, memory := n.has("a"); shares != 2048 || memory != 128<<20 {
		t.Errorf("shares %d, memory %d", shares, memory)
	}
	if got := n.rt.Container("a", "web").GetId(); got != before {
		t.Errorf("container %s, was %s", got, before)
	}
	if cpu := n.spec(p).Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "2" {
		t.Errorf("it is said to run with %s", cpu)
	}
	n.until("published", func() bool { return n.state(p.UID).GetContainers()[0].GetSize().GetMemoryRequest() == 128<<20 })
	// Memory, then CPU: a call each.
	if calls := n.rt.Count(fakecri.Match{Method: "UpdateContainerResources"}); calls != 2 {
		t.Errorf("%d calls", calls)
	}
	n.until("told", func() bool { return n.heard("ResizeCompleted") })
	// A volume of the downward API shows it.
	n.until("volume is told", func() bool { return n.volumesKnow() == "128Mi" })
}

// TestADeferredResizeChangesNothing: the pod goes on as it is allocated, says why,
// and a container that starts again is made as before.
func TestADeferredResizeChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.full = true
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(sized("a", "9", "128Mi", 2))
	n.until("told", func() bool { return n.state(p.UID).GetResize() != nil && n.settled(p.UID) })
	want := &podworkerv1.Resize{PendingReason: "Deferred", PendingMessage: "no room", PendingGeneration: 2}
	if got := n.state(p.UID).GetResize(); !proto.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if cpu := n.spec(p).Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("it is said to run with %s", cpu)
	}
	n.die()
	n.rt.Exit(n.rt.Container("a", "web").GetId(), 1)
	n.live()
	n.until("again", func() bool { return n.rt.Container("a", "web").GetMetadata().GetAttempt() == 1 && n.running("a") })
	if shares, _ := n.has("a"); shares != 1024 {
		t.Errorf("shares %d", shares)
	}
	if n.rt.Count(fakecri.Match{Method: "UpdateContainerResources"}) != 0 {
		t.Error("something was changed")
	}
	if limit := n.volumesKnow(); limit != "64Mi" {
		t.Errorf("volume was told of a memory limit of %s", limit)
	}
}

// TestADeferredResizeIsOfTheNewestGeneration: another change of the pod asks for the same
// resources, and is what the answer is about too, as with a kubelet.
func TestADeferredResizeIsOfTheNewestGeneration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.full = true
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	p = sized("a", "9", "128Mi", 2)
	n.desire(p)
	n.until("deferred", func() bool { return n.state(p.UID).GetResize().GetPendingGeneration() == 2 })
	p.Generation, p.Spec.Tolerations = 3, []v1.Toleration{{Key: "slow", Operator: v1.TolerationOpExists}}
	n.desire(p)
	n.until("deferred still", func() bool { return n.state(p.UID).GetResize().GetPendingGeneration() == 3 })
}

// TestAMemoryLimitBelowWhatIsUsedWaits, and says so.
func TestAMemoryLimitBelowWhatIsUsedWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(sized("a", "1", "1", 2))
	n.until("said", func() bool {
		return strings.HasPrefix(n.state(p.UID).GetResize().GetError(), "cannot decrease memory limits: [attempting to set pod memory limit (1) below current usage (1048576), "+
			`attempting to set container "web" memory limit (1) below current usage (`)
	})
	if r := n.state(p.UID).GetResize(); !r.GetInProgress() || r.GetGeneration() != 2 {
		t.Errorf("%v", r)
	}
	n.until("told", func() bool { return n.heard("ResizeError") })
	n.desire(sized("a", "1", "32Mi", 3))
	n.resized(p, 2)
	if _, memory := n.has("a"); memory != 32<<20 {
		t.Errorf("memory %d", memory)
	}
}

// TestANewMemoryLimitOfThePodBelowWhatIsUsedWaits, as a lower one does: what its containers
// use together is more.
func TestANewMemoryLimitOfThePodBelowWhatIsUsedWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	level := func(limit string, generation int64) *v1.Pod {
		p := web("a")
		p.Generation = generation
		second := *p.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		p.Spec.Containers = append(p.Spec.Containers, second)
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}
		if limit != "" {
			p.Spec.Resources.Limits = v1.ResourceList{"memory": resource.MustParse(limit)}
		}
		return p
	}
	p := level("", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(level("1500Ki", 2))
	n.until("said", func() bool {
		return n.state(p.UID).GetResize().GetError() == "cannot decrease memory limits: attempting to set pod memory limit (1536000) below current usage (2097152)"
	})
	n.desire(level("1Ti", 3))
	n.resized(p, 2)
}

// TestKillAnywhereWhileResizing kills podworker at every point of a resize and
// starts it again on the same state: the container gets its resources and is the
// one that was there.
func TestKillAnywhereWhileResizing(t *testing.T) {
	there := map[string]func(n *node) bool{
		"podworker.resize":      func(n *node) bool { return n.flying("uid-a", "resize") },
		"podworker.resize.done": func(n *node) bool { return n.flying("uid-a", "resize") && n.allocation() == 1 },
		"podworker.update":      func(n *node) bool { return n.flying("uid-a", "update") },
		"podworker.update.done": func(n *node) bool {
			return n.flying("uid-a", "update") && n.rt.Count(fakecri.Match{Method: "UpdateContainerResources"}) == 2
		},
		"podworker.settle":      func(n *node) bool { return n.flying("uid-a", "settle") },
		"podworker.settle.done": func(n *node) bool { return n.flying("uid-a", "settle") && n.allocation() == 1 },
	}
	killAnywhere(t, slices.Sorted(maps.Keys(there)), func(t *testing.T, point string, next func(n *node)) {
		n := newNode(t)
		n.live()
		p := sized("a", "1", "64Mi", 1)
		n.desire(p)
		n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
		before := n.rt.Container("a", "web").GetId()
		n.must(fault.Set(point + "=pause"))
		t.Cleanup(func() { n.must(fault.Set("")) })
		n.desire(sized("a", "2", "128Mi", 2))
		n.until("the point", func() bool { return there[point](n) })
		n.die()
		n.must(fault.Set(""))
		next(n)
		n.resized(p, 1)
		if got := n.rt.Container("a", "web").GetId(); got != before {
			t.Errorf("container %s, was %s", got, before)
		}
		if shares, memory := n.has("a"); shares != 2048 || memory != 128<<20 {
			t.Errorf("shares %d, memory %d", shares, memory)
		}
	})
}

// allocation is the number of the one pod's.
func (n *node) allocation() uint64 {
	item, _ := n.allocations.Get("uid-a")
	return item.GetAllocation()
}

// TestAResizeThatRestarts: the container is another, with its new resources, once.
func TestAResizeThatRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	policy := []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	p, next := sized("a", "1", "64Mi", 1), sized("a", "1", "128Mi", 2)
	for _, q := range []*v1.Pod{p, next} {
		q.Spec.Containers[0].ResizePolicy, q.Spec.RestartPolicy = policy, v1.RestartPolicyNever
	}
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(next)
	n.resized(p, 1)
	if got := n.rt.Container("a", "web").GetMetadata().GetAttempt(); got != 1 {
		t.Errorf("attempt %d", got)
	}
	if _, memory := n.has("a"); memory != 128<<20 {
		t.Errorf("memory %d", memory)
	}
	if pod.SizesID(n.spec(p)) != pod.SizesID(next) {
		t.Error("it is said to run with other resources")
	}
}

// TestAResizeOfBeforeIsPublished: podworker starts while resource does not say yet that
// a resize was allocated, and goes by the specification it had; then it goes by the new
// one.
func TestAResizeOfBeforeIsPublished(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.die()
	item, _ := n.allocations.Get(string(p.UID))
	n.allocations.Delete(t.Context(), string(p.UID))
	answer := n.answer
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: "starting"}
	}
	larger := sized("a", "2", "128Mi", 2)
	n.desire(larger)
	n.live()
	n.until("published", func() bool { return n.state(p.UID) != nil })
	if cpu := n.spec(p).Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("before it is allocated it is said to run with %s", cpu)
	}
	sizes, err := pod.Sizes(larger).Marshal()
	n.must(err)
	item = proto.CloneOf(item)
	item.Sizes, item.Asked, item.Allocation, item.Generation = sizes, pod.SizesID(larger), 1, 2
	n.mu.Lock()
	n.answer = answer
	n.mu.Unlock()
	_, err = n.allocations.Set(t.Context(), string(p.UID), item)
	n.must(err)
	n.until("published with what it is allocated", func() bool {
		return n.spec(p).Spec.Containers[0].Resources.Requests.Cpu().String() == "2"
	})
}

// leave has another agent leave a pod that runs with one size and asks for another: nothing is
// known of it but what the runtime and the API server have. Events are those of after.
func (n *node) leave(has, asks *v1.Pod, conditions ...v1.PodCondition) {
	n.t.Helper()
	n.live()
	n.desire(has)
	n.until("up", func() bool { return n.running(has.Name) && n.settled(has.UID) })
	n.die()
	n.must(os.Remove(filepath.Join(n.dir, "state", journal.FileName)))
	n.allocations.Delete(n.t.Context(), string(has.UID))
	asks.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: conditions, ContainerStatuses: []v1.ContainerStatus{{
		Name: "web", ContainerID: "containerd://" + n.rt.Container(has.Name, "web").GetId(), Resources: &has.Spec.Containers[0].Resources,
	}}}
	n.desire(asks)
	n.mu.Lock()
	n.admitted, n.events = nil, nil
	n.mu.Unlock()
}

// TestADeferredResizeIsTakenOver: what the agent before did not allocate is not allocated by
// the take-over. It is judged like any other, and the pod says all the time that it waits.
func TestADeferredResizeIsTakenOver(t *testing.T) {
	n := newNode(t)
	asks := sized("a", "100", "32Mi", 2)
	n.leave(sized("a", "1", "64Mi", 1), asks, v1.PodCondition{
		Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: "as before", ObservedGeneration: 2,
	})
	n.full = true
	answer := n.answer
	one := func(p *v1.Pod) {
		if cpu := p.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
			t.Errorf("admitted with %s CPUs", cpu)
		}
	}
	n.answer = func(p *v1.Pod, _ bool) *resourcev1.AdmitResponse {
		one(p)
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: "starting"}
	}
	deferred := func(message string) func() bool {
		want := &podworkerv1.Resize{PendingReason: "Deferred", PendingMessage: message, PendingGeneration: 2}
		return func() bool {
			return proto.Equal(n.state(asks.UID).GetResize(), want) && !n.state(asks.UID).GetResizeUnknown()
		}
	}
	unknown := func() bool { return n.state(asks.UID).GetResize() == nil && n.state(asks.UID).GetResizeUnknown() }
	n.live()
	n.until("asked for admission", func() bool { return n.state(asks.UID) != nil && len(n.admissions()) > 0 })
	if !unknown() {
		t.Errorf("before it is admitted: %v", n.state(asks.UID))
	}
	n.must(fault.Set("podworker.resize=1*error(not now)"))
	t.Cleanup(func() { n.must(fault.Set("")) })
	n.mu.Lock()
	n.answer = func(p *v1.Pod, running bool) *resourcev1.AdmitResponse {
		one(p)
		return answer(p, running)
	}
	n.mu.Unlock()
	n.pass("admitted", time.Second, func() bool { return n.lifecycle(asks.UID, podworkerv1.Lifecycle_LIFECYCLE_SYNCING) })
	n.until("the resize has failed", func() bool {
		return n.state(asks.UID).GetWait().GetStep() == "resize" && n.state(asks.UID).GetWait().GetRetryAt() != nil
	})
	if !unknown() {
		t.Errorf("before it is judged: %v", n.state(asks.UID))
	}
	n.pass("judged", time.Second, deferred("no room"))
	n.until("settled", func() bool { return n.settled(asks.UID) })
	if size := n.state(asks.UID).GetContainers()[0].GetSize(); size.GetCpuRequest() != 1000 || size.GetMemoryLimit() != 64<<20 {
		t.Errorf("it is said to have %v", size)
	}
	if n.rt.Count(fakecri.Match{Method: "UpdateContainerResources"}) != 0 {
		t.Error("something was changed")
	}
}

// TestAnUnfinishedResizeIsTakenOver: the container gets what it did not get from the agent before.
func TestAnUnfinishedResizeIsTakenOver(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	asks := sized("a", "2", "128Mi", 2)
	n.leave(sized("a", "1", "64Mi", 1), asks, v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: 2})
	before := n.rt.Container("a", "web").GetId()
	n.live()
	n.resized(asks, 1)
	if shares, memory := n.has("a"); shares != 2048 || memory != 128<<20 || n.rt.Container("a", "web").GetId() != before {
		t.Errorf("shares %d, memory %d", shares, memory)
	}
	n.until("told", func() bool { return n.heard("ResizeCompleted") })
}

// TestALimitIsNotLoweredBelowWhatIsUsedByAContainerOfUnknownSize: the agent before had not
// lowered it, and says nothing of that.
func TestALimitIsNotLoweredBelowWhatIsUsedByAContainerOfUnknownSize(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	asks := sized("a", "1", "1", 2)
	n.leave(sized("a", "1", "64Mi", 1), asks)
	asks.Status = v1.PodStatus{}
	n.desire(asks)
	sizes, err := pod.Sizes(asks).Marshal()
	n.must(err)
	answer := n.answer
	n.answer = func(p *v1.Pod, running bool) *resourcev1.AdmitResponse {
		n.set(n.allocations.Set(t.Context(), string(p.UID), &resourcev1.PodAllocation{ // as resource has it for the sake of the cgroup
			Uid: string(p.UID), Sizes: sizes, Asked: pod.SizesID(asks), Allocation: 1, Generation: 2,
		}))
		return answer(p, running)
	}
	n.live()
	n.until("said", func() bool {
		return strings.HasPrefix(n.state(asks.UID).GetResize().GetError(), "cannot decrease memory limits: [attempting to set pod memory limit (1) below current usage (1048576), "+
			`attempting to set container "web" memory limit (1) below current usage (`)
	})
	if n.rt.Count(fakecri.Match{Method: "UpdateContainerResources"}) != 0 {
		t.Error("something was changed")
	}
}
