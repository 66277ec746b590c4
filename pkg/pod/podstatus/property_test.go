// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// world is a pod whose runtime and podworker do things at random, rendered after each.
type world struct {
	*rand.Rand
	in   Input
	now  time.Time
	next int
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: epoch}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Generation: 1}}
	p.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[w.IntN(3)]
	probe := func() *v1.Probe {
		if w.IntN(3) == 0 {
			return &v1.Probe{}
		}
		return nil
	}
	if w.IntN(2) == 0 {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "i", Image: "i"})
	}
	if w.IntN(2) == 0 {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{
			Name: "s", Image: "s", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), StartupProbe: probe(), ReadinessProbe: probe(),
		})
	}
	p.Spec.Containers = []v1.Container{
		{Name: "a", Image: "a", StartupProbe: probe(), ReadinessProbe: probe()},
		{Name: "b", Image: "b", ReadinessProbe: probe()},
	}
	if w.IntN(4) == 0 {
		p.Annotations = map[string]string{pod.ConfigSourceAnnotation: pod.SourceFile}
	}
	w.in = Input{
		Pod: p, Probes: map[string]ProbeVerdict{}, Node: Node{HostIPs: []string{"192.0.2.1"}},
		Facts: Facts{Lifecycle: Syncing, Containers: map[string]ContainerFacts{}}, Observed: Observed{Complete: true},
	}
	return w
}

func (w *world) names() (names []string) {
	for _, c := range pod.Containers(w.in.Pod) {
		names = append(names, c.Name)
	}
	return names
}

// step changes one thing.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(1+w.IntN(90)) * time.Second)
	names := w.names()
	name := names[w.IntN(len(names))]
	o := &w.in.Observed
	switch w.IntN(10) {
	case 0:
		o.Sandboxes = append(o.Sandboxes, &runtimeapi.PodSandboxStatus{
			Id: fmt.Sprint("s", w.next), CreatedAt: w.now.UnixNano(), Metadata: &runtimeapi.PodSandboxMetadata{Attempt: uint32(len(o.Sandboxes))},
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprint("10.0.0.", 1+w.IntN(250))}, State: runtimeapi.PodSandboxState(w.IntN(2)),
		})
	case 1, 2, 3:
		c, _ := pod.FindContainer(w.in.Pod, name)
		annotations, _ := pod.ContainerAnnotations(w.in.Pod, c, w.IntN(4), nil)
		o.Containers = append(o.Containers, &runtimeapi.ContainerStatus{
			Id: fmt.Sprint("c", w.next), Metadata: &runtimeapi.ContainerMetadata{Name: name}, CreatedAt: w.now.UnixNano(), StartedAt: w.now.UnixNano(),
			State: runtimeapi.ContainerState(w.IntN(4)), ExitCode: int32(w.IntN(2)), FinishedAt: w.now.UnixNano(),
			Labels: pod.ContainerLabels(w.in.Pod, c), Annotations: annotations,
		})
	case 4:
		if n := len(o.Containers); n > 0 {
			c := o.Containers[w.IntN(n)]
			c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, int32(w.IntN(2)), w.now.UnixNano()
		}
	case 5:
		if n := len(o.Containers); n > 0 {
			i := w.IntN(n)
			o.Containers = append(o.Containers[:i:i], o.Containers[i+1:]...)
		}
	case 6:
		if n := len(o.Containers); n > 0 {
			results := []ProbeResult{ProbeUnknown, ProbeSuccess, ProbeFailure}
			w.in.Probes[o.Containers[w.IntN(n)].Id] = ProbeVerdict{Startup: results[w.IntN(3)], Readiness: results[w.IntN(3)]}
		}
	case 7:
		w.in.Facts.Containers[name] = []ContainerFacts{
			{}, {Waiting: &Waiting{"ErrImagePull", "x"}}, {Backoff: &Backoff{Kind: BackoffRestart, Delay: 10 * time.Second}},
			{Backoff: &Backoff{Kind: BackoffPull, LastError: "e"}},
		}[w.IntN(4)]
	case 8:
		o.Complete = w.IntN(3) > 0
	case 9:
		w.end()
	}
	w.next++
}

// end moves the lifecycle on, now and then.
func (w *world) end() {
	if w.IntN(3) > 0 {
		return
	}
	f := &w.in.Facts
	switch f.Lifecycle {
	case Syncing:
		f.Lifecycle = Terminating
		if w.IntN(2) == 0 {
			f.Verdict = &Verdict{Kind: VerdictEvicted, Reason: "Evicted", Message: "m", Disruption: true}
		} else {
			w.in.Pod.DeletionTimestamp = &metav1.Time{Time: w.now}
		}
	case Terminating:
		f.Lifecycle = Terminated
		w.in.Observed.Complete = true
		for _, c := range w.in.Observed.Containers {
			c.State, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, w.now.UnixNano()
		}
	}
}

