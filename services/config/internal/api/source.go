// SPDX-License-Identifier: Apache-2.0

// Package api is the source of pods at the API server: those bound to this
// node, followed by list and watch.
//
// It never fails because the API server is away: what was listed last stays,
// and the error is reported. It counts as heard after the first whole list, and
// keeps no state beyond this process.
//
// A pod that is deleted by force is listed for two seconds more, as the API server had it at
// last: else those that read of pods now and then would not hear that it has no grace.
package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/merge"
)

// farewell is how long a pod that was deleted by force is listed still, longer than any reader of
// config.pods rests. A podworker that is away for all of it gives the pod the grace of its
// specification.
const farewell = 2 * time.Second

// Config of the source.
type Config struct {
	// Changed is called after the listing changed, from any goroutine.
	Changed func()
	// Heard is called with the outcome of each request; nil is that it was
	// granted. It may be nil.
	Heard func(error)
	// Patience is how long silence is not yet an error. A server that refuses, or
	// cannot be reached, is not waited for.
	Patience time.Duration
	Log      *slog.Logger
}

// Source follows pods. Make it with New.
type Source struct {
	cfg Config

	mu       sync.Mutex
	pods     []*v1.Pod // by namespace and name; neither the slice nor a pod is ever written to
	leaving  []*v1.Pod // deleted by force; as pods, in the order of their ends
	heard    bool
	answered bool // since the last Follow began, be it by an error
	err      string
}

// New makes a source that has read nothing yet.
func New(cfg Config) *Source { return &Source{cfg: cfg} }

// Follow keeps the source current with a client until ctx ends. It may be
// called again, with another client; what was heard stays. A client that has had
// no answer, ever, is in error after the patience, so that the
// first one is not waited for for ever.
func (s *Source) Follow(ctx context.Context, client kubernetes.Interface, node string) {
	defer s.expect()()
	cluster.Follow(ctx, cluster.Resource{
		Client: client.CoreV1().RESTClient(), Name: "pods",
		Fields: fields.OneTermEqualSelector("spec.nodeName", node), Type: &v1.Pod{},
	}, (*store)(s), s.answer, s.cfg.Log)
}

// expect begins to wait for an answer, until end.
func (s *Source) expect() (end func()) {
	s.mu.Lock()
	s.answered = false
	s.mu.Unlock()
	timer := time.AfterFunc(s.cfg.Patience, func() {
		s.tell(fmt.Sprintf("no answer within %s", s.cfg.Patience), func() bool { return !s.answered && !s.heard && s.err == "" })
	})
	return func() { timer.Stop() }
}

// answer takes in what became of a request.
func (s *Source) answer(err error) {
	s.Report(err)
	if s.cfg.Heard != nil {
		s.cfg.Heard(err)
	}
}

// Listing is what the source knows now, by namespace and name.
func (s *Source) Listing() merge.Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return merge.Listing{
		Source: pod.SourceAPI, Heard: s.heard, Err: s.err,
		Entries: []merge.Entry{{Pods: s.pods}, {Pods: s.leaving}},
	}
}

// Report takes the outcome of a request in; nil is success.
func (s *Source) Report(err error) {
	s.tell(cluster.Text(err), func() bool { s.answered = true; return true })
}

// tell notes an error, empty for none, if that is wanted; wanted is asked under
// the lock.
func (s *Source) tell(text string, wanted func() bool) {
	s.mu.Lock()
	changed := wanted() && s.err != text
	if changed {
		s.err = text
	}
	s.mu.Unlock()
	if changed {
		s.cfg.Changed()
	}
}

// store is the reflector's side of the source.
type store Source

func (s *store) change(f func()) error {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.cfg.Changed()
	return nil
}

// trim drops what no reader needs, once, before anyone else sees the object.
func trim(object any) (*v1.Pod, bool) {
	p, ok := object.(*v1.Pod)
	if ok {
		p.ManagedFields = nil
	}
	return p, ok
}

func byName(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// at is where a pod of that name is in the list, or would be.
func (s *store) at(p *v1.Pod) (i int, known bool) { return slices.BinarySearchFunc(s.pods, p, byName) }

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	p, ok := trim(object)
	if !ok {
		return nil
	}
	return s.change(func() {
		i, known := s.at(p)
		s.pods = slices.Clone(s.pods)
		if known {
			s.pods[i] = p
		} else {
			s.pods = slices.Insert(s.pods, i, p)
		}
	})
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	p, ok := trim(object)
	if !ok {
		return nil
	}
	return s.change(func() {
		i, known := s.at(p)
		if !known {
			return
		}
		s.pods = slices.Delete(slices.Clone(s.pods), i, i+1)
		if forced(p) {
			s.leaving = append(slices.Clone(s.leaving), p)
			time.AfterFunc(farewell, func() { s.leave(p) })
		}
	})
}

// forced reports whether the API server let a pod go before its node had ended it.
func forced(p *v1.Pod) bool {
	g := p.DeletionGracePeriodSeconds
	return p.DeletionTimestamp != nil && g != nil && *g == 0 && !pod.IsTerminalPhase(p.Status.Phase) && !pod.IsMirror(p)
}

// leave lists a pod no more that was deleted by force.
func (s *store) leave(p *v1.Pod) {
	_ = s.change(func() { // is never an error
		s.leaving = slices.DeleteFunc(slices.Clone(s.leaving), func(other *v1.Pod) bool { return other == p })
	})
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	pods := make([]*v1.Pod, 0, len(objects))
	for _, o := range objects {
		p, ok := trim(o)
		if !ok {
			continue
		}
		if had := s.known(p); had != nil {
			p = had
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, byName)
	return s.change(func() { s.pods, s.heard = pods, true })
}

// known finds the same version of a pod among what is there already, so that a
// new list does not look like a change of everything.
func (s *store) known(p *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.at(p)
	if ok && s.pods[i].UID == p.UID && s.pods[i].ResourceVersion == p.ResourceVersion && p.ResourceVersion != "" {
		return s.pods[i]
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
