// SPDX-License-Identifier: Apache-2.0

// Package load has pods on a node under kills: what the API server says of them is followed,
// and those that are to stay as they are are held to it.
package load

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
// Patience, from the last kill there was, and never longer than underKills.
const (
	Patience   = 2 * time.Minute
	underKills = 10 * time.Minute
)

// Load is a node with pods on it and a watch over them.
type Load struct {
	T    *testing.T
	CP   *harness.ControlPlane
	Node *harness.Node
	// NS is the namespace of the pods.
	NS string
	// Blind removes from a copy of a pod what may change while nothing is wrong; nil for
	// nothing.
	Blind func(*corev1.Pod)
	// Churners make pods come and go; End waits for them.
	Churners sync.WaitGroup

	mu       sync.Mutex
	last     map[string]*corev1.Pod // by name, as the API server told last
	gone     map[string]bool
	steady   map[string]bool // pods that the test leaves alone, from when they have reached their state
	findings []judge.Finding // since the last look
	news     chan struct{}   // closed at the next news
	lastKill time.Time

	running  sync.RWMutex // held for reading while a request may be under way
	stopping context.CancelFunc
}

// Watch begins to look at what the API server tells of a node's pods.
func Watch(t *testing.T, cp *harness.ControlPlane, n *harness.Node) *Load {
	t.Helper()
	l := &Load{
		T: t, CP: cp, Node: n, NS: cp.Namespace(t), last: map[string]*corev1.Pod{}, gone: map[string]bool{}, steady: map[string]bool{},
		news: make(chan struct{}), stopping: func() {},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cp.Admin, 0, informers.WithNamespace(l.NS))
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

// Keep holds these pods, and no others, to what they are from now on.
func (l *Load) Keep(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steady = map[string]bool{}
	for _, name := range names {
		l.steady[name] = true
	}
}

// Found notes an error, unless it is the end.
func (l *Load) Found(ctx context.Context, kind judge.Kind, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.findings = append(l.findings, judge.Finding{Kind: kind, What: err.Error()})
}

// Create makes a pod.
func (l *Load) Create(ctx context.Context, pod *corev1.Pod) error {
	return l.Request(func() error {
		_, err := l.CP.Admin.CoreV1().Pods(l.NS).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// Request asks the API server for something, once it is there.
func (l *Load) Request(ask func() error) error {
	l.running.RLock()
	defer l.running.RUnlock()
	return ask()
}

// Remove deletes a pod and waits until it is gone.
func (l *Load) Remove(ctx context.Context, name string) error {
	grace := int64(5)
	err := l.Request(func() error {
		return l.CP.Admin.CoreV1().Pods(l.NS).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.Until(ctx, "pod "+name+" to go", func() bool { return l.gone[name] })
}

// Pause holds requests of the load back until Resume.
func (l *Load) Pause() { l.running.Lock() }

// Resume lets them go on.
func (l *Load) Resume() { l.running.Unlock() }

func (l *Load) saw(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last[pod.Name]
	l.last[pod.Name] = pod
	if l.steady[pod.Name] && before != nil {
		if l.Blind != nil {
			before, pod = before.DeepCopy(), pod.DeepCopy()
			l.Blind(before)
			l.Blind(pod)
		}
		l.findings = append(l.findings, judge.Steady(before, pod)...)
	}
	l.tell()
}

// Told is a pod as the API server told last; nil if it did not.
func (l *Load) Told(name string) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[name]
}

func (l *Load) lost(obj any) {
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

// Tell wakes those who wait in Until: something they may wait for has changed.
func (l *Load) Tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell()
}

// tell wakes those who wait; l.mu is held.
func (l *Load) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// Await waits until a pod is so.
func (l *Load) Await(ctx context.Context, name string, is func(*corev1.Pod) bool) error {
	return l.Until(ctx, "pod "+name, func() bool { return l.last[name] != nil && is(l.last[name]) })
}

// Until waits for something that the watch tells; done is called with l.mu held.
func (l *Load) Until(ctx context.Context, what string, done func() bool) error {
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
	limit, most := began.Add(Patience), began.Add(underKills)
	if lastKill.After(began) {
		limit = lastKill.Add(Patience)
	}
	if limit.After(most) {
		return most
	}
	return limit
}

// Kills notes a kill: what waits has its time again.
func (l *Load) Kills() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastKill = time.Now()
	l.tell()
}

// IsReady reports whether a pod is Running and Ready.
func IsReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Look says what was found since the last look, and what is twice in the runtime.
func (l *Load) Look() []judge.Finding {
	l.T.Helper()
	sandboxes, err := l.Node.Runtime.Runtimes.ListPodSandbox(l.T.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		l.T.Error(err)
	}
	containers, err := l.Node.Runtime.Runtimes.ListContainers(l.T.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		l.T.Error(err)
	}
	found := judge.Runtime(sandboxes.GetItems(), containers.GetContainers())
	l.mu.Lock()
	defer l.mu.Unlock()
	found = append(found, l.findings...)
	l.findings = nil
	return found
}

// End stops the churn and says what is left that should have gone.
func (l *Load) End() (found []judge.Finding) {
	l.stopping()
	l.Churners.Wait()
	l.mu.Lock()
	names := l.last
	l.steady = map[string]bool{}
	found = l.findings
	l.mu.Unlock()
	err := l.CP.Admin.CoreV1().Pods(l.NS).DeleteCollection(l.T.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err == nil {
		err = l.Until(l.T.Context(), "all pods to go", func() bool { return len(l.gone) == len(names) })
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		found = append(found, judge.Finding{Kind: judge.Lost, What: err.Error()})
	}
	return found
}
