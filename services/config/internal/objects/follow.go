package objects

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// Periods of asking.
const (
	// askSettled is for an object that is as it should be.
	askSettled = time.Minute
	// askFirst and askMost bound the doubling wait for one that is not.
	askFirst = 200 * time.Millisecond
	askMost  = 10 * time.Second
	// askAttached bounds it for an attachment: a pod waits for nothing else.
	askAttached = time.Second
)

// follow keeps one item current until ctx ends.
func (m *Manager) follow(ctx context.Context, s *session, ref refs.Ref) {
	if ref.Kind == pod.SignersBundle {
		m.followSigner(ctx, s, ref)
		return
	}
	k := kinds[ref.Kind]
	if k.access == asked || (k.access == byStrategy && s.ttl > 0) {
		m.ask(ctx, s, ref, k)
		return
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	cluster.Follow(watch, cluster.Resource{
		Client: k.client(s.client), Name: k.resource, Namespace: ref.Namespace,
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name), Type: k.empty(),
	}, &single{take: func(o Object) {
		m.take(ctx, ref, o)
		if o != nil && immutable(o) {
			stop() // it cannot change: no need to watch it
		}
	}}, func(err error) {
		if err != nil {
			m.fail(ctx, ref, err)
		}
	}, m.cfg.Log)
	<-ctx.Done()
}

// ask gets an item again and again.
func (m *Manager) ask(ctx context.Context, s *session, ref refs.Ref, k kind) {
	wait, most := askFirst, askMost
	if ref.Kind == refs.VolumeAttachment {
		most = askAttached
	}
	for {
		object := k.empty()
		err := k.client(s.client).Get().Resource(k.resource).
			NamespaceIfScoped(ref.Namespace, ref.Namespace != "").Name(ref.Name).Do(ctx).Into(object)
		switch {
		case err == nil:
			m.take(ctx, ref, object)
		case apierrors.IsNotFound(err):
			object = nil
			m.take(ctx, ref, nil)
		default:
			object = nil
			m.fail(ctx, ref, err)
		}
		if object != nil && immutable(object) {
			<-ctx.Done()
			return
		}
		wait = next(wait, most, object, s.ttl)
		timer := time.NewTimer(wait + rand.N(wait/10+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// next is how long to wait before asking again, given the wait before.
func next(was, most time.Duration, object Object, ttl time.Duration) time.Duration {
	switch {
	case object == nil || !settled(object):
		return min(2*was, most)
	case ttl > 0:
		return ttl
	}
	return askSettled
}

// answered tells that an error is the API server's answer, not its absence.
func answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTooManyRequests(err)
}

// single is the reflector's store of at most one object.
type single struct{ take func(Object) }

func (s *single) put(object any) error {
	if o, ok := object.(Object); ok {
		s.take(o)
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (s *single) Add(object any) error { return s.put(object) }

// Update implements cache.ReflectorStore.
func (s *single) Update(object any) error { return s.put(object) }

// Delete implements cache.ReflectorStore.
func (s *single) Delete(any) error {
	s.take(nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *single) Replace(objects []any, _ string) error {
	if len(objects) == 0 {
		s.take(nil)
		return nil
	}
	return s.put(objects[0])
}

// Resync implements cache.ReflectorStore.
func (s *single) Resync() error { return nil }
