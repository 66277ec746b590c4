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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

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

// Manager keeps objects. Make it with New.
type Manager struct {
	cfg Config

	mu       sync.Mutex
	items    map[refs.Ref]*item
	users    map[refs.Ref][]types.UID // of resource claims
	services services
	session  *session
	routine  flowcontrol.RateLimiter // of asking for what is as it should be
}

// item is one wanted object.
type item struct {
	ref    refs.Ref
	object Object // nil when never read or absent
	told   *configv1.Object
	since  time.Time          // when it was first asked for
	left   time.Time          // when the last pod that needs it had gone; zero: one does
	cancel context.CancelFunc // of the goroutine that follows it
	again  signal.Signal      // it may have changed
}

func newItem(ref refs.Ref) *item { return &item{ref: ref, again: signal.New()} }

// session is one client's time.
type session struct {
	ctx    context.Context
	client kubernetes.Interface
	claims kubernetes.Interface // for what is asked for, with a limit of its own
	ttl    time.Duration        // above zero: ConfigMaps and Secrets are asked for, that often
	parts  sync.WaitGroup
}

// New makes a manager that wants nothing.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Again == 0 {
		cfg.Again = time.Minute
	}
	return &Manager{
		cfg: cfg, items: map[refs.Ref]*item{}, services: newServices(),
		routine: flowcontrol.NewTokenBucketRateLimiter(routineQPS, routineBurst),
	}
}

