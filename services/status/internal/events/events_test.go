// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/flowcontrol"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/feed"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/test/fakeapi"
	"github.com/sextant-node/sextant/test/feedtest"
)

func event(pod, reason, message string) *eventv1.Event {
	return &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: "default", Name: pod, Uid: pod + "-uid", FieldPath: "spec.containers{c}"},
		Type:   "Normal", Reason: reason, Message: message, Time: timestamppb.New(time.Now()),
	}
}

// rig is an owner of a feed of events, and a recorder that follows it.
type rig struct {
	t       *testing.T
	cluster *fakeapi.Cluster
	owner   *feed.Events
	feeds   feedtest.Local

	mu      sync.Mutex
	mode    Mode
	cursor  feed.Revision
	stop    context.CancelFunc
	replica *feed.Replica[*eventv1.Event]
	rec     *Recorder
}

func run(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, cluster: fakeapi.New(), owner: feed.NewEvents("podworker.events", "e1", nil), mode: Record}
		r.start()
		test(r)
		r.kill()
	})
}

// start is a start of the recorder's process.
func (r *rig) start() {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	r.mu.Lock()
	since := r.cursor
	r.mu.Unlock()
	r.rec = New(Deps{
		API: r.cluster, Limiter: flowcontrol.NewFakeAlwaysRateLimiter(),
		Node: func() (string, Mode) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return "n1", r.mode
		},
		Save: func(_ string, revision feed.Revision) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.cursor = revision
		},
		Log: slog.New(slog.DiscardHandler),
	})
	r.feeds = feedtest.Local{"podworker.events": r.owner}
	r.replica = feed.NewReplica(feed.ReplicaConfig{
		Feed: "podworker.events", Puller: r.feeds, Since: since,
	}, feed.Decoder(feed.Whole[*eventv1.Event]))
	r.rec.Follow(r.replica, nil)
	go func() {
		if err := r.rec.Run(ctx); err != nil {
			r.t.Errorf("recorder: %v", err)
		}
	}()
}

func (r *rig) kill() {
	r.stop()
	synctest.Wait()
}

func (r *rig) emit(e *eventv1.Event) {
	r.t.Helper()
	if err := r.owner.Emit(r.t.Context(), e); err != nil {
		r.t.Fatal(err)
	}
}

