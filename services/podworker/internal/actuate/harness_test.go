// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/test/fakeclock"
	"github.com/sextant-node/sextant/test/fakecri"
)

// node is an Actuator on a fake runtime with real files.
type node struct {
	*Actuator
	t       *testing.T
	rt      *fakecri.Runtime
	clock   *clocktesting.FakeClock // nil: real time
	facts   *facts
	events  *recorder
	conf    *kubeletconfig.Config
	root    string
	metrics *prometheus.Registry
}

// facts are the lookups of a node, as values.
type facts struct {
	objects  map[string]any // "ConfigMap/ns/name"
	services []*v1.Service
	node     NodeFacts
	docker   []byte
}

func (f *facts) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	if o, ok := f.objects["ConfigMap/"+namespace+"/"+name].(*v1.ConfigMap); ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (f *facts) Secret(namespace, name string) (*v1.Secret, error) {
	if o, ok := f.objects["Secret/"+namespace+"/"+name].(*v1.Secret); ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (f *facts) DockerConfig() ([]byte, error)          { return f.docker, nil }
func (f *facts) Services(string) ([]*v1.Service, error) { return f.services, nil }
func (f *facts) Node() NodeFacts                        { return f.node }

type fixed struct{ c *kubeletconfig.Config }

func (f fixed) Config() *kubeletconfig.Config { return f.c }

// recorder keeps events as "reason object: message".
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Emit(_ context.Context, e *eventv1.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	about := e.GetObject().GetKind()
	if f := e.GetObject().GetFieldPath(); f != "" {
		about = strings.TrimSuffix(strings.TrimPrefix(f, "spec."), "}")
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s: %s", e.GetType()[:1], e.GetReason(), about, e.GetMessage()))
	return nil
}

// take returns the events so far and forgets them.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.events = nil }()
	return r.events
}

// binder stands in for volume: it hands out the plain path.
type binder struct{ asked []SubpathRequest }

func (b *binder) Subpath(_ context.Context, req SubpathRequest) (string, error) {
	b.asked = append(b.asked, req)
	if req.SubPath == "forbidden" {
		return "", fmt.Errorf("secret path of the node")
	}
	return filepath.Join(req.VolumePath, req.SubPath), nil
}

// start makes a node. With stepped its clock moves only by hand.
func start(t *testing.T, stepped bool, images ...fakecri.Image) *node {
	t.Helper()
	n := &node{
		t: t, facts: &facts{objects: map[string]any{}, node: NodeFacts{Name: "n1", IPs: []string{"192.0.2.1"}, MemoryCapacity: 1 << 30}},
		events: &recorder{}, conf: &kubeletconfig.Config{}, root: t.TempDir(), metrics: prometheus.NewRegistry(),
	}
	kubeletconfig.SetDefaults(&n.conf.Kubelet)
	none := ""
	n.conf.Kubelet.ResolverConfig = &none
	n.conf.Kubelet.ClusterDomain = "cluster.local"
	n.conf.Kubelet.ClusterDNS = []string{"10.96.0.10"}
	cfg := fakecri.Config{Images: images}
	var real clock.WithDelayedExecution = clock.RealClock{}
	if stepped {
		n.clock = clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		cfg.Clock, real = n.clock, n.clock
	}
	n.rt = fakecri.Start(t, cfg)
	conn := n.rt.Conn(t)
	n.Actuator = New(Config{RootDir: filepath.Join(n.root, "kubelet"), PodLogsDir: filepath.Join(n.root, "pods"), LegacyLogsDir: filepath.Join(n.root, "containers")}, Deps{
		Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn),
		Lookups: n.facts, Configuration: fixed{n.conf}, Events: n.events, Subpaths: &binder{}, Clock: real, Log: slog.New(slog.DiscardHandler),
		Metrics: n.metrics,
	})
	return n
}

// web is a pod of one container, made over by edits.
func web(edits ...func(*v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("uid-web")},
		Spec: v1.PodSpec{
			DNSPolicy: v1.DNSClusterFirst, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "web", Image: "fake/sleep", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// script makes the container of a pod run a command.
func script(command string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", command} }
}

// up makes sandbox and image and returns what its container is started with.
func (n *node) up(p *v1.Pod) ContainerSpec {
	n.t.Helper()
	ctx := n.ctx()
	sandbox := SandboxSpec{Pod: p, CgroupParent: "/kubepods/pod" + string(p.UID)}
	id, err := n.RunSandbox(ctx, sandbox)
	if err != nil {
		n.t.Fatal(err)
	}
	c := p.Spec.Containers[0]
	ref, err := n.EnsureImage(ctx, ImageSpec{Pod: p, Container: c.Name, Image: c.Image, Policy: c.ImagePullPolicy})
	if err != nil {
		n.t.Fatal(err)
	}
	return ContainerSpec{Sandbox: sandbox, SandboxID: id, Container: c.Name, ImageRef: ref, PodIPs: []string{"10.1.0.7"}}
}

// run starts the container of a pod.
func (n *node) run(p *v1.Pod) (id string) {
	n.t.Helper()
	id, err := n.StartContainer(n.ctx(), n.up(p))
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	n.t.Cleanup(cancel)
	return ctx
}

// waiters waits until count timers hang on the stepped clock.
func (n *node) waiters(count int) {
	n.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for n.clock.Waiters() < count {
		if time.Now().After(deadline) {
			n.t.Fatalf("%d timers on the clock, want %d", n.clock.Waiters(), count)
		}
	}
}

// tick lets the stepped clock run until done answers.
func (n *node) tick(done <-chan error) (err error) {
	n.t.Helper()
	fakeclock.Pass(n.t, n.clock, "an answer", func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	return err
}

// request is what the runtime was last asked by a method.
func request[T any](n *node, method string) T {
	n.t.Helper()
	calls := n.rt.Calls(fakecri.Match{Method: method})
	if len(calls) == 0 {
		n.t.Fatalf("%s was not called", method)
	}
	return calls[len(calls)-1].Request.(T)
}

func (n *node) wantEvents(want ...string) {
	n.t.Helper()
	if got := n.events.take(); !slices.Equal(got, want) {
		n.t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func wantReason(t *testing.T, err error, reason Reason, message string) {
	t.Helper()
	gotReason, gotMessage := ReasonOf(err)
	if gotReason != reason || gotMessage != message {
		t.Errorf("got %s: %s\nwant %s: %s", gotReason, gotMessage, reason, message)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func logDirOf(n *node, p *v1.Pod) string {
	return pod.PodLogDir(n.cfg.PodLogsDir, p.Namespace, p.Name, p.UID)
}
