// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// TestProperties lets random things happen to random pods and holds every plan
// against what the package promises; in the end each pod must come to rest.
func TestProperties(t *testing.T) {
	seeds := []uint64{
		11553, 18231, 20164, 20488, 23043, // an earlier instance comes to life late
		500, // a pod with claims is deleted while it is admitted
	}
	for seed := range uint64(400) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		if err := chaos(seed, 120); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzStep is the same with seeds of the fuzzer's choice.
func FuzzStep(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		if err := chaos(seed, 60); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}

func randomPod(r *rand.Rand) *v1.Pod {
	grace := int64(r.IntN(40))
	source := pod.SourceAPI
	if r.IntN(4) == 0 {
		source = pod.SourceFile
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "default", UID: "uid-1"}}
	p.Annotations = map[string]string{pod.ConfigSourceAnnotation: source}
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[r.IntN(3)]
	p.Spec.HostNetwork = r.IntN(5) == 0
	policy := []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	hook := &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{}}}
	for i := range r.IntN(3) {
		c := v1.Container{Name: fmt.Sprintf("i%d", i), Image: "img"}
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
			if r.IntN(2) == 0 {
				c.StartupProbe = &v1.Probe{}
			}
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(3) {
		c := v1.Container{Name: fmt.Sprintf("c%d", i), Image: fmt.Sprintf("img%d", r.IntN(2))}
		if r.IntN(3) == 0 {
			c.Lifecycle = hook
		}
		if r.IntN(2) == 0 {
			c.ResizePolicy = policy
		}
		if r.IntN(5) == 0 {
			c.RestartPolicy = &never
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if r.IntN(6) == 0 {
		deadline := int64(100 + r.IntN(200))
		p.Spec.ActiveDeadlineSeconds = &deadline
	}
	return p
}

// chaos is one life of a pod.
func chaos(seed uint64, events int) error {
	r := rand.New(rand.NewPCG(seed, 7))
	p := randomPod(r)
	if seed%4 == 0 {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}}
	}
	w := newWorld(p)
	w.order = rand.New(rand.NewPCG(seed, 11))
	w.late = func() bool { return r.IntN(2) == 0 }
	w.refuse = func() bool { return r.IntN(6) == 0 }
	for i := range events {
		happen(w, r)
		if seed%3 == 0 && i%20 == 0 && w.in.Resources.Held { // a pod with CPUs of its own comes or goes
			w.in.Resources.SharedCPUs = []string{"0", "0-1"}[i/20%2]
		}
		if err := w.held(); err != nil {
			return err
		}
		if w.forgot {
			return nil
		}
	}
	return rest(w, r)
}