// look makes the recorder see what was emitted.
func (r *rig) look() {
	r.t.Helper()
	if err := r.replica.Pull(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) recorded() string {
	var parts []string
	for _, e := range r.cluster.Events() {
		parts = append(parts, fmt.Sprintf("%s/%d", e.Reason, e.Count))
	}
	return strings.Join(parts, " ")
}

func (r *rig) want(want string) {
	r.t.Helper()
	if got := r.recorded(); got != want {
		r.t.Errorf("recorded %q, want %q", got, want)
	}
}

func second() { <-time.After(time.Second) }

func TestRecord(t *testing.T) {
	run(t, func(r *rig) {
		r.emit(event("web", "Pulled", "there"))
		second()
		r.emit(event("web", "Started", "Container started"))
		r.look()
		r.want("Pulled/1 Started/1")
		e := r.cluster.Events()[0]
		if e.InvolvedObject.UID != "web-uid" || e.InvolvedObject.FieldPath != "spec.containers{c}" || e.Namespace != "default" {
			t.Errorf("about %+v in %s", e.InvolvedObject, e.Namespace)
		}
		if e.Source.Component != "kubelet" || e.Source.Host != "n1" || e.ReportingController != "kubelet" || e.ReportingInstance != "n1" {
			t.Errorf("from %+v", e.Source)
		}
	})
}

func TestRepeatsAreCounted(t *testing.T) {
	run(t, func(r *rig) {
		for range 3 {
			r.emit(event("web", "BackOff", "Back-off restarting"))
			second()
		}
		r.look()
		r.want("BackOff/3")
		r.cluster.ExpireEvents()
		r.emit(event("web", "BackOff", "Back-off restarting"))
		r.look()
		r.want("BackOff/4")
	})
}

func TestFloodIsThinned(t *testing.T) {
	run(t, func(r *rig) {
		for i := range 200 {
			r.emit(event("web", "Unhealthy", fmt.Sprintf("probe failed: %d", i)))
		}
		r.look()
		// The correlator's burst for one source and object.
		if n := len(r.cluster.Requests("", "events")); n > 26 {
			t.Errorf("%d requests for 200 events of one pod", n)
		}
	})
}

// TestOnce: over kills of either side each event is recorded once.
func TestOnce(t *testing.T) {
	run(t, func(r *rig) {
		r.emit(event("web", "One", ""))
		second()
		r.look()
		r.kill()
		r.emit(event("web", "Two", ""))
		second()
		r.start()
		r.look()
		r.want("One/1 Two/1")
		before := len(r.cluster.Requests("", ""))
		r.kill()
		r.start()
		r.look()
		if n := len(r.cluster.Requests("", "")) - before; n != 0 {
			t.Errorf("%d requests after a restart without news", n)
		}

		// A kill between recording and remembering: the same name again.
		r.kill()
		r.mu.Lock()
		r.cursor = feed.Revision{}
		r.mu.Unlock()
		r.start()
		r.look()
		r.want("One/1 Two/1")

		// The owner is killed: its feed begins again.
		r.owner = feed.NewEvents("podworker.events", "e2", nil)
		r.emit(event("web", "Three", ""))
		r.kill()
		r.start()
		r.look()
		r.want("One/1 Two/1 Three/1")
	})
}

// TestAgainAfterARestart: an event with a key, which its service emits again after a
// restart, is one event, whoever was restarted.
func TestAgainAfterARestart(t *testing.T) {
	run(t, func(r *rig) {
		kept := event("web", "Evicted", "")
		kept.Key = "evicted"
		r.emit(kept)
		r.look()
		r.emit(kept)
		r.look()
		r.want("Evicted/1")
		r.owner = feed.NewEvents("podworker.events", "e2", nil)
		r.emit(kept)
		r.kill()
		r.start()
		r.look()
		r.want("Evicted/1")
		later := proto.CloneOf(kept)
		later.Time = timestamppb.New(kept.GetTime().AsTime().Add(time.Second))
		r.emit(later)
		r.look()
		r.want("Evicted/1 Evicted/1")
	})
}

// TestAServiceIsKilled: what it emitted in the last moment is recorded all the same, and once.
func TestAServiceIsKilled(t *testing.T) {
	run(t, func(r *rig) {
		path, epoch := filepath.Join(t.TempDir(), "events"), 1
		next := func() {
			epoch++
			r.owner = feed.NewEvents("podworker.events", fmt.Sprint("e", epoch), nil)
			if err := r.owner.Keep(t.Context(), path, time.Now()); err != nil {
				t.Fatal(err)
			}
			r.feeds["podworker.events"] = r.owner
		}
		next()
		r.emit(event("web", "Created", ""))
		r.look()
		<-time.After(time.Millisecond)
		r.emit(event("web", "Started", ""))
		next()
		<-time.After(time.Millisecond)
		r.emit(event("web", "Killing", ""))
		r.look()
		r.want("Created/1 Started/1 Killing/1")
		next()
		r.look()
		r.want("Created/1 Started/1 Killing/1")

		// And the recorder as well, before it has remembered anything.
		<-time.After(time.Millisecond)
		r.emit(event("web", "Pulled", ""))
		r.kill()
		next()
		r.start()
		r.look()
		r.want("Created/1 Started/1 Killing/1 Pulled/1")
		<-time.After(time.Minute)
		next()
		if keys := r.owner.Keys(); len(keys) > 0 {
			t.Errorf("emitted again after a minute: %v", keys)
		}
	})
}

// TestHeardForAMinute: no longer than two.
func TestHeardForAMinute(t *testing.T) {
	h, at := heard{}, time.Now()
	for _, step := range []struct {
		after time.Duration
		key   string
		want  bool
	}{
		{0, "a", false}, {0, "a", true}, {59 * time.Second, "a", true}, {2 * time.Second, "b", false}, {50 * time.Second, "b", true},
		{0, "a", true}, {time.Hour, "a", false}, {0, "b", false},
	} {
		at = at.Add(step.after)
		if got := h.again(ID{"f", "e", step.key}, at); got != step.want {
			t.Errorf("%s after %s: heard before: %v", step.key, step.after, got)
		}
	}
	if len(h.now)+len(h.old) != 2 {
		t.Errorf("it remembers %v and %v", h.old, h.now)
	}
}

func TestAway(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Away(true)
		for i := range 5 {
			r.emit(event(fmt.Sprintf("p%d", i), "Started", ""))
		}
		r.look()
		<-time.After(10 * time.Minute)
		if n := len(r.cluster.Requests("", "")); n > 150 {
			t.Errorf("%d tries in ten minutes", n)
		}
		r.mu.Lock()
		if r.cursor != (feed.Revision{}) {
			t.Errorf("remembered as recorded: %v", r.cursor)
		}
		r.mu.Unlock()
		r.cluster.Away(false)
		<-time.After(20 * time.Second)
		r.want("Started/1 Started/1 Started/1 Started/1 Started/1")
		r.mu.Lock()
		if r.cursor.N != 6 {
			t.Errorf("recorded up to %v", r.cursor)
		}
		r.mu.Unlock()
	})
}

func TestAnswers(t *testing.T) {
	resource := schema.GroupResource{Resource: "events"}
	tests := []struct {
		name  string
		err   error
		tries int
	}{
		{"accepted", nil, 1},
		{"there already", apierrors.NewAlreadyExists(resource, "x"), 1},
		{"namespace is terminating", apierrors.NewForbidden(resource, "x", errors.New("terminating")), 1},
		{"no such namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"), 1},
		{"a proxy's 403", apierrors.NewGenericServerResponse(http.StatusForbidden, "post", resource, "x", "blocked", 0, true), maxTries + 1}, // the first was no try: nobody else was answered yet
		{"server in trouble", apierrors.NewInternalError(errors.New("etcd")), maxTries},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.cluster.Hook(func(_ context.Context, q fakeapi.Request) error {
					if strings.Contains(q.Key, "/first.") {
						return tt.err
					}
					return nil
				})
				r.emit(event("first", "Started", ""))
				r.emit(event("second", "Started", ""))
				r.look()
				<-time.After(5 * time.Minute)
				if n := len(r.cluster.Requests("", "")); n != tt.tries+1 {
					t.Errorf("%d requests, want %d and one for the next event", n, tt.tries)
				}
			})
		})
	}
}

