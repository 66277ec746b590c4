// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// follower hears of every version of some objects, from the last one on after
// the API server was away. An informer waits up to half a minute before it asks
// again.
type follower struct {
	all   metav1.ListOptions // which objects
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	saw   func(runtime.Object)
	lost  func(runtime.Object)

	version string // of the last event; empty: to be listed
	known   map[string]runtime.Object
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	f.known = map[string]runtime.Object{}
	for ctx.Err() == nil {
		if f.version != "" || f.relist(ctx) == nil {
			f.stream(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *follower) relist(ctx context.Context) error {
	list, err := f.list(ctx, f.all)
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	gone := f.known
	f.known = map[string]runtime.Object{}
	for _, o := range items {
		delete(gone, name(o))
		f.known[name(o)] = o
		f.saw(o)
	}
	for _, o := range gone {
		f.lost(o)
	}
	f.version = version(list)
	return nil
}

// stream takes events in until there are no more.
func (f *follower) stream(ctx context.Context) {
	o := f.all
	o.ResourceVersion, o.AllowWatchBookmarks = f.version, true
	w, err := f.watch(ctx, o)
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Error: // the version is too old, perhaps
			f.version = ""
			return
		case watch.Deleted:
			delete(f.known, name(e.Object))
			f.lost(e.Object)
		case watch.Added, watch.Modified:
			f.known[name(e.Object)] = e.Object
			f.saw(e.Object)
		}
		f.version = version(e.Object)
	}
}

func name(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetName()
}

func version(o runtime.Object) string {
	if l, err := meta.ListAccessor(o); err == nil {
		return l.GetResourceVersion()
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}
