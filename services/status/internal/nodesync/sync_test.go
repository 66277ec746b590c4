// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// rig is the loop before a fake API server, on synthetic time.
type rig struct {
	t       *testing.T
	cluster *fakeapi.Cluster
	api     API // the cluster when nil
	sync    *Sync
	wake    signal.Signal
	stop    context.CancelFunc

	mu     sync.Mutex
	facts  Facts
	known  bool
	state  State
	events []string
	// milestones of the start, each once.
	milestones []string
}

func run(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, cluster: fakeapi.New(), known: true}
		r.facts = Facts{
			Register: true, Settled: true, Period: 10 * time.Second, Report: 5 * time.Minute,
			Registration: nodestatus.Registration{Name: "n1", OS: "linux", Arch: "amd64"},
			Addresses: func([]v1.NodeAddress) ([]v1.NodeAddress, error) {
				return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, nil
			},
			Input: nodestatus.Input{
				Name: "n1", Started: time.Now(), MaxImages: 50,
				Runtime:   &nodestatus.Runtime{Name: "containerd", Version: "2.2.0", Responding: true, Asked: true, Conditions: up(true)},
				Resources: &nodestatus.Resources{BootID: "boot-1", Capacity: v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("110")}},
				Sources:   []nodestatus.Source{},
			},
		}
		r.start()
		test(r)
		r.kill()
	})
}

// up are the conditions of a runtime with or without a network.
func up(network bool) []nodestatus.RuntimeCondition {
	return []nodestatus.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: network}}
}

func (r *rig) start() {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	r.wake = signal.New()
	api := r.api
	if api == nil {
		api = r.cluster
	}
	r.sync = New(Deps{
		Wake: r.wake,
		API:  api,
		Facts: func() (Facts, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.facts, r.known
		},
		Publish: func(s State) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.state = s
		},
		Emit: func(e nodestatus.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e.Reason)
		},
		Startup: r,
		Log:     slog.New(slog.DiscardHandler),
	})
	go func() {
		if err := r.sync.Run(ctx); err != nil {
			r.t.Errorf("node: %v", err)
		}
	}()
}

// The rig notes the milestones of a start.
func (r *rig) Attempt()    { r.reached("attempt") }
func (r *rig) Registered() { r.reached("registered") }
func (r *rig) Ready()      { r.reached("ready") }

func (r *rig) reached(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.milestones, what) {
		r.milestones = append(r.milestones, what)
	}
}

func (r *rig) kill() {
	r.stop()
	synctest.Wait()
}

func (r *rig) change(change func(f *Facts)) {
	r.mu.Lock()
	change(&r.facts)
	r.mu.Unlock()
	r.wake.Send()
}

func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// published is the newest state.
func (r *rig) published() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// news are the requests and events since the last call.
func (r *rig) news() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, q := range r.cluster.Requests("", "") {
		parts = append(parts, q.Verb+" "+q.Resource)
	}
	parts = append(parts, r.events...)
	return strings.Join(parts, ", ")
}

func (r *rig) want(want string) {
	r.t.Helper()
	if got := r.news(); got != want {
		r.t.Errorf("happened: %s\nwant: %s", got, want)
	}
}

func (r *rig) ready() v1.ConditionStatus {
	for _, c := range r.cluster.Node("n1").Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

const fresh = "NodeHasSufficientMemory, NodeHasNoDiskPressure, NodeHasSufficientPID, NodeReady"

func TestRegister(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.want("create nodes, Starting, " + fresh)
		if r.ready() != v1.ConditionTrue || r.published().UID != r.cluster.Node("n1").UID {
			t.Errorf("Ready %s, state %+v", r.ready(), r.published())
		}
		if got := r.cluster.Node("n1").Status.Addresses[0].Address; got != "10.0.0.1" {
			t.Errorf("address %s", got)
		}
		if got := strings.Join(r.milestones, " "); got != "attempt registered ready" {
			t.Errorf("milestones: %s", got)
		}
		r.pass(20 * time.Minute)
		patches := len(r.cluster.Requests("patch", "nodes/status"))
		if patches < 3 || patches > 8 {
			t.Errorf("%d reports in twenty quiet minutes", patches)
		}
	})
}

