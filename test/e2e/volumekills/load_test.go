// SPDX-License-Identifier: Apache-2.0

package volumekills_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// How long a pod may take to get Ready or to go before it counts as stuck or lost:
// patience, from the last kill there was, and never longer than underKills.
const (
	patience   = 2 * time.Minute
	underKills = 10 * time.Minute
)

// load is a node with pods on it and a watch over them.
type load struct {
	t  *testing.T
	cp *harness.ControlPlane
	n  *harness.Node
	ns string

	mu       sync.Mutex
	last     map[string]*corev1.Pod // by name, as the API server told last
	gone     map[string]bool
	steady   map[string]bool // pods that nobody touches, once they are as they stay
	findings []judge.Finding // since the last look
	news     chan struct{}   // closed at the next news
	lastKill time.Time

	running  sync.RWMutex // held for reading while a request may be under way
	stopping context.CancelFunc
	churners sync.WaitGroup
}

// watch begins to look at what the API server tells of a node's pods.
func watch(t *testing.T, cp *harness.ControlPlane, n *harness.Node) *load {
	t.Helper()
	l := &load{
		t: t, cp: cp, n: n, ns: cp.Namespace(t), last: map[string]*corev1.Pod{}, gone: map[string]bool{}, steady: map[string]bool{},
		news: make(chan struct{}), stopping: func() {},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cp.Admin, 0, informers.WithNamespace(l.ns))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.saw(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { l.saw(obj.(*corev1.Pod)) },
		DeleteFunc: l.lost,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return l
}

// keep holds these pods to what they are from now on.
func (l *load) keep(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.steady[name] = true
	}
}

// found notes an error, unless it is the end.
func (l *load) found(ctx context.Context, kind judge.Kind, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.findings = append(l.findings, judge.Finding{Kind: kind, What: err.Error()})
}

func (l *load) create(ctx context.Context, pod *corev1.Pod) error {
	return l.request(func() error {
		_, err := l.cp.Admin.CoreV1().Pods(l.ns).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// request asks the API server for something, once it is there.
func (l *load) request(ask func() error) error {
	l.running.RLock()
	defer l.running.RUnlock()
	return ask()
}

// remove deletes a pod and waits until it is gone.
func (l *load) remove(ctx context.Context, name string) error {
	grace := int64(5)
	err := l.request(func() error {
		return l.cp.Admin.CoreV1().Pods(l.ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.until(ctx, "pod "+name+" to go", func() bool { return l.gone[name] })
}

// pause holds requests of the load back until resume.
func (l *load) pause()  { l.running.Lock() }
func (l *load) resume() { l.running.Unlock() }

func (l *load) saw(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last[pod.Name]
	l.last[pod.Name] = pod
	if l.steady[pod.Name] && before != nil {
		l.findings = append(l.findings, judge.Steady(before, pod)...)
	}
	l.tell()
}

func (l *load) lost(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod := obj.(*corev1.Pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[pod.Name] = true; l.steady[pod.Name] {
		l.findings = append(l.findings, judge.Finding{Kind: judge.Restart, What: "pod " + pod.Name + " is gone"})
	}
	l.tell()
}

// tell wakes those who wait; l.mu is held.
func (l *load) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

func (l *load) await(ctx context.Context, name string, is func(*corev1.Pod) bool) error {
	return l.until(ctx, "pod "+name, func() bool { return l.last[name] != nil && is(l.last[name]) })
}

// until waits for something that the watch tells; done is called with l.mu held.
func (l *load) until(ctx context.Context, what string, done func() bool) error {
	began := time.Now()
	for {
		l.mu.Lock()
		ok, news, limit := done(), l.news, limitOf(began, l.lastKill)
		l.mu.Unlock()
		if ok {
			return nil
		}
		left := time.Until(limit)
		if left <= 0 {
			return fmt.Errorf("%s: not within %s", what, time.Since(began).Round(time.Second))
		}
		timer := time.NewTimer(left)
		select {
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// limitOf is when something that began at a time counts as stuck.
func limitOf(began, lastKill time.Time) time.Time {
	limit, most := began.Add(patience), began.Add(underKills)
	if lastKill.After(began) {
		limit = lastKill.Add(patience)
	}
	if limit.After(most) {
		return most
	}
	return limit
}

// kills notes a kill: what waits has its time again.
func (l *load) kills() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastKill = time.Now()
}

func isReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// look says what was found since the last look, and what is twice in the runtime.
func (l *load) look() []judge.Finding {
	l.t.Helper()
	sandboxes, err := l.n.Runtime.Runtimes.ListPodSandbox(l.t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		l.t.Error(err)
	}
	containers, err := l.n.Runtime.Runtimes.ListContainers(l.t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		l.t.Error(err)
	}
	found := judge.Runtime(sandboxes.GetItems(), containers.GetContainers())
	l.mu.Lock()
	defer l.mu.Unlock()
	found = append(found, l.findings...)
	l.findings = nil
	return found
}

// end stops the churn and says what is left that should have gone.
func (l *load) end() (found []judge.Finding) {
	l.stopping()
	l.churners.Wait()
	l.mu.Lock()
	names := l.last
	l.steady = map[string]bool{}
	found = l.findings
	l.mu.Unlock()
	err := l.cp.Admin.CoreV1().Pods(l.ns).DeleteCollection(l.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err == nil {
		err = l.until(l.t.Context(), "all pods to go", func() bool { return len(l.gone) == len(names) })
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		found = append(found, judge.Finding{Kind: judge.Lost, What: err.Error()})
	}
	return found
}

// TestLimit: kills give time, but not for ever.
func TestLimit(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, c := range []struct{ kill, want time.Duration }{
		{-time.Minute, patience}, {time.Minute, time.Minute + patience}, {9 * time.Minute, underKills}, {time.Hour, underKills},
	} {
		if got := limitOf(began, began.Add(c.kill)).Sub(began); got != c.want {
			t.Errorf("killed after %s: %s, want %s", c.kill, got, c.want)
		}
	}
}
