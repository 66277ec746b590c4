// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/test/fakeapi"
)

func status(phase v1.PodPhase, ready v1.ConditionStatus, message string) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, Message: message, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}
}

var (
	pending = status(v1.PodPending, "False", "")
	unready = status(v1.PodRunning, "False", "")
	ready   = status(v1.PodRunning, "True", "")
	done    = status(v1.PodSucceeded, "False", "")
)

// rig is a desk and a sender before a fake API server, on synthetic time.
type rig struct {
	t       *testing.T
	ctx     context.Context
	cluster *fakeapi.Cluster
	desk    *Desk
	limiter Limiter
	api     API // the cluster when nil
	mu      sync.Mutex
	settled func() // called after each answer
}

func run(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &rig{t: t, ctx: ctx, cluster: fakeapi.New(), limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
		r.desk = NewDesk(time.Now, func(string) {
			r.mu.Lock()
			settled := r.settled
			r.mu.Unlock()
			if settled != nil {
				settled()
			}
		})
		test(r)
		cancel()
		synctest.Wait()
	})
}

// start runs the sender; before it, changes pile up.
func (r *rig) start() {
	if r.api == nil {
		r.api = r.cluster
	}
	s := NewSender(SenderConfig{}, SenderDeps{Desk: r.desk, API: r.api, Limiter: r.limiter})
	go func() {
		if err := s.Run(r.ctx); err != nil {
			r.t.Errorf("sender: %v", err)
		}
	}()
	synctest.Wait()
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// pod makes a pod at the API server, and answers it as config would serve it.
func (r *rig) pod(name string) *v1.Pod {
	return r.cluster.Put(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	})
}

func (r *rig) set(p *v1.Pod, s *v1.PodStatus) {
	r.desk.SetPod(string(p.UID), plan.Pod{Object: ObjectOf(p), Status: s})
}

func (r *rig) requests(want ...string) {
	r.t.Helper()
	var got []string
	for _, q := range r.cluster.Requests("", "") {
		got = append(got, q.String())
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("requests:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestBurstIsOneWrite(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		p := r.pod("a")
		r.set(p, pending)
		r.pass(50 * time.Millisecond)
		r.set(p, unready)
		r.pass(40 * time.Millisecond)
		r.requests()
		r.set(p, ready)
		r.pass(0)
		r.requests("patch pods/status default/a")
		if got := r.cluster.Pod("default", "a").Status; got.Phase != v1.PodRunning {
			t.Errorf("status %v", got)
		}
		r.pass(time.Hour)
		r.requests("patch pods/status default/a")
		if reported, text := r.desk.State("a"); !reported || text != "" {
			t.Errorf("reported %v, error %q", reported, text)
		}
	})
}

func TestSettlingIsSentInTheEnd(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		p := r.pod("a")
		for i := range 10 { // changes all the time
			r.set(p, status(v1.PodPending, "False", fmt.Sprint(i)))
			r.pass(settle * 3 / 10)
		}
		if n := len(r.cluster.Requests("patch", "")); n < 2 || n > 3 {
			t.Errorf("%d writes in %s", n, 3*settle)
		}
		r.pass(settle)
		if got := r.cluster.Pod("default", "a").Status.Message; got != "9" {
			t.Errorf("last message %q", got)
		}
	})
}

// TestOrderAndParallel: in order per pod, in parallel across pods, and no reading.
func TestOrderAndParallel(t *testing.T) {
	run(t, func(r *rig) {
		var mu sync.Mutex
		order := map[string][]string{}
		r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
			<-time.After(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			order[q.Key] = append(order[q.Key], q.Body)
			return nil
		})
		r.start()
		var pods []*v1.Pod
		for i := range 100 {
			pods = append(pods, r.pod(fmt.Sprintf("p%02d", i)))
		}
		start := time.Now()
		for _, s := range []*v1.PodStatus{pending, unready, ready, unready, ready, done} {
			for _, p := range pods {
				r.set(p, s)
			}
			r.pass(7 * time.Millisecond)
		}
		for r.desk.Pending() > 0 {
			r.pass(time.Millisecond)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("100 pods took %s", took)
		}
		most, overlaps := r.cluster.Parallel()
		if most != 16 || overlaps != 0 {
			t.Errorf("%d requests in parallel, %d times two for one pod", most, overlaps)
		}
		for _, p := range pods {
			if got := r.cluster.Pod("default", p.Name).Status.Phase; got != v1.PodSucceeded {
				t.Errorf("%s ends as %s", p.Name, got)
			}
			if n := len(order["default/"+p.Name]); n > 4 {
				t.Errorf("%s was written %d times", p.Name, n)
			}
		}
		if all, patches := len(r.cluster.Requests("", "")), len(r.cluster.Requests("patch", "pods/status")); all != patches {
			t.Errorf("%d requests, %d of them patches", all, patches)
		}
	})
}

