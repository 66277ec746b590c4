// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// critical is a pod with the priority of a system's.
func critical(uid, cpu string) *v1.Pod {
	p := burstable(uid, cpu)
	priority := pod.SystemCriticalPriority
	p.Spec.Priority = &priority
	return p
}

// preempted are the pods with a verdict, by UID.
func (r *rig) preempted() []string {
	var all []string
	for uid, item := range r.pods.Items() {
		if item.GetEviction().GetReason() == "Preempting" {
			all = append(all, uid)
		}
	}
	return all
}

// TestPreemption: a critical pod that does not fit waits for the victim that is closest to
// what is missing, and is admitted when that is gone; no second one goes, and other pods
// are refused as ever.
func TestPreemption(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	seconds := int64(7)
	for uid, cpu := range map[string]string{"small": "500m", "right": "1", "large": "2"} {
		p := burstable(uid, cpu)
		p.Spec.TerminationGracePeriodSeconds = &seconds
		if got := decision(r.admit(p, false)); !strings.HasPrefix(got, "admitted") {
			t.Fatalf("%s: %s", uid, got)
		}
	}
	const waits = "not yet: waiting for pods to end: ns/name-right"
	for range 2 { // podworker asks again whenever something changes
		if got := decision(r.admit(critical("system", "1500m"), false)); got != waits {
			t.Errorf("%s, want %s", got, waits)
		}
	}
	var e *resourcev1.Eviction
	r.Eventually("a verdict", func() bool { item, _ := r.pods.Get("right"); e = item.GetEviction(); return e != nil })
	if e.GetReason() != "Preempting" || e.GetMessage() != "Preempted in order to admit critical pod" || e.GetGraceSeconds() != seconds || e.GetSignal() != "" {
		t.Errorf("verdict %v", e)
	}
	if got := decision(r.admit(burstable("late", "1"), false)); !strings.HasPrefix(got, "rejected OutOfcpu") {
		t.Errorf("a pod that is not critical: %s", got)
	}
	r.release("right")
	if got := decision(r.admit(critical("system", "1500m"), false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("when the victim is gone: %s", got)
	}
	r.Eventually("the victim is gone", func() bool { _, ok := r.pods.Get("right"); return !ok })
	if more := r.preempted(); len(more) > 0 {
		t.Errorf("preempted as well: %v", more)
	}
	measure.Expect(t, r.kit.Metrics, map[string]float64{`kubelet_preemptions{preemption_signal="cpu"}`: 1})
}

// TestRoomIsKeptForThePodThatWaits: while a victim ends, and when it is gone, a pod that
// comes later does not get the room that the critical one waits for; what is left beside
// that, it gets. A critical pod that comes later waits for a victim of its own, and the one
// that waits longest is first.
func TestRoomIsKeptForThePodThatWaits(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("first", "2"), false)
	r.admit(burstable("second", "1"), false)
	if got := decision(r.admit(critical("system", "1500m"), false)); got != "not yet: waiting for pods to end: ns/name-second" {
		t.Fatal(got)
	}
	later := func(uid, cpu, want string) {
		t.Helper()
		if got := decision(r.admit(burstable(uid, cpu), false)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", uid, got, want)
		}
	}
	later("early", "600m", "rejected OutOfcpu")
	r.Eventually("a verdict", func() bool { return slices.Equal(r.preempted(), []string{"second"}) })
	r.release("second")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("second"); return !ok })
	later("greedy", "600m", "rejected OutOfcpu")
	later("modest", "500m", "admitted")
	if got := decision(r.admit(critical("next", "100m"), false)); got != "not yet: waiting for pods to end: ns/name-modest" {
		t.Error(got)
	}
	if got := decision(r.admit(critical("system", "1500m"), false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("the one that waited longest: %s", got)
	}
	r.release("modest")
	r.Eventually("the other one", func() bool {
		return strings.HasPrefix(decision(r.admit(critical("next", "100m"), false)), "admitted")
	})
	later("last", "400m", "admitted")
}

// TestRoomIsNotKeptForThePodThatIsGone: one that was released, refused or taken back while
// it waited is owed nothing.
func TestRoomIsNotKeptForThePodThatIsGone(t *testing.T) {
	for what, end := range map[string]func(*rig){
		"released": func(r *rig) { r.release("system") },
		"refused": func(r *rig) {
			p := critical("system", "1500m")
			p.Spec.NodeName = "another"
			if got := decision(r.admit(p, false)); !strings.HasPrefix(got, "rejected NodeName") {
				t.Error(got)
			}
		},
		"taken back": func(r *rig) {
			r.desired.Delete(r.Context(), "system")
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, nil)
			standin.Set(r.House, r.desired, "system", &configv1.DesiredPod{})
			r.settle()
			r.hasDesired(1)
			r.admit(burstable("first", "4"), false)
			r.Eventually("it waits", func() bool {
				return decision(r.admit(critical("system", "1500m"), false)) == "not yet: waiting for pods to end: ns/name-first"
			})
			r.release("first")
			r.Eventually("the next is refused", func() bool {
				return strings.HasPrefix(decision(r.admit(burstable("early", "3"), false)), "rejected OutOfcpu")
			})
			end(r)
			r.Eventually("it has all the room", func() bool {
				return strings.HasPrefix(decision(r.admit(burstable("late", "3"), false)), "admitted")
			})
		})
	}
}

// TestPreemptionThatIsNoUse: pods stay where they would not make room enough, or where it is
// not room that a critical pod lacks.
func TestPreemptionThatIsNoUse(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("u", "2"), false)
	selective := critical("selective", "3")
	selective.Spec.NodeSelector = map[string]string{"disk": "none"}
	for want, p := range map[string]*v1.Pod{
		"rejected UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: " +
			"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]": critical("huge", "5"),
		"rejected NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector": selective,
	} {
		if got := decision(r.admit(p, false)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if item, _ := r.pods.Get("u"); item.GetEviction() != nil {
		t.Errorf("preempted for nothing: %v", item)
	}
}

// TestKillInAPreemption kills the service around the write of a verdict: in the end one
// pod has made room, and the critical one is admitted.
func TestKillInAPreemption(t *testing.T) {
	for _, point := range []string{"resource.evict=kill", "store.write=kill", "store.written=kill"} {
		t.Run(point, func(t *testing.T) {
			s := newSiege(t, 3)
			for _, uid := range []string{"a", "b"} {
				s.insist(&resourcev1.AdmitRequest{Pod: s.pod(uid, "2", "64Mi", 1)})
			}
			data, err := critical("system", "1500m").Marshal()
			if err != nil {
				t.Fatal(err)
			}
			asks := func(ctx context.Context) (admitted bool) {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				return s.call(ctx, &resourcev1.AdmitRequest{Pod: data}) == nil
			}
			var victims []string
			s.killedIn(point, func() bool {
				s.Eventually("a verdict", func() bool {
					if asks(s.Context()) {
						t.Error("admitted before there was room")
						return true
					}
					victims = s.preempted()
					return len(victims) > 0
				})
				return false
			})
			if len(victims) != 1 {
				t.Fatalf("preempted: %v", victims)
			}
			s.insist(&resourcev1.ReleaseRequest{Uid: victims[0]})
			s.Eventually("the critical pod is admitted", func() bool { return asks(s.Context()) })
			if more := s.preempted(); len(more) > 0 && more[0] != victims[0] {
				t.Errorf("preempted as well: %v", more)
			}
		})
	}
}
