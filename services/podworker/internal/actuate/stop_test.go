// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

func preStop(h v1.LifecycleHandler) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &h} }
}

func execs(command ...string) v1.LifecycleHandler {
	return v1.LifecycleHandler{Exec: &v1.ExecAction{Command: command}}
}

func stops(n *node) (timeouts []int64) {
	for _, call := range n.rt.Calls(fakecri.Match{Method: "StopContainer"}) {
		timeouts = append(timeouts, call.Request.(*runtimeapi.StopContainerRequest).GetTimeout())
	}
	return timeouts
}

func TestStopTimeouts(t *testing.T) {
	for _, tc := range []struct {
		grace time.Duration
		want  int64
	}{{30 * time.Second, 30}, {1500 * time.Millisecond, 2}, {0, 2}, {-time.Second, 2}} {
		n := start(t, false)
		p := web()
		id := n.run(p)
		if err := n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: tc.grace}); err != nil {
			t.Fatal(err)
		}
		if got := stops(n); len(got) != 1 || got[0] != tc.want {
			t.Errorf("grace %s: timeouts %v, want %d", tc.grace, got, tc.want)
		}
	}
}

func TestStopIsShortened(t *testing.T) {
	n := start(t, true)
	p := web(script("ignore-term; sleep infinity"))
	id := n.run(p)
	first := make(chan error, 1)
	go func() {
		first <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Hour})
	}()
	n.waiters(1) // the runtime's hour
	second := make(chan error, 1)
	go func() {
		second <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: 5 * time.Second})
	}()
	n.waiters(2)
	n.clock.Step(5 * time.Second)
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if c := n.rt.Container("web", "web"); c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || c.GetExitCode() != 137 {
		t.Errorf("container is %s, exit %d", c.GetState(), c.GetExitCode())
	}
}

func TestStopIsNotLengthened(t *testing.T) {
	n := start(t, true)
	p := web(script("ignore-term; sleep infinity"))
	id := n.run(p)
	done := make(chan error, 2)
	kill := func(grace time.Duration) {
		done <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: grace})
	}
	go kill(5 * time.Second)
	n.waiters(1)
	go kill(time.Hour)
	n.clock.Step(5 * time.Second)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	if got := stops(n); got[0] != 5 {
		t.Errorf("timeouts %v", got)
	}
}

func TestStopTakenOver(t *testing.T) {
	n := start(t, true)
	p := web(script("ignore-term; sleep infinity"))
	id := n.run(p)
	ctx, cancel := context.WithCancel(n.ctx())
	first := make(chan error, 1)
	go func() {
		first <- n.StopContainer(ctx, KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Hour})
	}()
	n.waiters(1)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		second <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: 3 * time.Second})
	}()
	if err := n.rt.WaitFor(n.ctx(), func() bool { return len(n.rt.Signals(id)) >= 2 }); err != nil {
		t.Fatal(err)
	}
	if err := n.tick(second); err != nil {
		t.Error(err)
	}
}

func TestStopErrors(t *testing.T) {
	n := start(t, false)
	p := web()
	id := n.run(p)
	kill := KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Second}
	n.rt.Fail(fakecri.Match{Method: "StopContainer"}, 1, status.Error(codes.Internal, "shim"))
	wantReason(t, n.StopContainer(n.ctx(), kill), reason.KillContainerError, `stop container "web" of pod "web_default(uid-web)": shim`)
	n.rt.Fail(fakecri.Match{Method: "StopContainer"}, 1, status.Error(codes.NotFound, "gone"))
	if err := n.StopContainer(n.ctx(), kill); err != nil {
		t.Errorf("a container that is gone: %v", err)
	}
}

func TestPreStopRunsInsideTheGrace(t *testing.T) {
	n := start(t, true)
	p := web(script("ignore-term; sleep infinity"), preStop(execs("sleep", "1000000000")))
	id := n.run(p)
	n.events.take()
	done := make(chan error, 1)
	go func() {
		done <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: 30 * time.Second, RunPreStop: true})
	}()
	n.waiters(2) // hook, deadline
	if got := stops(n); len(got) != 0 {
		t.Fatalf("stopped while the hook runs: %v", got)
	}
	n.clock.Step(30 * time.Second)
	if err := n.rt.WaitFor(n.ctx(), func() bool { return len(n.rt.Signals(id)) > 0 }); err != nil {
		t.Fatal(err)
	}
	n.wantEvents("N Killing containers{web: Stopping container web") // the hook goes on
	if err := n.tick(done); err != nil {
		t.Fatal(err)
	}
	if got := stops(n); len(got) != 1 || got[0] != 2 {
		t.Errorf("timeouts %v, want the least", got)
	}
	n.wantEvents("W FailedPreStopHook containers{web: PreStopHook failed")
}

