// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/test/fakeapi"
)

var resource = schema.GroupResource{Resource: "pods"}

// answers are what the API server, or what is in front of it, may say to a write of one
// object, now and for ever.
var answers = map[string]error{
	"a webhook that is away": apierrors.NewInternalError(errors.New(`failed calling webhook "inject.example.com": connection refused`)),
	"a webhook that hangs":   apierrors.NewTimeoutError("webhook", 1),
	"a webhook's 503":        apierrors.NewServiceUnavailable("denied the request"),
	"a webhook's 429":        apierrors.NewTooManyRequests("denied the request", 1),
	"a proxy's 502":          apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", resource, "a", "bad gateway", 0, true),
	"a proxy's 404":          apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "a", "default backend - 404", 0, true),
	"no answer":              nil,
}

// hooked makes the API server answer one object so, after a webhook's time when there
// is no answer.
func (r *rig) hooked(answer error, of func(fakeapi.Request) bool) {
	r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
		if !of(q) {
			return nil
		}
		if answer == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		return answer
	})
}

// TestOneObjectHoldsUpNothing: an object whose every write fails is asked for alone, in
// a quiet moment of the node. What other pods have to say goes out meanwhile, and its
// own write when the trouble is over.
func TestOneObjectHoldsUpNothing(t *testing.T) {
	for name, answer := range answers {
		for _, kind := range []string{"patch", "create", "delete"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				run(t, func(r *rig) {
					r.hooked(answer, func(q fakeapi.Request) bool { return strings.HasSuffix(q.Key, "/s") })
					r.start()
					switch kind {
					case "patch":
						r.set(r.pod("s"), ready)
					case "create":
						r.desk.SetStatic("default/s", plan.Static{Pod: static("h1"), Known: true, Status: ready, Node: plan.Node{UID: "n"}, MirrorKnown: true})
					case "delete":
						p := r.pod("s")
						o := ObjectOf(p)
						o.Status, o.Deleting = done, true
						r.desk.SetPod("s", plan.Pod{Object: o, Released: true})
					}
					r.pass(20 * time.Second)
					for i := range 20 {
						p := r.pod(fmt.Sprint("p", i))
						r.set(p, ready)
						// Longer, if never, only for the first: the others were answered since.
						r.pass(absences.Most + time.Second)
						if got := r.cluster.Pod("default", p.Name).Status.Phase; got != v1.PodRunning {
							t.Fatalf("pod %d is %s at the API server", i, got)
						}
						r.pass(time.Minute)
					}
					tries := len(r.cluster.Requests(kind, "")) - 20
					if kind != "patch" {
						tries += 20
					}
					if tries < 45 || tries > 1300/3 {
						t.Errorf("%d tries in 21 minutes", tries)
					}
					r.cluster.Hook(nil)
					r.pass(15*time.Second + troubledRetries.Most) // the longest try, and the longest pause
					if r.desk.Pending() != 0 {
						t.Error("not written after the trouble")
					}
				})
			})
		}
	}
}

// TestSlowTrouble: each write of many objects takes a webhook's time and fails, so that
// there is always one of them that waits for its turn. Another pod's write goes first.
func TestSlowTrouble(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
			if !strings.HasPrefix(q.Key, "default/s") {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
			}
			return answers["a webhook that hangs"]
		})
		r.start()
		for i := range 100 {
			r.set(r.pod(fmt.Sprint("s", i)), ready)
		}
		r.pass(10 * time.Minute)
		r.set(r.pod("p"), ready)
		r.pass(10 * time.Second)
		if got := r.cluster.Pod("default", "p").Status.Phase; got != v1.PodRunning {
			t.Errorf("another pod is %s at the API server", got)
		}
	})
}

// TestManyObjectsInTrouble: more objects than there are requests at a time.
func TestManyObjectsInTrouble(t *testing.T) {
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.hooked(answer, func(q fakeapi.Request) bool { return strings.HasPrefix(q.Key, "default/s") })
				r.start()
				for i := range 20 {
					r.set(r.pod(fmt.Sprint("s", i)), ready)
				}
				r.pass(time.Minute)
				r.set(r.pod("p"), ready)
				r.pass(16 * time.Second) // for as long as a request without an answer may take
				if got := r.cluster.Pod("default", "p").Status.Phase; got != v1.PodRunning {
					t.Errorf("another pod is %s at the API server", got)
				}
			})
		})
	}
}
