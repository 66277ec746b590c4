// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/test/fakeapi"
)

func static(hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "s", UID: types.UID(hash), Annotations: map[string]string{pod.ConfigHashAnnotation: hash},
	}}
}

// TestMirror: the life of a mirror pod, with config hearing of it late.
func TestMirror(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		node := plan.Node{Name: "n1"}
		set := func(p *v1.Pod, known bool) {
			r.desk.SetStatic("default/s", plan.Static{
				Pod: p, Known: true, Status: ready, Node: node,
				Mirror: ObjectOf(r.cluster.Pod("default", "s")), MirrorKnown: known,
			})
			r.pass(0)
		}
		blind := func(p *v1.Pod) { // config has not heard of the mirror yet
			r.desk.SetStatic("default/s", plan.Static{Pod: p, Known: true, Status: ready, Node: node, MirrorKnown: true})
			r.pass(0)
		}
		set(static("h1"), true)
		r.requests() // no Node
		node.UID = "node-1"
		set(static("h1"), false)
		r.requests() // mirrors not read
		blind(static("h1"))
		want := []string{"create pods default/s", "patch pods/status default/s"}
		r.requests(want...)
		blind(static("h1"))
		r.requests(want...) // not twice
		set(static("h1"), true)
		r.requests(want...)

		r.cluster.RemovePod("default", "s") // kubectl delete --force
		blind(static("h1"))
		want = append(want, "create pods default/s", "patch pods/status default/s")
		r.requests(want...)

		blind(static("h2")) // edited, before config has heard of the second mirror
		want = append(want, "delete pods default/s", "create pods default/s", "patch pods/status default/s")
		r.requests(want...)
		if got := r.cluster.Pod("default", "s").Annotations[pod.ConfigMirrorAnnotation]; got != "h2" {
			t.Errorf("mirror of %q", got)
		}

		set(static("h2"), true)
		m := r.cluster.Pod("default", "s") // kubectl delete
		m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r.cluster.Put(m)
		set(static("h2"), true)
		want = append(want, "delete pods default/s", "create pods default/s", "patch pods/status default/s")
		r.requests(want...)

		set(nil, true) // the manifest goes
		want = append(want, "delete pods default/s")
		r.requests(want...)
	})
}

// TestMirrorSaysHowItsPodEnded: the manifest goes, and podworker has done with the pod before the
// status of its end is written. A try that fails does not keep the mirror.
func TestMirrorSaysHowItsPodEnded(t *testing.T) {
	end := status(v1.PodSucceeded, "False", "")
	for name, test := range map[string]struct {
		answer error
		want   []string
	}{
		"it is written":          {want: []string{"patch pods/status default/s", "delete pods default/s"}},
		"it is refused":          {answer: apierrors.NewBadRequest("no"), want: []string{"patch pods/status default/s", "delete pods default/s"}},
		"a webhook that is away": {answer: answers["a webhook that is away"], want: []string{"patch pods/status default/s", "delete pods default/s"}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				m := static("h1")
				m.Annotations[pod.ConfigMirrorAnnotation] = "h1"
				r.cluster.Put(m)
				s := plan.Static{Known: true, Mirror: ObjectOf(r.cluster.Pod("default", "s")), MirrorKnown: true, Last: end, Node: plan.Node{Name: "n1", UID: "node-1"}}
				r.desk.SetStatic("default/s", s) // before anything is written
				s.Last = nil
				r.desk.SetStatic("default/s", s)
				if test.answer != nil {
					r.hooked(test.answer, func(q fakeapi.Request) bool { return q.Verb == "patch" })
				}
				r.start()
				r.pass(time.Second)
				r.requests(test.want...)
			})
		})
	}
	t.Run("of another version", func(t *testing.T) {
		run(t, func(r *rig) {
			m := static("h1")
			m.Annotations[pod.ConfigMirrorAnnotation] = "h1"
			r.cluster.Put(m)
			s := plan.Static{Known: true, Mirror: ObjectOf(r.cluster.Pod("default", "s")), MirrorKnown: true, Last: end, Node: plan.Node{Name: "n1", UID: "node-1"}}
			r.desk.SetStatic("default/s", s)
			s.Pod, s.Status, s.Last = static("h1"), ready, nil // its manifest is back
			r.desk.SetStatic("default/s", s)
			r.start()
			r.pass(time.Second)
			r.requests("patch pods/status default/s")
			if got := r.cluster.Pod("default", "s").Status.Phase; got != v1.PodRunning {
				t.Errorf("phase %s", got)
			}
		})
	})
}

// TestMirrorAfterTheAPIServerIsBack: a static pod is edited, and all pods of the node have
// something to write, while the API server is away. The mirror is of the new version, with
// its status, within 5 s of the return.
func TestMirrorAfterTheAPIServerIsBack(t *testing.T) {
	run(t, func(r *rig) {
		r.limiter = flowcontrol.NewTokenBucketRateLimiterWithClock(50, 100, clockNow{}) // kubeAPIQPS, kubeAPIBurst
		r.cluster.Hook(func(ctx context.Context, _ fakeapi.Request) error {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			return nil
		})
		r.start()
		set := func(hash string, status *v1.PodStatus) {
			r.desk.SetStatic("default/s", plan.Static{
				Pod: static(hash), Known: true, Status: status, Node: plan.Node{Name: "n1", UID: "node-1"},
				Mirror: ObjectOf(r.cluster.Pod("default", "s")), MirrorKnown: true,
			})
		}
		set("h1", ready)
		r.pass(time.Second)
		r.cluster.Away(true)
		for i := range 110 {
			r.set(r.pod(fmt.Sprint("p", i)), unready)
		}
		set("h2", ready)
		r.pass(10 * time.Minute)
		r.cluster.Away(false)
		r.pass(5 * time.Second)
		m := r.cluster.Pod("default", "s")
		if m == nil || m.Annotations[pod.ConfigMirrorAnnotation] != "h2" || m.Status.Phase != v1.PodRunning {
			t.Errorf("mirror %+v", m)
		}
	})
}

// TestMirrorVanishes: a mirror that was deleted before config heard of it.
func TestMirrorVanishes(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		blind := func() {
			r.desk.SetStatic("default/s", plan.Static{Pod: static("h1"), Node: plan.Node{UID: "n"}, MirrorKnown: true})
			r.pass(0)
		}
		blind()
		r.cluster.RemovePod("default", "s")
		r.pass(echoLimit + time.Second)
		blind()
		r.requests("create pods default/s", "create pods default/s")
	})
}

// TestNameTaken: somebody else's pod has the mirror's name.
func TestNameTaken(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		r.pod("s")
		r.desk.SetStatic("default/s", plan.Static{Pod: static("h1"), Node: plan.Node{UID: "n"}, MirrorKnown: true})
		r.pass(time.Minute)
		if n := len(r.cluster.Requests("create", "")); n < 5 || n > 8 {
			t.Errorf("%d tries in a minute", n)
		}
		r.cluster.RemovePod("default", "s")
		r.pass(refusedRetries.Most)
		if r.cluster.Pod("default", "s") == nil {
			t.Error("no mirror although the name is free")
		}
	})
}