func TestPreStopIsShortened(t *testing.T) {
	n := start(t, true)
	p := web(preStop(execs("sleep", "1000000000")))
	id := n.run(p)
	done := make(chan error, 2)
	kill := func(grace time.Duration) {
		done <- n.StopContainer(n.ctx(), KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: grace, RunPreStop: true})
	}
	go kill(time.Hour)
	n.waiters(2) // hook, deadline
	go kill(0)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	if got := n.rt.Signals(id); len(got) != 1 || got[0] != "TERM" {
		t.Errorf("signals %v, want a TERM as soon as the grace was gone", got)
	}
}

func TestPreStopAlone(t *testing.T) {
	n := start(t, false)
	p := web(preStop(execs("touch", "/bye")))
	id := n.run(p)
	n.events.take()
	kill := KillSpec{Pod: p, Container: "web", ContainerID: id, Grace: time.Minute}
	if err := errors.Join(n.PreStop(n.ctx(), kill), n.StopContainer(n.ctx(), kill)); err != nil {
		t.Fatal(err)
	}
	n.wantEvents("N Killing containers{web: Stopping container web")
	if got := n.rt.Count(fakecri.Match{Method: "ExecSync"}); got != 1 {
		t.Errorf("the hook ran %d times", got)
	}
	kill.Grace = 0
	if err := n.PreStop(n.ctx(), kill); err != nil {
		t.Fatal(err)
	}
	if got := n.rt.Count(fakecri.Match{Method: "ExecSync"}); got != 1 {
		t.Error("the hook ran without grace")
	}
}

// TestPreStopWithoutARuntime: a hook that could not be run is due still, and the runtime's absence no
// failure of it.
func TestPreStopWithoutARuntime(t *testing.T) {
	n := start(t, false)
	p := web(preStop(execs("touch", "/bye")))
	kill := KillSpec{Pod: p, Container: "web", ContainerID: n.run(p), Grace: time.Minute}
	n.events.take()
	n.rt.Down()
	if err := n.PreStop(n.ctx(), kill); !Away(err) {
		t.Errorf("error %v", err)
	}
	n.wantEvents("N Killing containers{web: Stopping container web")
	n.rt.Up()
	if _, err := n.deps.Runtime.Version(n.ctx(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	kill.Told = true
	if err := n.PreStop(n.ctx(), kill); err != nil {
		t.Error(err)
	}
	n.wantEvents()
	if got := n.rt.Count(fakecri.Match{Method: "ExecSync"}); got != 1 {
		t.Errorf("the hook ran %d times", got)
	}
}

func TestOrphanIsStoppedByItsAnnotations(t *testing.T) {
	n := start(t, false)
	p := web(preStop(execs("true")))
	id := n.run(p)
	annotations, err := pod.ContainerAnnotations(p, &p.Spec.Containers[0], 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	orphan := web(func(p *v1.Pod) { p.Spec = v1.PodSpec{} })
	n.events.take()
	if err := n.StopContainer(n.ctx(), KillSpec{Pod: orphan, Container: "web", ContainerID: id, Annotations: annotations, Grace: time.Second, RunPreStop: true}); err != nil {
		t.Fatal(err)
	}
	if got := n.rt.Count(fakecri.Match{Method: "ExecSync"}); got != 1 {
		t.Error("the hook of the annotations did not run")
	}
	n.wantEvents("N Killing containers{web: Stopping container web")
}

func TestPostStart(t *testing.T) {
	n := start(t, false)
	p := web(func(p *v1.Pod) {
		h := execs("sh", "-c", "echo secret; exit 3")
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &h}
	})
	spec := n.up(p)
	n.events.take()
	id, err := n.StartContainer(n.ctx(), spec)
	why, message := ReasonOf(err)
	if why != reason.PostStartHookError || !strings.Contains(message, "exited with 3") || !strings.Contains(message, `Container "web" in Pod "web_default(uid-web)"`) {
		t.Errorf("got %s: %s", why, message)
	}
	n.wantEvents(
		"N Created containers{web: Container created", "N Started containers{web: Container started",
		"W FailedPostStartHook containers{web: PostStartHook failed", "N Killing containers{web: FailedPostStartHook",
	)
	if c := n.rt.Container("web", "web"); c.GetId() != id || c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("container after the failed hook: %v", c)
	}
}

func TestHTTPHook(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(http.StatusTeapot) // any answer will do
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL) // of httptest
	port := intstr.Parse(u.Port())
	for _, tc := range []struct {
		name   string
		scheme v1.URIScheme
		port   intstr.IntOrString
		event  bool
	}{
		{"by number", v1.URISchemeHTTP, port, false},
		{"by name", v1.URISchemeHTTP, intstr.FromString("web"), false},
		{"https answered by http", v1.URISchemeHTTPS, port, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false)
			h := v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/bye?now=1", Scheme: tc.scheme, Port: tc.port, HTTPHeaders: []v1.HTTPHeader{{Name: "X-Why", Value: "test"}, {Name: "Host", Value: "me.example"}}}}
			c := &v1.Container{Name: "web", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port.IntVal}}}
			got = nil
			if err := n.runHook(n.ctx(), hook{pod: web(), container: c, ips: []string{u.Hostname()}, handler: &h}); err != nil {
				t.Fatal(err)
			}
			if got == nil || got.URL.Path != "/bye" || got.URL.RawQuery != "now=1" || got.Header.Get("X-Why") != "test" || got.Host != "me.example" {
				t.Errorf("request %+v", got)
			}
			if events := n.events.take(); (len(events) == 1) != tc.event {
				t.Errorf("events %v", events)
			}
			fallbacks := map[bool]float64{true: 1}[tc.event]
			measure.Expect(t, n.metrics, map[string]float64{"kubelet_lifecycle_handler_http_fallbacks_total": fallbacks})
		})
	}
}