// Whatever happens to a pod, in whatever order, its status keeps these promises.
func TestPromises(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(seed)
		var old *v1.PodStatus
		for step := range 40 {
			w.step()
			w.in.Old, w.in.Now = old, w.now
			got := Render(w.in)
			if err := promises(w.in, old, &got); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			again := w.in
			again.Old, again.Now = &got, w.now.Add(time.Hour)
			if second := Render(again); !Equal(&got, &second) {
				t.Fatalf("seed %d step %d: rendering is not stable:\n%s", seed, step, cmp.Diff(got, second))
			}
			old = &got
		}
	}
}

func promises(in Input, old, got *v1.PodStatus) error {
	if pod.IsTerminalPhase(got.Phase) && in.Facts.Verdict != nil && !in.Facts.Lifecycle.ContainersStopped() && (old == nil || !pod.IsTerminalPhase(old.Phase)) {
		return fmt.Errorf("phase %s before the containers are stopped", got.Phase)
	}
	if in.Facts.Lifecycle == Terminated && !pod.IsStatic(in.Pod) && !pod.IsTerminalPhase(got.Phase) {
		return fmt.Errorf("terminated pod in phase %s", got.Phase)
	}
	ready, containersReady := findCondition(got.Conditions, v1.PodReady), findCondition(got.Conditions, v1.ContainersReady)
	if ready == nil || containersReady == nil {
		return fmt.Errorf("conditions are missing: %v", got.Conditions)
	}
	if ready.Status == v1.ConditionTrue && (containersReady.Status != v1.ConditionTrue || pod.IsTerminalPhase(got.Phase)) {
		return fmt.Errorf("ready in phase %s with ContainersReady %s", got.Phase, containersReady.Status)
	}
	for _, s := range append(got.ContainerStatuses, got.InitContainerStatuses...) {
		states := 0
		for _, set := range []bool{s.State.Running != nil, s.State.Waiting != nil, s.State.Terminated != nil} {
			if set {
				states++
			}
		}
		if states != 1 {
			return fmt.Errorf("container %s is in %d states", s.Name, states)
		}
	}
	if old == nil {
		return nil
	}
	if pod.IsTerminalPhase(old.Phase) && got.Phase != old.Phase {
		return fmt.Errorf("phase went from %s to %s", old.Phase, got.Phase)
	}
	if !old.StartTime.Equal(got.StartTime) {
		return fmt.Errorf("start time changed from %v to %v", old.StartTime, got.StartTime)
	}
	for _, c := range got.Conditions {
		before := findCondition(old.Conditions, c.Type)
		if before == nil {
			continue
		}
		moved := !before.LastTransitionTime.Equal(&c.LastTransitionTime)
		if changed := before.Status != c.Status; changed != moved {
			return fmt.Errorf("condition %s: status changed %v, transition time changed %v", c.Type, changed, moved)
		}
	}
	for _, s := range got.ContainerStatuses {
		before := findStatus(old.ContainerStatuses, s.Name)
		if before != nil && s.RestartCount < before.RestartCount {
			return fmt.Errorf("restart count of %s fell from %d to %d", s.Name, before.RestartCount, s.RestartCount)
		}
	}
	return nil
}

func TestPatch(t *testing.T) {
	now := metav1.NewTime(epoch)
	old := &v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: now},
		{Type: "example.com/gate", Status: v1.ConditionTrue},
	}}
	same := old.DeepCopy()
	same.Conditions[0], same.Conditions[1] = same.Conditions[1], same.Conditions[0]
	same.ContainerStatuses = []v1.ContainerStatus{}
	same.Conditions[1].LastTransitionTime = metav1.NewTime(epoch.Add(400 * time.Millisecond))
	if patch, err := Patch("u", old, same); err != nil || patch != nil {
		t.Errorf("noise makes a patch: %s, %v", patch, err)
	}
	next := old.DeepCopy()
	next.Phase = v1.PodRunning
	next.Conditions[0].Status = v1.ConditionTrue
	patch, err := Patch(types.UID("u"), old, next)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"example.com/gate"}],"conditions":[{"status":"True","type":"Ready"}],"phase":"Running"}}`
	if string(patch) != want {
		t.Errorf("patch = %s\nwant    %s", patch, want)
	}
}

func TestTerminationMessagesAreShared(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 4)}}
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	s := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: string(long)}}}}}
	normalize(p, &s)
	if got := len(s.ContainerStatuses[0].State.Terminated.Message); got != 3072 {
		t.Errorf("message of %d bytes, want 12 KiB / 4", got)
	}
	if got := cut("aä\xff", 2); got != "a" {
		t.Errorf("cut = %q", got)
	}
}