// happen is one random thing.
func happen(w *world, r *rand.Rand) {
	keys := slices.Sorted(maps.Keys(w.in.Flights))
	switch n := r.IntN(34); {
	case n < 13 && len(keys) > 0:
		key := keys[r.IntN(len(keys))]
		var failed *Failed
		if r.IntN(5) == 0 {
			failed = &Failed{Reason: "Error", Message: "chance"}
		}
		if err := w.end(key, failed); err != nil {
			panic(err)
		}
	case n < 18:
		w.refresh()
	case n < 21:
		w.now = w.now.Add(time.Duration(r.IntN(20_000)) * time.Millisecond)
	case n < 23 && len(w.conts) > 0:
		c := w.conts[r.IntN(len(w.conts))]
		w.die(c.ID, []int32{0, 1, 42, 137}[r.IntN(4)])
	case n == 23 && len(w.conts) > 0:
		id := w.conts[r.IntN(len(w.conts))].ID
		w.in.Verdicts = maps.Clone(w.in.Verdicts)
		w.in.Verdicts[id] = Probes{Started: r.IntN(2) == 0, LivenessFailed: r.IntN(3) == 0, StartupFailed: r.IntN(6) == 0}
	case n == 24 && len(w.sandbox) > 0 && r.IntN(3) == 0:
		w.act(Action{Kind: StopSandbox, ID: w.sandbox[0].ID})
	case n == 25:
		if err := w.crash(); err != nil {
			panic(err)
		}
	case n == 33:
		w.comeLate()
	case n == 26:
		w.in.Network.Ready = r.IntN(4) > 0
		w.in.Volumes.Ready = w.in.Volumes.Listed && r.IntN(4) > 0
	case n == 27 && r.IntN(8) == 0:
		w.deleteIn(int64(r.IntN(40)))
	case n == 28 && r.IntN(10) == 0:
		w.in.Resources.Eviction = &Eviction{Reason: "Evicted", Grace: time.Duration(r.IntN(10)) * time.Second, At: w.now}
	case n == 30 && r.IntN(2) == 0:
		w.want(r)
	case n == 31:
		if w.away["room"] = r.IntN(3) == 0; w.sizes != nil {
			w.allocate()
		}
	case n == 32 && r.IntN(3) == 0 && w.in.Desired != nil:
		d := *w.in.Desired
		d.Begun = w.now
		w.in.Desired = &d
	case n == 29 && r.IntN(10) == 0:
		w.in.Config = Config{PodsComplete: r.IntN(2) == 0}
		w.in.Config.SourcesComplete = w.in.Config.PodsComplete && r.IntN(2) == 0
		w.in.Config.Unheard = !w.in.Config.PodsComplete && r.IntN(2) == 0
	}
}

// want changes what one container of the pod asks for.
func (w *world) want(r *rand.Rand) {
	if w.in.Desired == nil {
		return
	}
	p := w.asks.DeepCopy()
	c := &p.Spec.Containers[r.IntN(len(p.Spec.Containers))]
	name := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}[r.IntN(2)]
	c.Resources.Requests = maps.Clone(c.Resources.Requests)
	if c.Resources.Requests == nil {
		c.Resources.Requests = v1.ResourceList{}
	}
	c.Resources.Requests[name] = *resource.NewQuantity(int64(1+r.IntN(3)), resource.DecimalSI)
	p.Generation++
	w.desire(p)
}

func (w *world) deleteIn(grace int64) {
	if w.in.Desired == nil {
		return
	}
	p := w.asks.DeepCopy()
	at := metav1.NewTime(w.now)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	w.desire(p)
}