// TestUrgentFirst: with a rate limit, what is urgent overtakes.
func TestUrgentFirst(t *testing.T) {
	run(t, func(r *rig) {
		r.limiter = flowcontrol.NewTokenBucketRateLimiterWithClock(10, 1, clockNow{})
		for i := range 10 {
			r.set(r.pod(fmt.Sprintf("slow%d", i)), pending)
		}
		r.pass(settle)
		gone := r.pod("gone")
		gone.Status = *done
		gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r.cluster.Put(gone)
		r.set(r.pod("ready"), ready)
		r.desk.SetPod("gone", plan.Pod{Object: ObjectOf(gone), Released: true})
		r.start()
		r.pass(100 * time.Millisecond)
		got := r.cluster.Requests("", "")
		if len(got) != 2 || got[0].Key != "default/gone" || got[0].Verb != "delete" || got[1].Key != "default/ready" {
			t.Errorf("first requests %v", got)
		}
		r.pass(2 * time.Second)
		if n := len(r.cluster.Requests("", "")); n != 12 {
			t.Errorf("%d requests in all", n)
		}
	})
}

// clockNow is synthetic time for the rate limiter.
type clockNow struct{}

func (clockNow) Now() time.Time                  { return time.Now() }
func (clockNow) Since(t time.Time) time.Duration { return time.Since(t) }
func (clockNow) Sleep(d time.Duration)           { <-time.After(d) }

// TestRollout is the promise to users: 250 pods become ready within 5 s, a round trip
// takes 20 ms, the rate limits are the kubelet's.
func TestRollout(t *testing.T) {
	run(t, func(r *rig) {
		r.limiter = flowcontrol.NewTokenBucketRateLimiterWithClock(50, 100, clockNow{})
		readyAt, reportedAt := map[string]time.Time{}, map[string]time.Time{}
		var mu sync.Mutex
		r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
			<-time.After(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(q.Body, `"True"`) {
				reportedAt[q.Key] = time.Now()
			}
			return nil
		})
		r.start()
		const n = 250
		for i := range n {
			p := r.pod(fmt.Sprintf("p%03d", i))
			go func() {
				begin := 4500 * time.Millisecond * time.Duration(i) / n
				<-time.After(begin)
				r.set(p, pending)
				<-time.After(150 * time.Millisecond)
				r.set(p, unready)
				<-time.After(200 * time.Millisecond)
				mu.Lock()
				readyAt["default/"+p.Name] = time.Now()
				mu.Unlock()
				r.set(p, ready)
			}()
		}
		r.pass(20 * time.Second)
		var late []time.Duration
		for key, at := range readyAt {
			if reportedAt[key].IsZero() {
				t.Fatalf("%s was never reported", key)
			}
			late = append(late, reportedAt[key].Sub(at))
		}
		slices.Sort(late)
		if p99 := late[len(late)*99/100]; len(late) != n || p99 > 500*time.Millisecond {
			t.Errorf("%d pods, p99 %s", len(late), p99)
		}
		writes := map[string]int{}
		for _, q := range r.cluster.Requests("", "") {
			if writes[q.Key]++; q.Verb != "patch" || writes[q.Key] > 3 {
				t.Errorf("%s: request %d of its pod", q, writes[q.Key])
			}
		}
	})
}

// TestOutage: while the API server is away one request at a time asks for it; when it
// is back everything is there within seconds, the last status only.
func TestOutage(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Away(true)
		r.start()
		var pods []*v1.Pod
		for i := range 100 {
			p := r.pod(fmt.Sprintf("p%02d", i))
			pods = append(pods, p)
			r.set(p, pending)
		}
		r.pass(time.Minute)
		for _, p := range pods {
			r.set(p, ready)
		}
		r.pass(9 * time.Minute)
		tries := len(r.cluster.Requests("", ""))
		if tries < 60 || tries > 300 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		if _, text := r.desk.State("p00"); text != "" && !strings.Contains(text, "refused") {
			t.Errorf("error %q", text)
		}
		r.cluster.Away(false)
		r.pass(10 * time.Second)
		if n := r.desk.Pending(); n != 0 {
			t.Errorf("%d pods wait ten seconds after the API server is back", n)
		}
		if n := len(r.cluster.Requests("", "")) - tries; n != 100 {
			t.Errorf("%d writes for 100 pods", n)
		}
		for _, p := range pods {
			if r.cluster.Pod("default", p.Name).Status.Phase != v1.PodRunning {
				t.Errorf("%s was not written", p.Name)
			}
		}
	})
}

