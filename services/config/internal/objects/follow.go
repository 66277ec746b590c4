// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// untilSigns is the wait before an object is asked for again that is as it should be,
// and of whose changes something else tells (cache.signs).
const untilSigns = time.Duration(-1)

// The waits for one that is not as it should be; for an attachment, which is all that a
// pod waits for; and after a sign, which may come before the change: a volume leaves the
// list of the Node before it is detached.
var (
	unsettledWaits  = backoff.Doubling{Least: 200 * time.Millisecond, Most: 10 * time.Second}
	attachmentWaits = backoff.Doubling{Least: 200 * time.Millisecond, Most: time.Second}
	signWaits       = backoff.Doubling{Least: 200 * time.Millisecond, Most: time.Minute}
)

const (
	// routineQPS and routineBurst bound how often claims are asked for of which no
	// change is expected: a node with many asks for each less often.
	routineQPS, routineBurst = 5, 10
)

// follower keeps items current by asking an API server.
type follower struct {
	cache *cache
	// client, and another one for what is asked for, with a limit of its own.
	client, claims kubernetes.Interface
	ttl            time.Duration           // above zero: ConfigMaps and Secrets are asked for, that often
	routine        flowcontrol.RateLimiter // of asking for what is as it should be
}

// follow keeps one item current until ctx ends.
func (f *follower) follow(ctx context.Context, it *item) {
	ref := it.ref
	if ref.Kind == pod.SignersBundle {
		followSigner(ctx, f.cache, f.client, ref)
		return
	}
	k := kinds[ref.Kind]
	switch {
	case k.access == asked:
		f.ask(ctx, f.claims, 0, it, k)
		return
	case k.access == byStrategy && f.ttl > 0:
		f.ask(ctx, f.client, f.ttl, it, k)
		return
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	cluster.Follow(watch, cluster.Resource{
		Client: k.client(f.client), Name: k.resource, Namespace: ref.Namespace,
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name), Type: k.empty(),
	}, &single{take: func(o Object) {
		f.cache.take(ctx, ref, o)
		if o != nil && immutable(o) {
			stop() // it cannot change: no need to watch it
		}
	}}, func(err error) {
		if err != nil {
			f.cache.fail(ctx, ref, err)
		}
	}, f.cache.cfg.Log)
	<-ctx.Done()
}

// ask gets an item again and again: every ttl, if that is above zero.
func (f *follower) ask(ctx context.Context, client kubernetes.Interface, ttl time.Duration, it *item, k kind) {
	ref := it.ref
	p := pace{waits: unsettledWaits}
	if ref.Kind == refs.VolumeAttachment {
		p.waits = attachmentWaits
	}
	for {
		object := k.empty()
		err := k.client(client).Get().Resource(k.resource).
			NamespaceIfScoped(ref.Namespace, ref.Namespace != "").Name(ref.Name).Do(ctx).Into(object)
		if ttl > 0 && it.again.Pending() {
			<-it.again
			continue // the answer may be of before the sign
		}
		switch {
		case err == nil:
			f.cache.take(ctx, ref, object)
		case apianswer.NotFound(err):
			object = nil
			f.cache.take(ctx, ref, nil)
		default:
			object = nil
			f.cache.fail(ctx, ref, err)
		}
		if object != nil && immutable(object) {
			<-ctx.Done()
			return
		}
		settled := object != nil && settled(object, f.cache.usersOf(ref))
		wait := p.next(object, settled, ttl, f.cache.cfg.Again)
		var timer <-chan time.Time
		if wait != untilSigns {
			timer = time.After(wait + rand.N(wait/10+1))
		}
		select {
		case <-ctx.Done():
			return
		case <-it.again:
			p.sign()
		case <-timer:
			if settled && ttl == 0 && f.routine.Wait(ctx) != nil {
				return
			}
		}
	}
}

// pace is how often an object is asked for.
type pace struct {
	// waits are those of one that is not as it should be.
	waits backoff.Doubling
	// unsettled counts how often in a row it was not.
	unsettled int
	// signed counts how often it was since a sign; zero once that is long ago.
	signed int
}

// sign is told that the object may have changed, or may be about to.
func (p *pace) sign() { p.unsettled, p.signed = 0, 1 }

// next is how long to wait before asking again for an object that is as it should be, or
// not (settled); untilSigns for one that is asked for when something says that it may
// have changed. again is for a claim that is as it should be: nothing signals its
// growth, as a node may not watch it.
func (p *pace) next(object Object, settled bool, ttl, again time.Duration) time.Duration {
	if !settled {
		p.unsettled++
		return p.waits.After(p.unsettled)
	}
	p.unsettled = 0
	if ttl > 0 {
		return ttl
	}
	if _, claim := object.(*v1.PersistentVolumeClaim); claim {
		return again
	}
	if p.signed == 0 {
		return untilSigns
	}
	wait := signWaits.After(p.signed)
	if p.signed++; wait == signWaits.Most {
		p.signed = 0
	}
	return wait
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