// held steps and holds the plan against the promises.
func (w *world) held() error {
	before := w.in
	w.in.Now, before.Now = w.now, w.now
	again := Step(before)
	if err := judging(before); err != nil {
		return err
	}
	if err := w.anyOrder(before, again); err != nil {
		return err
	}
	plan := w.stepOnce()
	if !reflect.DeepEqual(again, plan) {
		return fmt.Errorf("the same input gave two plans:\n%s%s", transcript(again, epoch, w.now), transcript(plan, epoch, w.now))
	}
	said := func(format string, args ...any) error {
		return fmt.Errorf("%s\n%s", fmt.Sprintf(format, args...), transcript(plan, epoch, w.now))
	}
	// What was decided is not decided again: with the plan begun and nothing new
	// known there is nothing to do.
	if more := Step(w.in); !plan.Again && (len(more.Start)+len(more.Cancel)+len(more.Events) > 0 || more.Facts.State != plan.Facts.State) {
		return said("and at once again:\n%s", transcript(more, epoch, w.now))
	}
	starts, stops := map[string]bool{}, map[string]bool{}
	for _, a := range plan.Start {
		switch a.Kind {
		case Start:
			starts[a.Container] = true
		case Update:
			for _, c := range a.Changes {
				starts[c.Container] = true
			}
		case Stop, PreStop:
			stops[a.Container] = true
		}
	}
	for name := range starts {
		if stops[name] {
			return said("%s is started and stopped", name)
		}
	}
	for _, a := range plan.Start {
		if f, ok := before.Flights[Action{Kind: opposite[a.Kind]}.Key()]; ok {
			return said("%s beside %s", a, f.Action)
		}
		if a.Kind.Creates() {
			if plan.Facts.State != Syncing {
				return said("%s in state %s", a, plan.Facts.State)
			}
			if !before.Observed.Verified {
				return said("%s on the word of an old record", a)
			}
			if plan.Facts.Admitted == nil {
				return said("%s before admission", a)
			}
		}
		switch a.Kind {
		case RunSandbox:
			if n := w.ready(); n > 0 {
				return said("a sandbox beside %d live ones", n)
			}
			if before.Config.Unheard {
				return said("a sandbox while the API server may not have the pod any more")
			}
		case Start:
			for _, c := range w.conts {
				if c.Name == a.Container && c.State != Exited && c.State != Created {
					return said("%s beside live %s", a, c.ID)
				}
			}
		case Remove:
			for _, c := range w.conts {
				if c.ID == a.ID && c.State == Running {
					return said("%s while it runs", a)
				}
			}
		case StopSandbox, RemoveSandbox:
			for _, c := range w.conts {
				if c.Sandbox == a.ID && c.State == Running {
					return said("%s under running %s", a, c.ID)
				}
			}
		case Settle:
			// The pod's cgroup shrinks: no container may have more than it is to have.
			for _, c := range w.conts {
				spec, _ := pod.FindContainer(before.pod(), c.Name)
				if size, known := w.given[c.ID]; c.State == Running && known && size != pod.SizeOf(before.pod(), spec) {
					return said("%s while %s has %v", a, c.ID, size)
				}
			}
		case Withdraw:
			for _, c := range w.conts {
				if c.State == Running {
					return said("volumes withdrawn under %s", c.ID)
				}
			}
		}
	}
	if s := plan.Facts.State; (s == Terminated || s == Released) && before.Observed.Current {
		for _, sandbox := range before.Observed.Sandboxes {
			if sandbox.Ready {
				return said("%s with %s ready", s, sandbox.ID)
			}
		}
		for _, c := range before.Observed.Containers {
			if c.State == Running {
				return said("%s with %s running", s, c.ID)
			}
		}
	}
	if was, is := before.Facts.Termination, plan.Facts.Termination; was != nil && is != nil && (is.Grace > was.Grace || is.Deadline.After(was.Deadline) && !was.Unseen && !unheard(before.Facts)) {
		return said("grace grew from %s to %s", was.Grace, is.Grace)
	}
	if plan.Facts.State == Released && before.Facts.State != Released && !(before.Volumes.Gone && before.Resources.Gone) {
		return said("released with volumes %+v, resources %+v", before.Volumes, before.Resources)
	}
	if !reachable(before.Facts.State, plan.Facts.State) {
		return said("from %s to %s", before.Facts.State, plan.Facts.State)
	}
	return nil
}

// opposite is what may be carried out late and undo an action.
var opposite = map[Kind]Kind{Withdraw: Declare, Release: Admit}

func (w *world) ready() (n int) {
	for _, s := range w.sandbox {
		if s.Ready {
			n++
		}
	}
	return n
}

// rest deletes the pod, lets everything work, and wants it gone.
func rest(w *world, r *rand.Rand) error {
	w.in.Config = Config{PodsComplete: true, SourcesComplete: true}
	w.in.Network.Ready = true
	if r.IntN(2) == 0 {
		w.deleteIn(30)
	} else {
		w.in.Desired = nil
	}
	for range 300 {
		if r.IntN(3) == 0 {
			w.comeLate()
		}
		if err := w.held(); err != nil {
			return err
		}
		if w.forgot {
			if len(w.conts)+len(w.sandbox) > 0 {
				return fmt.Errorf("forgotten with %v %v left", w.conts, w.sandbox)
			}
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(w.in.Flights)) {
			if err := w.end(key, nil); err != nil {
				return err
			}
		}
		w.refresh()
		if len(w.in.Flights) == 0 && !w.plan.WakeAt.IsZero() && w.plan.WakeAt.After(w.now) {
			w.now = w.plan.WakeAt
		}
		if s := w.in.Facts.State; (s == Released || s == Rejected) && len(w.in.Flights) == 0 {
			w.in.Desired = nil
		}
	}
	return fmt.Errorf("never at rest: %s", transcript(w.plan, epoch, w.now))
}