// TestAnswers: what each answer leads to.
func TestAnswers(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Invalid(field.NewPath("status"), "", "no")})
	otherUID := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "", "immutable")})
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("the object has been modified"))
	replaced := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("Precondition failed: UID in precondition: a"))
	tests := []struct {
		name  string
		err   error
		tries int // in ten seconds
		other bool
	}{
		{"accepted", nil, 1, true},
		{"not found", notFound, 1, true},
		{"another UID (422)", otherUID, 1, true},
		{"another UID (409)", replaced, 1, true},
		{"invalid", invalid, 4, true}, // 0, 1, 3, 7 s
		{"modified meanwhile", conflict, 4, true},
		{"forbidden", apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no")), 4, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.cluster.Hook(func(_ context.Context, q fakeapi.Request) error {
					if q.Key == "default/a" {
						return tt.err
					}
					return nil
				})
				r.start()
				r.set(r.pod("a"), ready)
				r.set(r.pod("b"), ready)
				r.pass(10 * time.Second)
				tries := 0
				for _, q := range r.cluster.Requests("", "") {
					if q.Key == "default/a" {
						tries++
					}
				}
				if tries != tt.tries {
					t.Errorf("%d tries, want %d", tries, tt.tries)
				}
				if other := r.cluster.Pod("default", "b").Status.Phase == v1.PodRunning; other != tt.other {
					t.Errorf("another pod written: %v", other)
				}
				if _, text := r.desk.State("a"); tt.tries > 1 && text == "" {
					t.Error("the error is not told")
				}
			})
		})
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		kind plan.Kind
		err  error
		want Outcome
	}{
		{plan.Patch, nil, Accepted},
		{plan.Patch, errors.New("connection refused"), Unreachable},
		{plan.Patch, context.DeadlineExceeded, Unreachable},
		{plan.Patch, apierrors.NewTooManyRequests("later", 1), Unreachable},
		{plan.Patch, apierrors.NewInternalError(errors.New("etcd")), Troubled},
		{plan.CreateMirror, apierrors.NewTimeoutError("webhook", 1), Troubled},
		{plan.Patch, apierrors.NewGenericServerResponse(http.StatusBadGateway, "patch", resource, "a", "", 0, true), Unreachable},
		{plan.Delete, apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", resource, "a", "default backend - 404", 0, true), Unreachable},
		{plan.Patch, apierrors.NewGenericServerResponse(http.StatusForbidden, "patch", resource, "a", "blocked", 0, true), Unreachable},
		{plan.CreateMirror, apierrors.NewGenericServerResponse(http.StatusNotFound, "post", resource, "a", "", 0, true), Unreachable},
		{plan.Patch, apierrors.NewServiceUnavailable("no"), Unreachable},
		{plan.Patch, apierrors.NewUnauthorized("no"), Unreachable},
		{plan.Delete, apierrors.NewNotFound(resource, "a"), Missing},
		{plan.DeleteMirror, apierrors.NewConflict(resource, "a", errors.New("the UID in the precondition (x) does not match")), Missing},
		{plan.CreateMirror, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kube-system"), Refused},
		{plan.CreateMirror, apierrors.NewAlreadyExists(resource, "a"), Refused},
	}
	for _, tt := range tests {
		if got := Judge(tt.kind, tt.err); got != tt.want {
			t.Errorf("%s, %v: %s, want %s", tt.kind, tt.err, got, tt.want)
		}
	}
}

// TestStuckObject: one object that is never answered holds up nothing but itself.
func TestStuckObject(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Hook(func(ctx context.Context, q fakeapi.Request) error {
			if q.Key == "default/stuck" {
				<-ctx.Done()
				return ctx.Err()
			}
			<-time.After(5 * time.Millisecond)
			return nil
		})
		r.start()
		r.set(r.pod("stuck"), ready)
		p := r.pod("b")
		states := []*v1.PodStatus{ready, unready}
		for i := range 120 { // two minutes
			r.set(p, states[i%2])
			r.pass(100 * time.Millisecond)
			if r.desk.entries["b"].action.Kind != plan.None {
				t.Fatalf("second %d: another pod waits", i)
			}
			r.pass(900 * time.Millisecond)
		}
	})
}

