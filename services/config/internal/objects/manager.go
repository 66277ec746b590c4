// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// Manager keeps objects. Make it with New.
type Manager struct {
	cache    *cache
	services *services
	routine  flowcontrol.RateLimiter

	// Guarded by the cache's mutex.
	session *session
	unread  bool // something that was kept may not be read yet
}

// session is one client's time.
type session struct {
	follower
	ctx   context.Context
	parts sync.WaitGroup
}

// New makes a manager that wants nothing.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Again = cmp.Or(cfg.Again, time.Minute)
	c := &cache{cfg: cfg, items: map[refs.Ref]*item{}}
	return &Manager{cache: c, services: newServices(c), routine: flowcontrol.NewTokenBucketRateLimiter(routineQPS, routineBurst)}
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
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	if ref.Kind == refs.Service {
		m.services.all[ref] = object
	}
	it := newItem(ref)
	it.object = object
	m.cache.items[ref] = it
	m.cache.tell(it, false, "")
	m.unread = m.unread || ref.Kind != refs.Service
	return nil
}

// Unread reports whether anything that was kept, Services aside, is not read yet: Fresh is
// of use until then.
func (m *Manager) Unread() bool {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	if m.unread {
		m.unread = false
		for ref, it := range m.cache.items {
			if ref.Kind != refs.Service && it.object != nil && !it.read {
				m.unread = true
				break
			}
		}
	}
	return m.unread
}

// Want says which objects are needed, services aside. With keep, objects that
// are known stay even if not needed: the pods may not all be known yet.
func (m *Manager) Want(set refs.Set, keep bool) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	for ref, it := range m.cache.items {
		if ref.Kind != refs.Service && !set.Has(ref) && !keep {
			m.leave(it)
		}
	}
	for _, ref := range set.Sorted() {
		it, ok := m.cache.items[ref]
		if !ok {
			it = newItem(ref)
			m.cache.items[ref] = it
			m.cache.tell(it, false, "")
		}
		if !it.left.IsZero() {
			it.left, it.since = time.Time{}, m.cache.cfg.Now() // of a pod that the API server may not know yet
		}
		m.start(it)
	}
}

// Fresh says which objects are needed by pods that have come in this process. What the
// store has of one may be of before the pod, which a container would keep: nothing is
// told of it until it was read. What is there of former pods goes on meanwhile.
func (m *Manager) Fresh(set refs.Set) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	for _, ref := range set.Sorted() {
		if it, ok := m.cache.items[ref]; ok && it.object != nil && !it.read && !it.held {
			it.held = true
			m.cache.tell(it, false, "")
		}
	}
}

// Arrived says which objects are needed by pods that have just come. What is asked for by
// the clock, and not watched, may have changed since: it is asked for at once, and nothing
// is told of it until then (kubelet: a new pod has the cache read again).
func (m *Manager) Arrived(set refs.Set) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	if m.session == nil || m.session.ttl == 0 {
		return
	}
	for _, ref := range set.Sorted() {
		it, ok := m.cache.items[ref]
		if !ok || !it.read || kinds[ref.Kind].access != byStrategy || it.object != nil && immutable(it.object) {
			continue
		}
		it.held = true
		m.cache.tell(it, false, "")
		it.again.Send()
	}
}

// Users says which pods use each resource claim. One that is not reserved yet for a pod
// is asked for until it is; nothing else shows that.
func (m *Manager) Users(users map[refs.Ref][]types.UID) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	former := m.cache.users
	m.cache.users = users
	m.cache.again(func(r refs.Ref) bool { return r.Kind == refs.ResourceClaim && !slices.Equal(former[r], users[r]) })
}

// leave drops an item that no pod needs, or lets it linger. What is not watched goes
// at once: the next pod that needs an object of that name reads it, for it may be
// another one by then.
func (m *Manager) leave(it *item) {
	if it.ref.Kind != refs.ConfigMap || m.cache.cfg.Linger <= 0 || !m.watched(it) {
		m.cache.drop(it)
		return
	}
	if it.left.IsZero() {
		it.left = m.cache.cfg.Now()
		time.AfterFunc(m.cache.cfg.Linger, func() { m.sweep(it) })
	}
}

// watched reports whether changes of an item are heard of as they happen.
func (m *Manager) watched(it *item) bool {
	asked := m.session != nil && m.session.ttl > 0
	return !asked && (it.object == nil || !immutable(it.object))
}

// sweep drops an item that has lingered.
func (m *Manager) sweep(it *item) {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	if m.cache.items[it.ref] == it && !it.left.IsZero() && m.cache.cfg.Now().Sub(it.left) >= m.cache.cfg.Linger {
		m.cache.drop(it)
	}
}

// Run follows what is wanted until ctx ends: with one client what pods wait for,
// with the other, which may be slow, claims and what they lead to. A ttl above zero
// replaces the watches of ConfigMaps and Secrets.
func (m *Manager) Run(ctx context.Context, client, claims kubernetes.Interface, ttl time.Duration) {
	s := &session{ctx: ctx, follower: follower{cache: m.cache, client: client, claims: claims, ttl: ttl, routine: m.routine}}
	s.parts.Go(func() { m.services.follow(ctx, client) })
	m.cache.mu.Lock()
	m.session = s
	for _, it := range m.cache.items {
		if it.ref.Kind != refs.Service {
			m.start(it)
		}
	}
	m.cache.mu.Unlock()
	<-ctx.Done()
	m.cache.mu.Lock()
	m.session = nil
	for _, it := range m.cache.items {
		it.cancel = nil // its context ended with ctx
	}
	m.cache.mu.Unlock()
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
		it.since = m.cache.cfg.Now()
	}
	s.parts.Go(func() {
		defer cancel()
		s.follow(ctx, it)
	})
}

// Lookup reads an object that is known, or nil.
func (m *Manager) Lookup(ref refs.Ref) runtime.Object { return m.cache.lookup(ref) }

// WantServices says of which namespaces services are needed; the one named
// kubernetes always is. With keep, those told stay even if not needed.
func (m *Manager) WantServices(namespaces map[string]bool, keep bool) {
	m.services.want(namespaces, keep)
}

// ServicesHeard reports whether all services were read since the process started.
func (m *Manager) ServicesHeard() bool {
	m.cache.mu.Lock()
	defer m.cache.mu.Unlock()
	return m.services.heard
}
