// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// tidyPeriod is how often expired tokens are forgotten (kubelet: 1 m).
const tidyPeriod = time.Minute

// claims are the resource claims of a pod that runs, or is to run.
func (d directRefs) claims() []refs.Ref {
	if pod.IsTerminalPhase(d.pod.Status.Phase) || d.pod.DeletionTimestamp != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.refs), func(r refs.Ref) bool { return r.Kind != refs.ResourceClaim })
}

// run merges whenever a source has news, until ctx ends.
func (s *Service) run(ctx context.Context) error {
	tidy := time.NewTicker(tidyPeriod / 4)
	defer tidy.Stop()
	tidied := s.now()
	s.step(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			began := time.Now()
			s.step(ctx)
			signal.Rest(ctx, began)
		case <-tidy.C:
			if now := s.now(); now.Sub(tidied) >= tidyPeriod {
				tidied = now
				s.tidy()
			}
		}
		s.beat()
	}
}

// step reads every source, merges, and publishes what changed.
func (s *Service) step(ctx context.Context) {
	l := &s.loop
	l.state = merge.Next(l.state, s.sources.listings(), s.now())
	moved := l.rememberRefs()
	if moved || s.objectsMoved.Load() {
		s.holdObjects() // before the pods that need them are told
	}
	s.publishPods(ctx)
	s.publishMirrors(ctx)
	s.publishSources(ctx)
	s.wantObjects(moved)
	s.publishComplete(ctx)
	s.tellHealth()
	if l.state.Only == nil {
		s.metrics.observe(l.state)
	}
	l.published = l.state
}

// holdObjects says which API objects the API server's pods of this life need, for as long as
// something of before may not be true any more, and which those that have just come. What
// only pods needed that went in the same pass is forgotten: a pod that came in it needs the
// object of that name that there is now, which may be another one.
func (s *Service) holdObjects() {
	l := &s.loop
	current, _ := s.configuration.get()
	unread := s.objects.Unread()
	var all, arrived [][]refs.Ref
	for uid, p := range l.state.Pods {
		if p.Source != pod.SourceAPI || l.former[uid] {
			continue
		}
		if unread {
			all = append(all, l.direct[uid].refs)
		}
		if l.published.Pods[uid] == nil {
			arrived = append(arrived, l.direct[uid].refs)
		}
	}
	staying := [][]refs.Ref{{{Kind: refs.Node, Name: current.Node.Name}}}
	gone := false
	for uid := range l.published.Pods {
		d, stays := l.direct[uid]
		staying = append(staying, d.refs)
		gone = gone || !stays
	}
	if gone && len(arrived) > 0 && l.state.MirrorsKnown {
		s.objects.Want(refs.Collect(current.Node.Name, staying, s.objects.Lookup), false)
	}
	s.objects.Fresh(refs.Collect(current.Node.Name, all, s.objects.Lookup))
	s.objects.Arrived(refs.Collect(current.Node.Name, arrived, s.objects.Lookup))
}

// wantObjects says which API objects the pods need now; moved is that they name others
// than before. A change of a status changes nothing of that.
func (s *Service) wantObjects(moved bool) {
	l := &s.loop
	current, _ := s.configuration.get()
	// While the API server's pods may be missing, so may be those that need what seems
	// unneeded.
	need := needed{keep: !l.state.MirrorsKnown, standalone: current.Standalone()}
	if !s.objectsMoved.Swap(false) && !moved && l.needed == need {
		return
	}
	l.needed = need
	set, namespaces, users := refs.Set{}, map[string]bool{}, map[refs.Ref][]types.UID{}
	if !need.standalone {
		all := [][]refs.Ref{{{Kind: refs.Node, Name: current.Node.Name}}}
		for _, uid := range slices.Sorted(maps.Keys(l.direct)) {
			d := l.direct[uid]
			all = append(all, d.refs)
			for _, claim := range d.claims() {
				users[claim] = append(users[claim], uid)
			}
			if refs.WantsServices(d.pod) {
				namespaces[d.pod.Namespace] = true
			}
		}
		set = refs.Collect(current.Node.Name, all, s.objects.Lookup)
	}
	s.objects.Users(users)
	s.objects.Want(set, need.keep)
	s.objects.WantServices(namespaces, need.keep)
}

// rememberRefs brings what the pods name up to date and reports whether anything
// differs.
func (l *loop) rememberRefs() (moved bool) {
	if l.state.Only != nil {
		for _, uid := range l.state.Only {
			moved = l.rememberRefsOf(uid) || moved
		}
		return moved
	}
	for uid := range l.direct {
		if l.state.Pods[uid] == nil {
			delete(l.direct, uid)
			moved = true
		}
	}
	for uid := range l.state.Pods {
		moved = l.rememberRefsOf(uid) || moved
	}
	return moved
}

func (l *loop) rememberRefsOf(uid types.UID) (moved bool) {
	p, had := l.state.Pods[uid].Pod, l.direct[uid]
	if had.pod == p {
		return false
	}
	next := directRefs{p, refs.OfPod(p)}
	l.direct[uid] = next
	return had.pod == nil || !slices.Equal(had.refs, next.refs) || !slices.Equal(had.claims(), next.claims()) || refs.WantsServices(had.pod) != refs.WantsServices(p)
}

// publishComplete says how much of what was published is known to be all.
func (s *Service) publishComplete(ctx context.Context) {
	state := s.loop.state
	current, _ := s.configuration.get()
	s.feeds.sources.SetComplete(ctx, true)
	s.feeds.statuses.SetComplete(ctx, state.MirrorsKnown)
	s.feeds.pods.SetComplete(ctx, state.Complete)
	s.feeds.mirrors.SetComplete(ctx, state.MirrorsKnown)
	// Of the API server's objects its own pods are made: what these need is known, whether
	// or not a manifest folder or URL can be read.
	s.feeds.secrets.SetComplete(ctx, state.MirrorsKnown)
	s.feeds.objects.SetComplete(ctx, state.MirrorsKnown && (current.Standalone() || s.objects.ServicesHeard()))
}

// tellHealth says what is waited for, or what is wrong.
func (s *Service) tellHealth() {
	_, refused := s.configuration.get()
	if refused != "" {
		s.kit.Failing("configuration refused, the last good one is in force: " + refused)
		return
	}
	if trouble := s.identity.Trouble(); trouble.Text != "" {
		if trouble.Waiting {
			s.kit.Waiting(trouble.Text)
		} else {
			s.kit.Failing(trouble.Text)
		}
		return
	}
	for _, source := range s.loop.state.Sources {
		if source.Heard {
			continue
		}
		what := map[string]string{
			pod.SourceFile: "manifest folder", pod.SourceHTTP: "manifest URL", pod.SourceAPI: "API server",
		}[source.Name]
		if source.Err != "" {
			what += ": " + source.Err
		}
		s.kit.Waiting(what)
		return
	}
	s.kit.Serving()
}

// tidy forgets tokens that are of no use any more.
func (s *Service) tidy() {
	state := s.loop.state
	s.tokens.Prune(func(podUID string) bool {
		_, there := state.Pods[types.UID(podUID)]
		return !there && state.MirrorsKnown // a pod of a manifest has none
	})
}
