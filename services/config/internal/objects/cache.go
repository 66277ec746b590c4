// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// Config of a manager. The functions are called one at a time, from any
// goroutine, and must not call the manager.
type Config struct {
	// Publish says what is known of a wanted object.
	Publish func(refs.Ref, *configv1.Object)
	// Withdraw says that an object is not wanted any more.
	Withdraw func(refs.Ref)
	// Changed says that an object which names others changed, or that the
	// services were read for the first time.
	Changed func()
	// Linger is how long a ConfigMap is watched after the last pod that needs it has
	// gone: the next one often needs the same. One that is not watched goes at once.
	Linger time.Duration
	// Again is how often a claim is asked for that is as it should be; a minute when
	// zero (kubelet: the period of its pod workers).
	Again time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	Log *slog.Logger
}

// lag is how long the node authorizer may take to learn of a pod that the node
// was told of: until then "forbidden" is not yet an answer.
const lag = 2 * time.Second

// cache is what is known of the objects that are wanted.
type cache struct {
	cfg Config

	mu    sync.Mutex
	items map[refs.Ref]*item
	users map[refs.Ref][]types.UID // of resource claims
}

// item is one wanted object.
type item struct {
	ref    refs.Ref
	object Object // nil when never read or absent
	told   *configv1.Object
	read   bool               // the API server has said what it is, or that it is not, in this process
	held   bool               // its object is not published until it has been read again: see Manager.Fresh and Arrived
	since  time.Time          // when it was first asked for
	left   time.Time          // when the last pod that needs it had gone; zero: one does
	cancel context.CancelFunc // of the goroutine that follows it
	again  signal.Signal      // it may have changed
}

func newItem(ref refs.Ref) *item { return &item{ref: ref, again: signal.New()} }

func (c *cache) usersOf(ref refs.Ref) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.users[ref]
}

// lookup reads an object that is known, or nil.
func (c *cache) lookup(ref refs.Ref) runtime.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it, ok := c.items[ref]; ok && it.object != nil {
		return it.object
	}
	return nil
}

func (c *cache) drop(it *item) {
	if it.cancel != nil {
		it.cancel()
	}
	delete(c.items, it.ref)
	c.cfg.Withdraw(it.ref)
}

// take takes in what the API server said of an object: the object, or nil for
// "does not exist". An item dropped meanwhile is left alone.
func (c *cache) take(ctx context.Context, ref refs.Ref, object Object) {
	c.mu.Lock()
	it, ok := c.items[ref]
	if !ok || ctx.Err() != nil {
		c.mu.Unlock()
		return
	}
	if object != nil {
		object.SetManagedFields(nil)
	}
	before := it.object
	it.object, it.read, it.held = object, true, false
	c.tell(it, object == nil, "")
	named := !refs.Same(before, object)
	c.signs(before, object)
	c.mu.Unlock()
	if named {
		c.cfg.Changed()
	}
}

// signs has those objects asked for again of whose change an object tells: any change
// of a claim, such as the growth of its volume, may be one of the volume; what is
// attached to the node is listed in the Node.
func (c *cache) signs(before, now Object) {
	if before == nil {
		return
	}
	switch now := now.(type) {
	case *v1.PersistentVolumeClaim:
		if before.GetResourceVersion() != now.ResourceVersion {
			c.again(func(r refs.Ref) bool { return r.Kind == refs.PersistentVolume && r.Name == now.Spec.VolumeName })
		}
	case *v1.Node:
		if was, ok := before.(*v1.Node); !ok || !slices.Equal(was.Status.VolumesAttached, now.Status.VolumesAttached) {
			c.again(func(r refs.Ref) bool { return r.Kind == refs.VolumeAttachment })
		}
	}
}

// again has objects asked for soon, where they are asked for; callers hold mu.
func (c *cache) again(which func(refs.Ref) bool) {
	for ref, it := range c.items {
		if which(ref) {
			it.again.Send()
		}
	}
}

// fail takes in that an object could not be read. What was read before stays;
// while the API server cannot be reached at all, nothing more is said of it. It
// is asked for again in any case, and soon.
func (c *cache) fail(ctx context.Context, ref refs.Ref, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, ok := c.items[ref]
	if !ok || ctx.Err() != nil {
		return
	}
	read := it.object != nil && !it.held || it.told.GetAbsent()
	if read && !answered(err) || !read && apierrors.IsForbidden(err) && c.cfg.Now().Sub(it.since) < lag {
		return
	}
	c.tell(it, it.told.GetAbsent(), cluster.Text(err))
}

func (c *cache) tell(it *item, absent bool, problem string) {
	message := &configv1.Object{
		Kind: it.ref.Kind, Namespace: it.ref.Namespace, Name: it.ref.Name,
		Absent: absent, Error: problem,
	}
	if it.object != nil && !it.held {
		data, err := it.object.Marshal()
		if err != nil {
			message.Error = fmt.Sprintf("marshal: %v", err)
		}
		message.Object = data
	}
	it.told = message
	c.cfg.Publish(it.ref, message)
}

// answered reports whether an error is the API server's answer, not its absence.
func answered(err error) bool {
	status, answered := apianswer.Of(err)
	return answered && status.Code >= 400 && status.Code < 500 && !apierrors.IsTooManyRequests(err)
}