// TestEchoes: config's view arrives late and doubled.
func TestEchoes(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		first := r.pod("a")
		r.set(first, ready)
		r.pass(0)
		second := r.cluster.Pod("default", "a")
		for _, echo := range []*v1.Pod{first, first, second, second} {
			r.set(echo, ready)
			r.pass(time.Second)
		}
		r.requests("patch pods/status default/a")
		stomped := second.DeepCopy()
		stomped.Status.Conditions[0].Status = v1.ConditionFalse
		r.set(r.cluster.Put(stomped), ready)
		r.pass(0)
		r.requests("patch pods/status default/a", "patch pods/status default/a")
		if got := r.cluster.Pod("default", "a").Status.Conditions[0].Status; got != v1.ConditionTrue {
			t.Errorf("Ready is %s", got)
		}
	})
}

// TestFinalDelete: terminal status first, then the delete, once.
func TestFinalDelete(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		p := r.pod("a")
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		p = r.cluster.Put(p)
		r.desk.SetPod("a", plan.Pod{Object: ObjectOf(p), Status: ready})
		r.pass(0)
		r.desk.SetPod("a", plan.Pod{Object: ObjectOf(p), Status: done, Released: true})
		r.pass(0)
		r.desk.SetPod("a", plan.Pod{Object: ObjectOf(p), Status: done, Released: true}) // a late echo
		r.pass(0)
		shortened := ObjectOf(p) // the API server sets the grace to 0 first
		shortened.Version += 100
		r.desk.SetPod("a", plan.Pod{Object: shortened, Status: done, Released: true})
		r.pass(time.Minute)
		r.requests("patch pods/status default/a", "patch pods/status default/a", "delete pods default/a")
	})
}

// containers is a status with containers in states.
func containers(s *v1.PodStatus, all ...v1.ContainerState) *v1.PodStatus {
	s = s.DeepCopy()
	for i, state := range all {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{Name: fmt.Sprint(i), State: state})
	}
	return s
}

var (
	running    = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	terminated = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	creating   = waiting("ContainerCreating")
)

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

// TestTheStartOfContainersIsOneWrite: that a pod's containers come one after the other is told
// when all have come, or after a while; what keeps one is told soon.
func TestTheStartOfContainersIsOneWrite(t *testing.T) {
	for name, c := range map[string]struct {
		last  *v1.PodStatus
		after time.Duration
	}{
		"all run, none is ready": {containers(unready, running, running, running), settle},
		"all run":                {containers(ready, running, running, running), 0},
		"no image":               {containers(pending, running, running, waiting("ErrImagePull")), settle},
		"one ends":               {containers(pending, running, terminated, creating), settle},
		"one is slow":            {containers(pending, running, running, creating), starting - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.start()
				p := r.pod("a")
				begins := containers(pending, creating, creating, creating)
				begins.StartTime = &metav1.Time{Time: time.Now()}
				r.set(p, begins)
				r.pass(settle)
				r.requests("patch pods/status default/a")
				p = r.cluster.Pod("default", "a")
				next := func(s *v1.PodStatus) {
					s.StartTime = begins.StartTime
					r.set(p, s)
				}
				next(containers(pending, running, creating, creating))
				r.pass(time.Second)
				next(c.last)
				if c.after > 0 {
					r.pass(c.after - time.Millisecond)
					r.requests("patch pods/status default/a")
				}
				r.pass(2 * time.Millisecond)
				r.requests("patch pods/status default/a", "patch pods/status default/a")
				r.pass(time.Minute)
				r.requests("patch pods/status default/a", "patch pods/status default/a")
			})
		})
	}
}