// rounds steps, and has all that was begun succeed, so many times.
func (w *world) rounds(n int) error {
	for range n {
		w.stepOnce()
		for _, key := range slices.Sorted(maps.Keys(w.in.Flights)) {
			if err := w.end(key, nil); err != nil {
				return err
			}
		}
		w.refresh()
	}
	return nil
}

// TestSteady: a pod that is up gives an empty plan, again and again.
func TestSteady(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "default", UID: "uid-1"}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "img"}}
	w := newWorld(p)
	if err := w.rounds(20); err != nil {
		t.Fatal(err)
	}
	plan := w.stepOnce()
	if len(plan.Start)+len(plan.Cancel)+len(plan.Events)+len(plan.Waits) > 0 || plan.Wait != nil || plan.Refresh || !plan.WakeAt.IsZero() {
		t.Errorf("a pod at rest has a plan:\n%s", transcript(plan, epoch, w.now))
	}
	// Nor has one that was resized.
	if err := settles(w, p); err != nil {
		t.Error(err)
	}
	if _, kind := pod.FindContainer(p, "web"); kind != pod.Regular {
		t.Errorf("kind %v", kind)
	}
}

// TestSizesOfAnotherAgent: what a kubelet gave to a container since the facts were written is
// what it has by resource's word, and nothing is done for it. A word that resource has given
// podworker alone is not that: it may be of an allocation before the last.
func TestSizesOfAnotherAgent(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "default", UID: "uid-1"}}
	p.Spec.Containers = []v1.Container{{
		Name: "web", Image: "img", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"memory": resource.MustParse("64Mi")}},
		ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}},
	}}
	w := newWorld(p)
	if err := w.rounds(20); err != nil {
		t.Fatal(err)
	}
	for _, assumed := range []bool{true, false} {
		c := w.in.Facts.Containers["web"]
		c.Size = &pod.Size{MemoryRequest: 32 << 20}
		w.in.Facts.Containers["web"], w.in.Resources.Assumed = c, assumed
		plan := w.stepOnce()
		want := int64(64 << 20)
		if assumed {
			want = 32 << 20
		}
		if got := plan.Facts.Containers["web"].Size.MemoryRequest; got != want || len(plan.Start) > 0 || !plan.Sized {
			t.Errorf("assumed %t: it has %d:\n%s", assumed, got, transcript(plan, epoch, w.now))
		}
	}
}

// settles resizes a pod that is up, and wants it at rest again with what it asked
// for.
func settles(w *world, p *v1.Pod) error {
	p = p.DeepCopy()
	p.Generation++
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("1")}
	w.desire(p)
	before := w.conts[0].ID
	if err := w.rounds(20); err != nil {
		return err
	}
	plan := w.stepOnce()
	if len(plan.Start)+len(plan.Cancel)+len(plan.Events)+len(plan.Waits) > 0 || plan.Wait != nil || plan.Refresh || !plan.WakeAt.IsZero() {
		return fmt.Errorf("resized, it has a plan:\n%s", transcript(plan, epoch, w.now))
	}
	if got := w.given[before]; len(w.conts) != 1 || got.CPURequest != 1000 || w.in.Resources.Settled != 1 {
		return fmt.Errorf("%v, %v", got, w.in.Resources)
	}
	return nil
}

// unheard reports whether something was tried while the runtime was away.
func unheard(f Facts) bool {
	for _, failure := range f.Failures {
		if failure.Away {
			return true
		}
	}
	return false
}
