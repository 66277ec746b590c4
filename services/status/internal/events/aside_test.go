// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sextant-node/sextant/test/fakeapi"
)

// trouble is what the API server may say to an event; nil is no answer.
var trouble = map[string]error{
	"a webhook that is away": apierrors.NewInternalError(errors.New("failed calling webhook")),
	"a webhook's 429":        apierrors.NewTooManyRequests("denied", 1),
	"no answer":              nil,
}

// hooked makes the API server answer so to the events of one pod, or of all.
func (r *rig) hooked(answer error, pod string) {
	r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
		if !strings.HasPrefix(q.Key, "default/"+pod) {
			return nil
		}
		if answer == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		return answer
	})
}

func (r *rig) recordedUpTo() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor.N
}

// TestOneEventHoldsUpNoOther: those that come after it are recorded, and it is when the
// trouble is over, also over a kill.
func TestOneEventHoldsUpNoOther(t *testing.T) {
	for name, answer := range trouble {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed: %t", name, killed), func(t *testing.T) {
				run(t, func(r *rig) {
					r.hooked(answer, "poison.")
					r.emit(event("poison", "Poison", ""))
					r.look()
					<-time.After(10 * time.Second) // nothing else is answered meanwhile
					busy := time.Second
					if answer == nil {
						busy += timeout // a try of that one
					}
					want := ""
					for i := range 5 {
						r.emit(event("web", fmt.Sprint("E", i), ""))
						r.look()
						if i == 0 {
							<-time.After(retries.Most * 3 / 2) // the pause: none is answered yet
						}
						<-time.After(busy)
						want += fmt.Sprintf("E%d/1 ", i)
						r.want(strings.TrimSpace(want))
					}
					if n := r.recordedUpTo(); n != 0 {
						t.Errorf("remembered as recorded up to %d, and the first is not", n)
					}
					if killed {
						r.kill()
					}
					r.cluster.Hook(nil)
					if killed {
						r.start()
						r.look()
					}
					<-time.After(timeout + retries.Most*3/2)
					synctest.Wait()
					r.want("Poison/1 " + strings.TrimSpace(want))
					if n := r.recordedUpTo(); n != 7 { // the sixth event, after the feed's first revision
						t.Errorf("remembered as recorded up to %d", n)
					}
				})
			})
		}
	}
}

// TestAnEventIsGivenUp: the API server takes all others, and this one never.
func TestAnEventIsGivenUp(t *testing.T) {
	for name, answer := range trouble {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.hooked(answer, "poison.")
				r.emit(event("poison", "Poison", ""))
				for i := range 10 {
					r.emit(event("web", fmt.Sprint("E", i), ""))
					r.look()
					<-time.After(time.Minute)
				}
				tries := 0
				for _, q := range r.cluster.Requests("", "events") {
					if strings.HasPrefix(q.Key, "default/poison.") {
						tries++
					}
				}
				if tries < maxTries || tries > maxTries+1 { // one in a quiet moment may not count
					t.Errorf("%d tries", tries)
				}
				if n := r.recordedUpTo(); n != 12 {
					t.Errorf("remembered as recorded up to %d", n)
				}
			})
		})
	}
}

// TestTroubleOfAll: an API server without its etcd for ten minutes costs no event.
func TestTroubleOfAll(t *testing.T) {
	for name, answer := range trouble {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.hooked(answer, "")
				want := ""
				for i := range 20 {
					r.emit(event("web", fmt.Sprint("E", i), ""))
					want += fmt.Sprintf("E%d/1 ", i)
					second()
				}
				r.look()
				<-time.After(10 * time.Minute)
				if n := len(r.cluster.Requests("", "events")); n > 150 {
					t.Errorf("%d tries in ten minutes", n)
				}
				r.cluster.Hook(nil)
				<-time.After(timeout + 2*retries.Most)
				synctest.Wait()
				r.want(strings.TrimSpace(want))
			})
		})
	}
}

// TestAsideIsBounded: of more events in trouble than there is room for those are given
// up that were tried most.
func TestAsideIsBounded(t *testing.T) {
	a, now := aside{}, time.Now()
	for i := range maxAside {
		if a.put(&pending{tries: i % 3}, true, now) != nil {
			t.Fatal("given up although there is room")
		}
	}
	if dropped := a.put(&pending{}, true, now); dropped == nil || dropped.tries != 2 || len(a.events) != maxAside {
		t.Errorf("%+v given up, %d left", dropped, len(a.events))
	}
}
