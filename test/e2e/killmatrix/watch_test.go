// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// patience is how long a pod may take to get Ready or to go, faults and all,
// before it counts as stuck or lost.
const patience = 2 * time.Minute

// witness sees every version of the pods and of the node that the API server
// tells, and every container that the runtime starts.
type witness struct {
	t *testing.T
	n *harness.Node

	mu       sync.Mutex
	pods     map[string]*corev1.Pod // by name, as the API server told last
	gone     map[string]time.Time   // when, by name
	steady   map[string]bool        // pods that the test leaves alone, from when they have reached their state
	node     *corev1.Node
	census   judge.Census
	told     map[string]int // Events of the API by reason
	findings []judge.Finding
	news     chan struct{} // closed at the next news
	away     bool          // the API server is, so nobody can be late
	asking   sync.WaitGroup
	hogs     bool // there are some
}

// pod is one as the API server told last.
func (w *witness) pod(name string) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name]
}

func newWitness(t *testing.T, cp *harness.ControlPlane, n *harness.Node, ns string, hogs bool) *witness {
	t.Helper()
	w := &witness{
		t: t, n: n, hogs: hogs, pods: map[string]*corev1.Pod{}, gone: map[string]time.Time{}, steady: map[string]bool{}, told: map[string]int{}, news: make(chan struct{}),
	}
	core := func() corev1client.CoreV1Interface { return cp.Admin.CoreV1() }
	node := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Name).String()}
	var listening sync.WaitGroup
	for _, f := range []*follower{
		{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core().Pods(ns).List(ctx, o)
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core().Pods(ns).Watch(ctx, o)
			},
			saw:  func(o runtime.Object) { w.sawPod(o.(*corev1.Pod)) },
			lost: func(o runtime.Object) { w.lostPod(o.(*corev1.Pod)) },
		},
		{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core().Events(ns).List(ctx, o)
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core().Events(ns).Watch(ctx, o)
			},
			saw:  func(o runtime.Object) { w.sawEvent(o.(*corev1.Event)) },
			lost: func(runtime.Object) {},
		},
		{
			all: node,
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core().Nodes().List(ctx, o)
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core().Nodes().Watch(ctx, o)
			},
			saw:  func(o runtime.Object) { w.sawNode(o.(*corev1.Node)) },
			lost: func(runtime.Object) { w.find(judge.Flip, errors.New("the node is gone from the API")) },
		},
	} {
		listening.Go(func() { f.run(t.Context()) })
	}
	listening.Go(w.listen)
	t.Cleanup(listening.Wait)
	return w
}

// listen hears the runtime's events until the test ends, through its restarts.
func (w *witness) listen() {
	ctx := w.t.Context()
	for ctx.Err() == nil {
		stream, err := w.n.Runtime.Runtimes.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		for err == nil {
			var e *runtimeapi.ContainerEventResponse
			if e, err = stream.Recv(); err == nil {
				w.mu.Lock()
				w.findings = append(w.findings, w.census.Saw(e)...)
				w.mu.Unlock()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // it is away
		}
	}
}

func (w *witness) sawPod(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.pods[pod.Name]
	w.pods[pod.Name] = pod
	switch {
	case before == nil || isHog(pod):
	case w.steady[pod.Name]:
		w.findings = append(w.findings, judge.Steady(before, pod)...)
	default:
		w.findings = append(w.findings, judge.Progress(before, pod)...)
	}
	w.tell()
}

func (w *witness) lostPod(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[pod.Name] = time.Now(); w.steady[pod.Name] {
		w.findings = append(w.findings, judge.Finding{Kind: judge.Restart, What: "pod " + pod.Name + " is gone"})
	}
	w.tell()
	w.asking.Go(func() { w.survivors(pod) })
}

// survivors finds containers that run on after their pod has gone from the API.
func (w *witness) survivors(pod *corev1.Pod) {
	list, err := w.n.Runtime.Runtimes.ListContainers(w.t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err == nil && len(list.GetContainers()) > 0 { // a runtime that is away is asked at the end
		w.find(judge.Lost, fmt.Errorf("pod %s is gone from the API, and %d of its containers run", pod.Name, len(list.GetContainers())))
	}
}

func (w *witness) sawNode(node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hogs {
		node = besideHogs(node)
	}
	if w.node != nil {
		w.findings = append(w.findings, judge.Node(w.node, node)...)
	}
	w.node = node
}

// sawEvent counts what is told to users. A Killing of a pod that nobody deleted is
// a restart.
func (w *witness) sawEvent(e *corev1.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[e.Type+" "+e.Reason]++
	if w.steady[e.InvolvedObject.Name] && e.Reason != "Unhealthy" {
		w.findings = append(w.findings, judge.Finding{Kind: judge.Restart, What: fmt.Sprintf("event of %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)})
	}
}

// find notes a finding, if there is an error.
func (w *witness) find(kind judge.Kind, err error) {
	if err == nil || w.t.Context().Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = append(w.findings, judge.Finding{Kind: kind, What: err.Error()})
}

// take hands out what was found since it was called last.
func (w *witness) take() []judge.Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.findings
	w.findings = nil
	return found
}

// tell wakes those who wait; w.mu is held.
func (w *witness) tell() {
	close(w.news)
	w.news = make(chan struct{})
}

// absent says whether the API server is away.
func (w *witness) absent(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
	w.tell()
}

// settle declares pods steady.
func (w *witness) settle(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.steady[name] = true
	}
}

func (w *witness) await(ctx context.Context, name string, is func(*corev1.Pod) bool) error {
	err := w.until(ctx, "pod "+name, func() bool { return w.pods[name] != nil && is(w.pods[name]) })
	if err != nil && ctx.Err() == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if pod := w.pods[name]; pod != nil {
			err = fmt.Errorf("%w: %s", err, pod.Status.String())
		}
	}
	return err
}

func (w *witness) awaitGone(ctx context.Context, name string) error {
	return w.until(ctx, "pod "+name+" to go", func() bool { return !w.gone[name].IsZero() })
}

// until waits for something that the watch tells; done is called with w.mu held.
func (w *witness) until(ctx context.Context, what string, done func() bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for was := false; ; {
		w.mu.Lock()
		ok, news, away := done(), w.news, w.away
		w.mu.Unlock()
		if ok {
			return nil
		}
		if was != away {
			was = away
			limit.Reset(patience)
		}
		select {
		case <-news:
		case <-limit.C:
			if away {
				limit.Reset(patience)
				continue
			}
			return fmt.Errorf("%s: not within %s", what, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// events are the Events told, by type and reason.
func (w *witness) events() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, reason := range slices.Sorted(maps.Keys(w.told)) {
		lines = append(lines, fmt.Sprintf("%d %s", w.told[reason], reason))
	}
	return lines
}

func isReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// runs reports whether a pod's container does, though it is not Ready.
func runs(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
}