func TestNotYet(t *testing.T) {
	run(t, func(r *rig) {
		r.mu.Lock()
		r.known = false
		r.mu.Unlock()
		r.pass(0)
		r.want("")
	})
	run(t, func(r *rig) {
		r.change(func(f *Facts) { f.Settled = false })
		r.kill()
		r.cluster = fakeapi.New()
		r.start()
		r.pass(time.Second)
		if n := len(r.cluster.Requests("", "")); n != 0 {
			t.Errorf("%d requests before the node knows itself", n)
		}
		r.change(func(f *Facts) { f.Settled = true })
		r.pass(time.Second)
		if n := len(r.cluster.Requests("create", "nodes")); n != 1 {
			t.Errorf("%d registrations", n)
		}
	})
}

// TestRestart: a restart writes nothing that is there.
func TestRestart(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.kill()
		status := r.cluster.Node("n1").Status
		r.change(func(f *Facts) {
			f.Journaled = &status
			f.Input.Started = time.Now()
			f.Input.Runtime, f.Input.Resources, f.Input.Sources = nil, nil, nil // neighbours restart too
		})
		r.start()
		r.pass(time.Minute)
		r.want("create nodes, create nodes, get nodes, Starting, " + fresh)
	})
}

func TestTakesOver(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.events = nil
		r.cluster.PutNode("n1", &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Labels: map[string]string{"kubernetes.io/arch": "arm64", "mine": "1"}},
			Spec:       v1.NodeSpec{Unschedulable: true},
			Status:     v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "boot-0"}},
		})
		r.start()
		r.pass(5 * time.Second)
		r.want("create nodes, get nodes, patch nodes/status, patch nodes/status, Starting, " + fresh + ", Rebooted")
		n := r.cluster.Node("n1")
		if n.Labels["kubernetes.io/arch"] != "amd64" || n.Labels["mine"] != "1" || !n.Spec.Unschedulable || r.ready() != v1.ConditionTrue {
			t.Errorf("%+v", n)
		}
	})
}

// TestNewMachine: a machine that remembers no Node takes one of its name over without the
// devices that the former machine had, also when its own resources, or the API server, were
// waited for.
func TestNewMachine(t *testing.T) {
	devices := v1.ResourceList{"example.com/gpu": resource.MustParse("8")}
	before := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "former"}, Status: v1.NodeStatus{Capacity: devices, Allocatable: devices}}
	for name, wait := range map[string]func(r *rig){
		"nothing": func(r *rig) { r.start() },
		"its resources": func(r *rig) {
			resources := r.facts.Input.Resources
			r.change(func(f *Facts) { f.Settled, f.Input.Resources = false, nil })
			r.start()
			r.pass(3 * time.Second)
			r.change(func(f *Facts) { f.Settled, f.Input.Resources = true, resources })
		},
		"the API server": func(r *rig) {
			r.cluster.Away(true)
			r.start()
			r.pass(time.Minute)
			r.cluster.Away(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.kill()
				r.cluster = fakeapi.New()
				r.cluster.PutNode("n1", before.DeepCopy())
				wait(r)
				r.pass(time.Minute)
				if n := r.cluster.Node("n1"); r.ready() != v1.ConditionTrue || n.UID != "former" || !n.Status.Allocatable.Name("example.com/gpu", resource.DecimalSI).IsZero() {
					t.Errorf("UID %s, allocatable %v", n.UID, n.Status.Allocatable)
				}
			})
		})
	}
}

func TestRegisterNodeFalse(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.change(func(f *Facts) { f.Register = false })
		r.start()
		r.pass(time.Minute)
		if n := len(r.cluster.Requests("create", "")); n != 0 {
			t.Errorf("registered %d times", n)
		}
		r.cluster.PutNode("n1", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}})
		r.pass(10 * time.Second)
		if r.ready() != v1.ConditionTrue || len(r.cluster.Node("n1").Labels) != 2 { // what every Node must have
			t.Errorf("Ready %q, labels %v", r.ready(), r.cluster.Node("n1").Labels)
		}
	})
}

// TestChange: a fact that changes is written at once, a burst of changes is not.
func TestChange(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		before := len(r.cluster.Requests("", ""))
		r.change(func(f *Facts) {
			f.Input.Runtime = &nodestatus.Runtime{Asked: true, Responding: true, Conditions: up(false)}
		})
		r.pass(calm)
		if r.ready() != v1.ConditionFalse {
			t.Errorf("Ready is %s", r.ready())
		}
		for range 100 {
			r.wake.Send()
			r.pass(10 * time.Millisecond)
		}
		if n := len(r.cluster.Requests("", "")) - before; n != 1 {
			t.Errorf("%d requests", n)
		}
		if !strings.HasSuffix(r.news(), "NodeNotReady") {
			t.Errorf("happened: %s", r.news())
		}
	})
}

