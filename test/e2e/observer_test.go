// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// observer is what the API server has said about pods, nodes and Events since the
// start, every version of every object.
type observer struct {
	mu     sync.Mutex
	pods   map[string]*life[corev1.Pod] // by namespace/name
	nodes  map[string]*life[corev1.Node]
	events map[string]*life[corev1.Event]
}

// life is an object's versions, of every object that had the name.
type life[T any] struct {
	versions []seenAt[T]
	gone     bool
}

type seenAt[T any] struct {
	at     time.Time
	object *T
}

// observe follows them until the test ends.
func observe(t *testing.T, cp *harness.ControlPlane) *observer {
	t.Helper()
	o := &observer{pods: map[string]*life[corev1.Pod]{}, nodes: map[string]*life[corev1.Node]{}, events: map[string]*life[corev1.Event]{}}
	factory := informers.NewSharedInformerFactory(cp.Admin, 0)
	follow(t, o, factory.Core().V1().Pods().Informer(), o.pods)
	follow(t, o, factory.Core().V1().Nodes().Informer(), o.nodes)
	follow(t, o, factory.Core().V1().Events().Informer(), o.events)
	factory.Start(t.Context().Done())
	for kind, ok := range factory.WaitForCacheSync(t.Context().Done()) {
		if !ok {
			t.Fatalf("no list of %v", kind)
		}
	}
	t.Cleanup(factory.Shutdown)
	return o
}

func follow[T any](t *testing.T, o *observer, informer cache.SharedIndexInformer, into map[string]*life[T]) {
	t.Helper()
	put := func(obj any, gone bool) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		l := into[key]
		if l == nil {
			l = &life[T]{}
			into[key] = l
		}
		l.versions = append(l.versions, seenAt[T]{time.Now(), obj.(*T)})
		l.gone = gone
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { put(obj, false) },
		UpdateFunc: func(_, obj any) { put(obj, false) },
		DeleteFunc: func(obj any) { put(obj, true) },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pod is the current version of a pod, nil if there is none.
func (o *observer) pod(ns, name string) *corev1.Pod { return current(o, o.pods, ns+"/"+name) }

// node is the current version of a node, nil if there is none.
func (o *observer) node(name string) *corev1.Node { return current(o, o.nodes, name) }

func current[T any](o *observer, from map[string]*life[T], key string) *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := from[key]
	if l == nil || l.gone {
		return nil
	}
	return l.versions[len(l.versions)-1].object
}

// history is every version of a pod so far, also of a deleted one.
func (o *observer) history(ns, name string) []*corev1.Pod {
	return since(o, o.pods, ns+"/"+name, time.Time{})
}

// since is every version of an object that was seen after a moment.
func since[T any](o *observer, from map[string]*life[T], key string, after time.Time) []*T {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*T
	if l := from[key]; l != nil {
		for _, v := range l.versions {
			if v.at.After(after) {
				all = append(all, v.object)
			}
		}
	}
	return all
}

// when is the moment a pod was first seen as it should be; zero for never.
func (o *observer) when(ns, name string, check func(*corev1.Pod) error) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.pods[ns+"/"+name]; l != nil {
		for _, v := range l.versions {
			if check(v.object) == nil {
				return v.at
			}
		}
	}
	return time.Time{}
}

// goneAt is the moment a pod was seen to be gone; zero while it is there.
func (o *observer) goneAt(ns, name string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.pods[ns+"/"+name]; l != nil && l.gone {
		return l.versions[len(l.versions)-1].at
	}
	return time.Time{}
}

// eventsOf are the Events about an object of a namespace, each as it was last.
func (o *observer) eventsOf(ns, name string) []*corev1.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*corev1.Event
	for _, l := range o.events {
		e := l.versions[len(l.versions)-1].object
		if e.InvolvedObject.Namespace == ns && e.InvolvedObject.Name == name {
			all = append(all, e)
		}
	}
	return all
}
