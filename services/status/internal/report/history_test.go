// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// lists makes config list a view of a pod, which the desk is shown again after each
// answer, as the loop of pods does.
func (r *rig) lists(p *v1.Pod, s *v1.PodStatus) {
	r.mu.Lock()
	r.settled = func() { r.set(p, s) }
	r.mu.Unlock()
	r.set(p, s)
}

// restored is a pod as it was listed before the API server's state went back to that.
func restored(p *v1.Pod, s *v1.PodStatus) *v1.Pod {
	old := p.DeepCopy()
	old.ResourceVersion = "9000000"
	old.Status = *s
	return old
}

// TestVersionsWentBack: after a restore of etcd versions are lower than they were. Each
// status is written once, whoever tells first: config, which lists the pod again, or
// the answer to a write; and what others write after that is seen.
func TestVersionsWentBack(t *testing.T) {
	for _, tt := range []struct {
		name     string
		was      *v1.PodStatus // at the API server, before
		relisted bool          // config lists the restored pod before there is something to write
		most     int
	}{
		{"something to write, and config has not heard", pending, false, 1},
		{"something to write, and config has heard", pending, true, 2},
		{"nothing to write, and config has heard", ready, true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.cluster.Hook(func(ctx context.Context, _ fakeapi.Request) error {
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond):
					}
					return nil
				})
				r.start()
				p := r.pod("a")
				r.lists(restored(p, tt.was), tt.was)
				r.pass(time.Second)
				if tt.relisted {
					r.lists(p, tt.was)
				}
				now := func() *v1.Pod { return r.cluster.Pod("default", "a") }
				view := p
				if !tt.relisted {
					view = restored(p, tt.was)
				}
				r.lists(view, ready)
				r.pass(time.Minute)
				if n := len(r.cluster.Requests("patch", "")); n < 1 || n > tt.most {
					t.Errorf("%d patches in a minute, want 1 to %d", n, tt.most)
				}
				if got := now().Status.Phase; got != v1.PodRunning {
					t.Errorf("phase %s", got)
				}
				n := len(r.cluster.Requests("patch", ""))
				r.lists(now(), ready) // config has caught up
				r.pass(time.Minute)
				if got := len(r.cluster.Requests("patch", "")); got != n {
					t.Errorf("%d patches although nothing is to be said", got-n)
				}
				stomped := now()
				stomped.Status.Conditions = nil
				r.lists(r.cluster.Put(stomped), ready)
				r.pass(time.Second)
				if len(now().Status.Conditions) == 0 {
					t.Error("what another wrote was not seen")
				}
			})
		})
	}
}

// TestMirrorOfAnotherHistory: the mirror that config lists is not in the restored state.
func TestMirrorOfAnotherHistory(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		m := r.pod("s")
		r.cluster.RemovePod("default", "s")
		old := ObjectOf(restored(m, pending))
		old.Mirror = "h1"
		set := func() {
			r.desk.SetStatic("default/s", plan.Static{Pod: static("h1"), Known: true, Status: ready, Node: plan.Node{UID: "n"}, Mirror: old, MirrorKnown: true})
		}
		r.settled = set
		set()
		r.pass(time.Minute)
		r.requests("patch pods/status default/s", "create pods default/s", "patch pods/status default/s")
	})
}

// forgetful is an API server that does not know a field of the status.
type forgetful struct{ *fakeapi.Cluster }

func (f forgetful) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	p, err := f.Cluster.PatchStatus(ctx, namespace, name, body)
	if err != nil {
		return nil, err
	}
	p.Status.Message = ""
	return f.Put(p), nil
}

// TestAcceptedAndNotShown: the API server accepts a status and has another one then.
// The same is sent again rarely; a change at once.
func TestAcceptedAndNotShown(t *testing.T) {
	run(t, func(r *rig) {
		r.api = forgetful{r.cluster}
		r.start()
		p := r.pod("a")
		says := func(c v1.ConditionStatus) *v1.PodStatus { return status(v1.PodRunning, c, "not known there") }
		r.lists(p, says("True"))
		r.pass(10 * time.Minute)
		if n := len(r.cluster.Requests("patch", "")); n < 10 || n > 30 {
			t.Errorf("%d patches in ten minutes", n)
		}
		for i := range 10 {
			ready := v1.ConditionStatus([]string{"False", "True"}[i%2])
			r.lists(r.cluster.Pod("default", "a"), says(ready))
			r.pass(100 * time.Millisecond)
			if got := r.cluster.Pod("default", "a"); got.Status.Conditions[0].Status != ready {
				t.Fatalf("change %s is not there: Ready is %s", strconv.Itoa(i), got.Status.Conditions[0].Status)
			}
		}
	})
}

// TestNotShownAndDeleted: a status that the API server does not show whole holds up neither
// the final delete, though that fails at first, nor those who wait until the API server knows
// the end.
func TestNotShownAndDeleted(t *testing.T) {
	run(t, func(r *rig) {
		r.api = forgetful{r.cluster}
		r.start()
		p := r.pod("a")
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		p = r.cluster.Put(p)
		end := status(v1.PodSucceeded, "False", "not known there")
		r.desk.SetPod("a", plan.Pod{Object: ObjectOf(p), Status: end})
		r.pass(100 * time.Millisecond)
		if reported, text := r.desk.State("a"); !reported || text != "" {
			t.Errorf("reported %v, error %q", reported, text)
		}
		r.requests("patch pods/status default/a")
		r.desk.SetPod("a", plan.Pod{Object: ObjectOf(r.cluster.Pod("default", "a")), Status: end, Released: true})
		r.pass(100 * time.Millisecond)
		r.requests("patch pods/status default/a", "delete pods default/a")
	})
	for name, set := range map[string]func(r *rig, p *v1.Pod, end *v1.PodStatus){
		"a pod": func(r *rig, p *v1.Pod, end *v1.PodStatus) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			r.desk.SetPod("a", plan.Pod{Object: ObjectOf(r.cluster.Put(p)), Status: end, Released: true})
		},
		"a mirror pod whose manifest went": func(r *rig, p *v1.Pod, end *v1.PodStatus) {
			p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "h1"}
			r.desk.SetStatic("default/a", plan.Static{Known: true, Mirror: ObjectOf(r.cluster.Put(p)), MirrorKnown: true, Last: end})
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.api = forgetful{r.cluster}
				r.cluster.Hook(func(_ context.Context, q fakeapi.Request) error {
					if q.Verb == "delete" && len(r.cluster.Requests("delete", "")) < 4 {
						return answers["a webhook that is away"]
					}
					return nil
				})
				r.start()
				set(r, r.pod("a"), status(v1.PodSucceeded, "False", "not known there"))
				r.pass(time.Minute)
				r.requests("patch pods/status default/a", "delete pods default/a", "delete pods default/a", "delete pods default/a", "delete pods default/a")
			})
		})
	}
}