// forgetful is an API server that does not know a field of the status, before which a
// webhook takes a label away.
type forgetful struct{ *fakeapi.Cluster }

func (f forgetful) forget(n *v1.Node, err error) (*v1.Node, error) {
	if err != nil {
		return nil, err
	}
	n.Status.DeclaredFeatures = nil
	delete(n.Labels, v1.LabelOSStable)
	return f.PutNode(n.Name, n), nil
}

func (f forgetful) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	return f.forget(f.Cluster.CreateNode(ctx, node))
}

func (f forgetful) PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	return f.forget(f.Cluster.PatchNodeStatus(ctx, name, body))
}

// TestAcceptedAndNotShown: what the API server does not take is told with each report and
// not once a second, though config lists the Node after each write; what is new is told at
// once, and what was not taken too when the API server takes it.
func TestAcceptedAndNotShown(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.api = forgetful{r.cluster}
		r.change(func(f *Facts) { f.Input.Features = []string{"A", "B"} })
		r.start()
		patches := func() int { return len(r.cluster.Requests("patch", "nodes/status")) }
		quiet := func(d time.Duration) {
			for range d / calm {
				r.pass(calm)
				r.change(func(f *Facts) { f.Node = r.cluster.Node("n1") })
			}
		}
		quiet(20 * time.Minute)
		if n := patches(); n < 3 || n > 8 {
			t.Errorf("%d reports in twenty quiet minutes", n)
		}
		before := patches()
		r.change(func(f *Facts) { f.Input.Port = 10251 })
		quiet(5 * time.Second)
		if n := patches() - before; n != 1 || r.cluster.Node("n1").Status.DaemonEndpoints.KubeletEndpoint.Port != 10251 {
			t.Errorf("a change is told %d times: %+v", n, r.cluster.Node("n1").Status.DaemonEndpoints)
		}
		before = patches()
		r.change(func(f *Facts) { f.Input.Features = []string{"A", "B", "C"} })
		quiet(5 * time.Second)
		if n := patches() - before; n != 1 {
			t.Errorf("a change that is not taken is told %d times", n)
		}
		r.kill()
		r.start() // does not know what the earlier process was answered
		before = patches()
		quiet(time.Minute)
		if n := patches() - before; n > 2 {
			t.Errorf("%d patches after a restart", n)
		}
		r.kill()
		r.api = nil // the next version of the API server
		r.start()
		quiet(10 * time.Minute)
		if n := r.cluster.Node("n1"); len(n.Status.DeclaredFeatures) != 3 || n.Labels[v1.LabelOSStable] != "linux" {
			t.Errorf("not told to an API server that takes it: %v, %v", n.Status.DeclaredFeatures, n.Labels)
		}
	})
}

func TestAway(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.cluster.Away(true)
		r.start()
		r.pass(5 * time.Minute)
		if n := len(r.cluster.Requests("", "")); n < 40 || n > 80 {
			t.Errorf("%d tries in five minutes", n)
		}
		if !strings.Contains(r.published().Err, "refused") || r.published().Status == nil {
			t.Errorf("state %+v", r.published())
		}
		r.cluster.Away(false)
		r.pass(retries.Most + time.Second)
		if r.ready() != v1.ConditionTrue || r.published().Err != "" {
			t.Errorf("Ready %q, error %q", r.ready(), r.published().Err)
		}
	})
}

// TestDeleted: a Node somebody deletes stays deleted.
func TestDeleted(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.cluster.PutNode("n1", nil)
		r.pass(20 * time.Minute)
		if n := len(r.cluster.Requests("create", "")); n != 1 || r.cluster.Node("n1") != nil {
			t.Errorf("registered %d times", n)
		}
		if r.published().UID != "" || r.published().Err == "" {
			t.Errorf("state %+v", r.published())
		}
		r.kill()
		r.start()
		r.pass(time.Second)
		if r.cluster.Node("n1") == nil {
			t.Error("not registered by another start")
		}
	})
}