// TestRedirectsOfHooks: one within the host of the hook is followed, one to another host
// is the answer, and one that never ends is a failure.
func TestRedirectsOfHooks(t *testing.T) {
	asked := map[string]int{}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked["elsewhere"]++ }))
	defer elsewhere.Close()
	other, _ := url.Parse(elsewhere.URL) // of httptest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/out":
			http.Redirect(w, r, "http://localhost:"+other.Port()+"/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		}
	}))
	defer server.Close()
	for path, fails := range map[string]bool{"/here": false, "/out": false, "/round": true} {
		target, err := url.Parse(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := get(t.Context(), target, &v1.HTTPGetAction{}); (err != nil) != fails {
			t.Errorf("%s: %v", path, err)
		}
	}
	if asked["/there"] != 1 || asked["elsewhere"] != 0 || asked["/round"] != maxRedirects {
		t.Errorf("asked %v", asked)
	}
}

func TestBadHooks(t *testing.T) {
	n := start(t, false)
	for _, tc := range []struct {
		name string
		h    v1.LifecycleHandler
		want string
	}{
		{"tcp", v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}, "Cannot run handler"},
		{"unknown port", v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("nope")}}, `couldn't find port: "nope"`},
	} {
		err := n.runHook(n.ctx(), hook{pod: web(), container: &v1.Container{Name: "web"}, ips: []string{"127.0.0.1"}, handler: &tc.h})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestSleepHook(t *testing.T) {
	n := start(t, true)
	h := v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 10}}
	done := make(chan error, 1)
	go func() { done <- n.runHook(n.ctx(), hook{pod: web(), container: &v1.Container{}, handler: &h}) }()
	n.waiters(1)
	n.clock.Step(10 * time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
	measure.Expect(t, n.metrics, map[string]float64{"kubelet_sleep_action_terminated_early_total": 0})
	ctx, cancel := context.WithCancel(n.ctx())
	go func() { done <- n.runHook(ctx, hook{pod: web(), container: &v1.Container{}, handler: &h}) }()
	n.waiters(1)
	cancel()
	if err := <-done; err == nil {
		t.Error("a sleep cut short is none")
	}
	measure.Expect(t, n.metrics, map[string]float64{"kubelet_sleep_action_terminated_early_total": 1})
	h.Sleep.Seconds = 0
	if err := n.runHook(n.ctx(), hook{pod: web(), container: &v1.Container{}, handler: &h}); err != nil {
		t.Error(err)
	}
}
