// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// watcher notes when the API server first told that a pod is Running and Ready,
// and when that it is gone.
type watcher struct {
	mu          sync.Mutex
	ready, gone map[string]time.Time // by namespace/name
	uids        map[string]string
	news        chan struct{} // closed at the next news
}

func watchPods(t *testing.T, cp *harness.ControlPlane, ns string) *watcher {
	t.Helper()
	w := &watcher{ready: map[string]time.Time{}, gone: map[string]time.Time{}, uids: map[string]string{}, news: make(chan struct{})}
	factory := informers.NewSharedInformerFactoryWithOptions(cp.Admin, 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.saw,
		UpdateFunc: func(_, obj any) { w.saw(obj) },
		DeleteFunc: w.lost,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	for _, ok := range factory.WaitForCacheSync(t.Context().Done()) {
		if !ok {
			t.Fatal("no list of pods")
		}
	}
	t.Cleanup(factory.Shutdown)
	return w
}

func (w *watcher) saw(obj any) {
	now, pod := time.Now(), obj.(*corev1.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uids[pod.Name] = string(pod.UID)
	if _, known := w.ready[pod.Name]; known || pod.Status.Phase != corev1.PodRunning || !isReady(pod) {
		return
	}
	w.ready[pod.Name] = now
	w.tell()
}

func (w *watcher) lost(obj any) {
	now := time.Now()
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[obj.(*corev1.Pod).Name] = now
	w.tell()
}

// tell wakes those who wait; w.mu is held.
func (w *watcher) tell() {
	close(w.news)
	w.news = make(chan struct{})
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// patience is how long a pod may take before the benchmark gives up.
const patience = 10 * time.Minute

// await waits until all names are in one of the maps, and returns when the last
// one came.
func (w *watcher) await(t *testing.T, what string, in map[string]time.Time, names ...string) time.Time {
	t.Helper()
	last, err := w.wait(t, in, names)
	if err != nil {
		t.Fatalf("waiting for %d pods to be %s: %v", len(names), what, err)
	}
	return last
}

func (w *watcher) wait(t *testing.T, in map[string]time.Time, names []string) (last time.Time, err error) {
	limit := time.After(patience)
	for {
		var missing []string
		w.mu.Lock()
		last = time.Time{}
		for _, name := range names {
			at, ok := in[name]
			if !ok {
				missing = append(missing, name)
			} else if at.After(last) {
				last = at
			}
		}
		news := w.news
		w.mu.Unlock()
		if len(missing) == 0 {
			return last, nil
		}
		select {
		case <-news:
		case <-limit:
			return last, fmt.Errorf("not within %s: %v", patience, missing)
		case <-t.Context().Done():
			return last, errors.New("the test ends")
		}
	}
}

// is reports whether a name is in one of the maps.
func (w *watcher) is(in map[string]time.Time, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := in[name]
	return ok
}

// uid is what the API server calls a pod.
func (w *watcher) uid(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uids[name]
}