// TestDeletedByAProxysWord: the 404 of a load balancer does not say that the Node was deleted.
func TestDeletedByAProxysWord(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.cluster.Hook(func(context.Context, fakeapi.Request) error {
			return apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "nodes"}, "n1", "default backend - 404", 0, true)
		})
		r.pass(20 * time.Minute)
		r.cluster.Hook(nil)
		r.pass(10 * time.Minute)
		if state := r.published(); state.UID == "" || state.Err != "" {
			t.Errorf("state %+v", state)
		}
	})
}

// TestOthers: what others write to the Node is kept, and cordons are told.
func TestOthers(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		n := r.cluster.Node("n1")
		n.Spec.Unschedulable = true
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse})
		n.Status.Conditions[0].Status = v1.ConditionTrue
		n = r.cluster.PutNode("n1", n)
		r.change(func(f *Facts) { f.Node = n })
		r.pass(calm)
		if !strings.HasSuffix(r.news(), "NodeNotSchedulable") {
			t.Errorf("happened: %s", r.news())
		}
		found := false
		for _, c := range r.cluster.Node("n1").Status.Conditions {
			found = found || c.Type == v1.NodeNetworkUnavailable
			if c.Type == v1.NodeMemoryPressure && c.Status != v1.ConditionFalse {
				t.Error("what somebody wrote into our condition is still there")
			}
		}
		if !found {
			t.Error("another's condition is gone")
		}
	})
}

func TestStandalone(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.change(func(f *Facts) { f.Standalone = true })
		r.start()
		r.pass(time.Minute)
		if n := len(r.cluster.Requests("", "")); n != 0 || r.published().Status == nil || !r.published().Standalone {
			t.Errorf("%d requests, state %+v", n, r.published())
		}
	})
}

func TestForbiddenToCreate(t *testing.T) {
	run(t, func(r *rig) {
		r.kill()
		r.cluster = fakeapi.New()
		r.cluster.PutNode("n1", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}})
		r.cluster.Hook(func(_ context.Context, q fakeapi.Request) error {
			if q.Verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", nil)
			}
			return nil
		})
		r.start()
		r.pass(time.Second)
		if r.ready() != v1.ConditionTrue {
			t.Errorf("Ready %q", r.ready())
		}
	})
}

// TestCordonToldOnce: whoever tells of it, config or the answer to a write.
func TestCordonToldOnce(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		n := r.cluster.Node("n1")
		n.Spec.Unschedulable = true
		n = r.cluster.PutNode("n1", n)
		r.change(func(f *Facts) { f.Input.Port = 10251 }) // something to write
		r.pass(calm)
		r.change(func(f *Facts) { f.Node = n })
		r.pass(time.Minute)
		if got := strings.Count(r.news(), "NodeNotSchedulable"); got != 1 {
			t.Errorf("told %d times: %s", got, r.news())
		}
	})
}

// TestHeartbeatOfBefore: after a restart the report is due when it would have been.
func TestHeartbeatOfBefore(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Second)
		for range 4 {
			r.kill()
			status := r.cluster.Node("n1").Status
			r.change(func(f *Facts) { f.Journaled = &status })
			<-time.After(3 * time.Minute)
			r.start()
			r.pass(time.Second)
		}
		// Twelve minutes of restarts, at most seven and a half between two reports.
		if n := len(r.cluster.Requests("patch", "nodes/status")); n < 1 || n > 4 {
			t.Errorf("%d reports", n)
		}
	})
}

// TestHeartbeatOfAnotherClock: a clock that was ahead was set right between two processes. The
// Node is reported at once, and as often as ever.
func TestHeartbeatOfAnotherClock(t *testing.T) {
	run(t, func(r *rig) {
		r.pass(time.Minute)
		r.kill()
		n := r.cluster.Node("n1")
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(time.Now().Add(12 * time.Hour))
		}
		r.cluster.PutNode("n1", n)
		status := n.Status
		r.change(func(f *Facts) { f.Journaled = &status })
		r.start()
		before := len(r.cluster.Requests("patch", "nodes/status"))
		r.pass(time.Hour)
		// At the start, at most seven and a half minutes later, and then every five.
		if n := len(r.cluster.Requests("patch", "nodes/status")) - before; n < 10 || n > 14 {
			t.Errorf("%d reports in an hour", n)
		}
	})
}