func TestModes(t *testing.T) {
	run(t, func(r *rig) {
		set := func(m Mode) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mode = m
		}
		set(Wait)
		r.emit(event("web", "One", ""))
		r.look()
		r.want("")
		set(Record)
		r.rec.Look()
		synctest.Wait()
		r.want("One/1")
		set(Discard)
		r.emit(event("web", "Two", ""))
		r.look()
		r.want("One/1")
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.cursor.N != 3 {
			t.Errorf("discarded, but read up to %v only", r.cursor)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	r := New(Deps{Log: slog.New(slog.DiscardHandler)})
	for i := range maxQueue + 10 {
		r.Add("f", feed.Revision{Epoch: "e", N: uint64(i)}, []string{fmt.Sprint(i)}, []*eventv1.Event{{}})
	}
	if len(r.queue) > maxQueue || len(r.queue) < thinned || r.queue[len(r.queue)-1].revision.N != maxQueue+9 {
		t.Errorf("%d wait, the last is %v", len(r.queue), r.queue[len(r.queue)-1])
	}
}

// TestALoudObjectCostsNoOther: of a pod that has an event each moment what is too much is
// dropped, the oldest first; all others keep theirs.
func TestALoudObjectCostsNoOther(t *testing.T) {
	r := New(Deps{})
	added := 0
	add := func(pod, reason string) {
		added++
		r.Add("podworker.events", feed.Revision{}, []string{fmt.Sprint(added)}, []*eventv1.Event{event(pod, reason, "")})
	}
	add("quiet", "First")
	for i := range maxQueue {
		add("loud", fmt.Sprint(i))
	}
	add("quiet", "Last")
	quiet, loud := "", []string{}
	for _, q := range r.queue {
		switch q.event.GetObject().GetName() {
		case "quiet":
			quiet += q.event.GetReason() + " "
		case "loud":
			loud = append(loud, q.event.GetReason())
		}
	}
	if quiet != "First Last " || len(r.queue) > maxQueue || len(r.queue) < thinned || loud[len(loud)-1] != fmt.Sprint(maxQueue-1) || loud[0] == "0" {
		t.Errorf("%d wait; of quiet %q, of loud %d from %s to %s", len(r.queue), quiet, len(loud), loud[0], loud[len(loud)-1])
	}
}

// TestRepeatsAreDroppedFirst: pods that all tell the same again and again, faster than the API
// server takes it, lose nothing that they tell once.
func TestRepeatsAreDroppedFirst(t *testing.T) {
	r := New(Deps{})
	for i := range maxQueue {
		pod := fmt.Sprint("pod-", i%100)
		all := []*eventv1.Event{event(pod, "Started", ""), event(pod, "BackOff", "")}
		if i < 100 {
			all = append(all, event(pod, "Once", ""))
		}
		r.Add("podworker.events", feed.Revision{N: uint64(i)}, []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b"), fmt.Sprint(i, "c")}, all)
	}
	tells, marks := map[string]int{}, uint64(0)
	for _, q := range r.queue {
		if q.event == nil {
			marks = q.revision.N
		}
		tells[q.event.GetReason()]++
	}
	if tells["Once"] != 100 || tells["Started"] < 100 || tells["BackOff"] < 100 || len(r.queue) > maxQueue || marks != maxQueue-1 {
		t.Errorf("%d wait: %v, marked up to %d", len(r.queue), tells, marks)
	}
}

func TestName(t *testing.T) {
	a := ID{"podworker.events", "e1", "0000000000000001"}
	same, other := a, a
	other.Epoch = "e2"
	at := func(n int64) *eventv1.Event { return &eventv1.Event{Time: timestamppb.New(time.Unix(1700000000, n))} }
	if a.name("web", at(1)) != same.name("web", at(1)) || a.name("web", at(1)) == other.name("web", at(1)) {
		t.Error("a name is of one item, and always the same")
	}
	if other.name("web", at(1)) >= a.name("web", at(2)) || a.name("web", at(1)) >= other.name("web", at(2)) {
		t.Error("names do not sort by time")
	}
	long := a.name(strings.Repeat("a", 253), at(1))
	if errs := validation.IsDNS1123Subdomain(long); len(errs) > 0 {
		t.Errorf("%s: %v", long, errs)
	}
}

func TestNodeEvent(t *testing.T) {
	e := Convert(ID{}, &eventv1.Event{Object: &eventv1.ObjectReference{Kind: "Node", Name: "n1", Uid: "n1"}}, "n1", time.Now())
	if e.Namespace != "default" || e.InvolvedObject.Namespace != "" || e.InvolvedObject.UID != "n1" || e.Count != 1 {
		t.Errorf("%+v", e)
	}
}