// TestTheEndOfAPodIsOneWrite: what is told of a pod that is being deleted waits for all of
// it to be over, for a while; a probe that fails meanwhile is told at once.
func TestTheEndOfAPodIsOneWrite(t *testing.T) {
	run(t, func(r *rig) {
		r.start()
		p := r.pod("a")
		p.Status = *containers(ready, running, running)
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		p = r.cluster.Put(p)
		r.set(p, containers(status(v1.PodRunning, "True", "seen"), running, running))
		r.pass(ending - time.Second)
		r.set(p, containers(unready, running, terminated))
		r.pass(time.Second - time.Millisecond)
		r.requests()
		r.pass(time.Millisecond)
		r.requests("patch pods/status default/a")
		p = r.cluster.Pod("default", "a")
		r.set(p, containers(unready, terminated, terminated))
		r.pass(ending - time.Millisecond)
		r.set(p, containers(done, terminated, terminated))
		r.pass(0)
		r.requests("patch pods/status default/a", "patch pods/status default/a")
		r.pass(time.Minute)
		r.requests("patch pods/status default/a", "patch pods/status default/a")
	})
	run(t, func(r *rig) {
		r.start()
		p := r.pod("a")
		p.Status = *containers(ready, running)
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		p = r.cluster.Put(p)
		r.set(p, containers(unready, running))
		r.pass(0)
		r.requests("patch pods/status default/a")
	})
}

// TestGoneAndListed: a pod that is answered to be gone, and that config goes on listing, is
// written again.
func TestGoneAndListed(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Hook(func(context.Context, fakeapi.Request) error { return apierrors.NewNotFound(resource, "a") })
		r.start()
		p := r.pod("a")
		r.set(p, ready)
		r.pass(0)
		r.cluster.Hook(func(context.Context, fakeapi.Request) error { return nil })
		r.set(p, ready) // a late echo
		r.pass(echoLimit)
		r.set(p, ready)
		r.pass(0)
		r.requests("patch pods/status default/a")
		r.pass(time.Second)
		r.set(p, ready)
		r.pass(0)
		r.requests("patch pods/status default/a", "patch pods/status default/a")
		if reported, text := r.desk.State("a"); !reported || text != "" {
			t.Errorf("reported %v, error %q", reported, text)
		}
	})
}

// TestDropWhileBusy: order per key holds for one that is dropped and comes back.
func TestDropWhileBusy(t *testing.T) {
	run(t, func(r *rig) {
		r.cluster.Hook(func(context.Context, fakeapi.Request) error {
			<-time.After(time.Second)
			return nil
		})
		r.start()
		p := r.pod("a")
		r.set(p, ready)
		r.pass(0)
		r.desk.Drop("a")
		r.set(p, done)
		r.pass(5 * time.Second)
		if _, overlaps := r.cluster.Parallel(); overlaps != 0 {
			t.Error("two writes of one pod at a time")
		}
		if got := r.cluster.Pod("default", "a").Status.Phase; got != v1.PodSucceeded {
			t.Errorf("phase %s", got)
		}
		r.desk.Drop("a")
		if len(r.desk.entries) != 0 {
			t.Error("not dropped")
		}
	})
}

// TestReplayAfterTenMinutes: the API server is away for ten minutes, in which 250 pods
// run, become ready and end, and then takes 20 ms for each write, at the default rate.
// It has all of it within 10 s, in one write for each pod.
func TestReplayAfterTenMinutes(t *testing.T) {
	run(t, func(r *rig) {
		r.limiter = flowcontrol.NewTokenBucketRateLimiter(50, 100) // kubeAPIQPS, kubeAPIBurst
		r.start()
		var pods []*v1.Pod
		for i := range 250 {
			pods = append(pods, r.pod(fmt.Sprint("p", i)))
		}
		r.cluster.Away(true)
		for _, s := range []*v1.PodStatus{unready, ready, done} {
			for _, p := range pods {
				r.set(p, s)
			}
			r.pass(200 * time.Second)
		}
		r.cluster.Away(false)
		r.cluster.Hook(func(ctx context.Context, _ fakeapi.Request) error {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			return nil
		})
		before, began := len(r.cluster.Requests("", "")), time.Now()
		for r.desk.Pending() > 0 && time.Since(began) < time.Minute {
			r.pass(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("told after %s", took)
		} else {
			t.Logf("told after %s", took)
		}
		if n := len(r.cluster.Requests("", "")) - before; n != len(pods) {
			t.Errorf("%d writes for %d pods", n, len(pods))
		}
		for _, p := range pods {
			if got := r.cluster.Pod(p.Namespace, p.Name).Status.Phase; got != v1.PodSucceeded {
				t.Errorf("%s is %s", p.Name, got)
			}
		}
	})
}