// Restore puts in an object kept by the previous process; it is published at once.
func (m *Manager) Restore(ref refs.Ref, kept *configv1.Object) error {
	k, ok := kinds[ref.Kind]
	if !ok {
		return fmt.Errorf("object %s: unknown kind", ref.Key())
	}
	object := k.empty()
	if err := object.Unmarshal(kept.GetObject()); err != nil {
		return fmt.Errorf("object %s: %w", ref.Key(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ref.Kind == refs.Service {
		m.services.all[ref] = object
	}
	it := newItem(ref)
	it.object = object
	m.items[ref] = it
	m.tell(it, false, "")
	return nil
}

// Want says which objects are needed, services aside. With keep, objects that
// are known stay even if not needed: the pods may not all be known yet.
func (m *Manager) Want(set refs.Set, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, it := range m.items {
		if ref.Kind != refs.Service && !set.Has(ref) && !keep {
			m.leave(it)
		}
	}
	for _, ref := range set.Sorted() {
		it, ok := m.items[ref]
		if !ok {
			it = newItem(ref)
			m.items[ref] = it
			m.tell(it, false, "")
		}
		if !it.left.IsZero() {
			it.left, it.since = time.Time{}, m.cfg.Now() // of a pod that the API server may not know yet
		}
		m.start(it)
	}
}

// Users says which pods use each resource claim. One that is not reserved yet for a pod
// is asked for until it is; nothing else shows that.
func (m *Manager) Users(users map[refs.Ref][]types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	former := m.users
	m.users = users
	m.again(func(r refs.Ref) bool { return r.Kind == refs.ResourceClaim && !slices.Equal(former[r], users[r]) })
}

func (m *Manager) usersOf(ref refs.Ref) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users[ref]
}

// leave drops an item that no pod needs, or lets it linger. What is not watched goes
// at once: the next pod that needs an object of that name reads it, for it may be
// another one by then.
func (m *Manager) leave(it *item) {
	if it.ref.Kind != refs.ConfigMap || m.cfg.Linger <= 0 || !m.watched(it) {
		m.drop(it)
		return
	}
	if it.left.IsZero() {
		it.left = m.cfg.Now()
		time.AfterFunc(m.cfg.Linger, func() { m.sweep(it) })
	}
}

// watched reports whether changes of an item are heard of as they happen.
func (m *Manager) watched(it *item) bool {
	asked := m.session != nil && m.session.ttl > 0
	return !asked && (it.object == nil || !immutable(it.object))
}

// sweep drops an item that has lingered.
func (m *Manager) sweep(it *item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.items[it.ref] == it && !it.left.IsZero() && m.cfg.Now().Sub(it.left) >= m.cfg.Linger {
		m.drop(it)
	}
}

// Lookup reads an object that is known, or nil.
func (m *Manager) Lookup(ref refs.Ref) runtime.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	if it, ok := m.items[ref]; ok && it.object != nil {
		return it.object
	}
	return nil
}

// Run follows what is wanted until ctx ends: with one client what pods wait for,
// with the other, which may be slow, claims and what they lead to. A ttl above zero
// replaces the watches of ConfigMaps and Secrets.
func (m *Manager) Run(ctx context.Context, client, claims kubernetes.Interface, ttl time.Duration) {
	s := &session{ctx: ctx, client: client, claims: claims, ttl: ttl}
	s.parts.Go(func() { m.followServices(ctx, client) })
	m.mu.Lock()
	m.session = s
	for _, it := range m.items {
		if it.ref.Kind != refs.Service {
			m.start(it)
		}
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.session = nil
	for _, it := range m.items {
		it.cancel = nil // its context ended with ctx
	}
	m.mu.Unlock()
	s.parts.Wait()
}

// start begins to follow an item unless it is followed already, or there is no API client.
func (m *Manager) start(it *item) {
	s := m.session
	if s == nil || it.cancel != nil || s.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	it.cancel = cancel
	if it.since.IsZero() {
		it.since = m.cfg.Now()
	}
	s.parts.Go(func() {
		defer cancel()
		m.follow(ctx, s, it)
	})
}

func (m *Manager) drop(it *item) {
	if it.cancel != nil {
		it.cancel()
	}
	delete(m.items, it.ref)
	m.cfg.Withdraw(it.ref)
}

// take takes in what the API server said of an object: the object, or nil for
// "does not exist". An item dropped meanwhile is left alone.
func (m *Manager) take(ctx context.Context, ref refs.Ref, object Object) {
	m.mu.Lock()
	it, ok := m.items[ref]
	if !ok || ctx.Err() != nil {
		m.mu.Unlock()
		return
	}
	if object != nil {
		object.SetManagedFields(nil)
	}
	before := it.object
	it.object = object
	m.tell(it, object == nil, "")
	named := !refs.Same(before, object)
	m.signs(before, object)
	m.mu.Unlock()
	if named {
		m.cfg.Changed()
	}
}

// signs has those objects asked for again of whose change an object tells: any change
// of a claim, such as the growth of its volume, may be one of the volume; what is
// attached to the node is listed in the Node.
func (m *Manager) signs(before, now Object) {
	if before == nil {
		return
	}
	switch now := now.(type) {
	case *v1.PersistentVolumeClaim:
		if before.GetResourceVersion() != now.ResourceVersion {
			m.again(func(r refs.Ref) bool { return r.Kind == refs.PersistentVolume && r.Name == now.Spec.VolumeName })
		}
	case *v1.Node:
		if was, ok := before.(*v1.Node); !ok || !slices.Equal(was.Status.VolumesAttached, now.Status.VolumesAttached) {
			m.again(func(r refs.Ref) bool { return r.Kind == refs.VolumeAttachment })
		}
	}
}

// again has objects asked for soon, where they are asked for; callers hold Manager.mu.
func (m *Manager) again(which func(refs.Ref) bool) {
	for ref, it := range m.items {
		if which(ref) {
			it.again.Send()
		}
	}
}

// fail takes in that an object could not be read. What was read before stays;
// while the API server cannot be reached at all, nothing more is said of it. It
// is asked for again in any case, and soon.
func (m *Manager) fail(ctx context.Context, ref refs.Ref, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	it, ok := m.items[ref]
	if !ok || ctx.Err() != nil {
		return
	}
	read := it.object != nil || it.told.GetAbsent()
	if read && !answered(err) || !read && apierrors.IsForbidden(err) && m.cfg.Now().Sub(it.since) < lag {
		return
	}
	m.tell(it, it.told.GetAbsent(), cluster.Text(err))
}

func (m *Manager) tell(it *item, absent bool, problem string) {
	message := &configv1.Object{
		Kind: it.ref.Kind, Namespace: it.ref.Namespace, Name: it.ref.Name,
		Absent: absent, Error: problem,
	}
	if it.object != nil {
		data, err := it.object.Marshal()
		if err != nil {
			message.Error = fmt.Sprintf("marshal: %v", err)
		}
		message.Object = data
	}
	it.told = message
	m.cfg.Publish(it.ref, message)
}
