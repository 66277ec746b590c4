// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Resource is what to follow.
type Resource struct {
	// Client of the API group.
	Client rest.Interface
	// Name in the path, such as "pods".
	Name string
	// Namespace is empty for all, or for a resource without one.
	Namespace string
	// Fields selects, such as spec.nodeName=n. The node authorizer asks for it.
	Fields fields.Selector
	// Type is an empty object of the kind.
	Type runtime.Object
}

// Follow lists and watches a resource into a store until ctx ends, whatever
// happens to the API server. Each answer is reported: nil when the API server
// granted a list or a watch.
func Follow(ctx context.Context, r Resource, store cache.ReflectorStore, report func(error), log *slog.Logger) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{log.Handler()}))
	reflector := cache.NewReflectorWithOptions(
		reporting{cache.NewListWatchFromClient(r.Client, r.Name, r.Namespace, r.Fields), report},
		r.Type, store, cache.ReflectorOptions{
			Name: r.Name,
			// Quick at first: a node is often told of a pod a moment before it may read
			// what the pod refers to. Never slow: pods wait for this.
			Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 5 * time.Second},
		})
	reflector.RunWithContext(ctx)
}

// reporting tells the outcome of each request.
type reporting struct {
	*cache.ListWatch
	report func(error)
}

func (r reporting) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := r.ListWatch.ListWithContext(ctx, options)
	r.tell(ctx, err)
	return list, err
}

func (r reporting) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := r.ListWatch.WatchWithContext(ctx, options)
	r.tell(ctx, err)
	return w, err
}

// tell keeps the end of a session to itself.
func (r reporting) tell(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.report(err)
	}
}

// quiet makes debug messages of what client-go says: its errors are in the
// feeds already.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// Text is an error's text without the request it belongs to, whose numbers
// differ each time: the same trouble has the same text.
func Text(err error) string {
	var u *url.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &u):
		return u.Err.Error()
	}
	return err.Error()
}
