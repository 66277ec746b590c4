// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Next merges the listings of all configured sources. Pods of a source that is
// not among them are dropped.
func Next(was State, listings []Listing, now time.Time) State {
	m := merger{
		was:   was,
		now:   now,
		names: map[string]*Pod{},
		next: State{
			Pods: map[types.UID]*Pod{}, Mirrors: map[string]*v1.Pod{},
			Complete: true, MirrorsKnown: true, listings: listings,
		},
	}
	if versions, only := newVersions(was, listings); only {
		return m.replace(versions)
	}
	claims := make([][]claim, len(listings))
	for i, l := range listings {
		claims[i] = m.claims(l)
		m.next.Sources = append(m.next.Sources, Source{Name: l.Source, Heard: l.Heard, Err: l.Err})
		m.next.Complete = m.next.Complete && l.Heard
		if l.Source == pod.SourceAPI {
			m.next.MirrorsKnown = l.Heard
		}
	}
	// Incumbents first, so that a newcomer never displaces a running pod.
	for _, incumbent := range []bool{true, false} {
		for i := range claims {
			for _, c := range claims[i] {
				if c.incumbent == incumbent {
					m.settle(&m.next.Sources[i], c)
				}
			}
		}
	}
	for i, l := range listings {
		for _, e := range l.Entries {
			if e.Problem != nil {
				m.next.Sources[i].Problems = append(m.next.Sources[i].Problems, *e.Problem)
			}
			if e.Ignored != nil {
				m.next.Sources[i].Ignored = append(m.next.Sources[i].Ignored, *e.Ignored)
			}
		}
	}
	m.attachMirrors()
	return m.next
}

// claim is a pod that wants to be accepted.
type claim struct {
	pod       *Pod
	incumbent bool
}

type merger struct {
	was, next State
	now       time.Time
	names     map[string]*Pod // accepted static pods by full name
}

// claims turns a listing into pods, filling in what was accepted before where
// the source does not know better.
func (m *merger) claims(l Listing) []claim {
	if !l.Heard {
		if l.Source == pod.SourceAPI {
			maps.Copy(m.next.Mirrors, m.was.Mirrors)
		}
		return m.accepted(func(p *Pod) bool { return p.Source == l.Source })
	}
	var all []claim
	for _, e := range l.Entries {
		if e.Problem != nil {
			all = append(all, m.accepted(func(p *Pod) bool { return p.Source == l.Source && p.Origin == e.Origin })...)
			continue
		}
		for _, from := range e.Pods {
			if l.Source == pod.SourceAPI && pod.IsMirror(from) {
				m.next.Mirrors[from.Namespace+"/"+from.Name] = from
				continue
			}
			p := m.claimed(l.Source, e, from)
			all = append(all, claim{p, m.incumbent(p)})
		}
	}
	return all
}

// accepted are the pods of before that match; they are incumbents.
func (m *merger) accepted(match func(*Pod) bool) []claim {
	var all []claim
	for _, p := range sorted(m.was.Pods, match) {
		all = append(all, claim{p, true})
	}
	return all
}

// claimed makes an accepted pod of what a source gave.
func (m *merger) claimed(source string, e Entry, from *v1.Pod) *Pod {
	was, known := m.was.Pods[from.UID]
	known = known && was.Source == source && was.Origin == e.Origin
	again := known && !e.Rewritten.IsZero() && !e.Rewritten.Equal(was.rewritten)
	if known && was.from == from && !again {
		return was
	}
	seen, begun := m.now, e.Rewritten
	switch {
	case known:
		seen, begun = was.Seen, was.Begun
		if again {
			begun = after(was.Begun, e.Rewritten)
		}
	case source != pod.SourceAPI && m.heard(source):
		begun = m.now
	}
	p := *from
	p.Annotations = make(map[string]string, len(from.Annotations)+2)
	maps.Copy(p.Annotations, from.Annotations)
	p.Annotations[pod.ConfigSourceAnnotation] = source
	p.Annotations[pod.ConfigSeenAnnotation] = seen.Format(time.RFC3339Nano)
	return &Pod{Pod: &p, Source: source, Origin: e.Origin, Seen: seen, Begun: begun, from: from, rewritten: e.Rewritten}
}

// after is the time at, or right after before where the clock was set back between the two:
// that a manifest was written again is known by a later beginning, in other processes too.
func after(before, at time.Time) time.Time {
	before, at = before.Round(0), at.Round(0) // what others read of them
	if !at.After(before) {
		return before.Add(1)
	}
	return at
}

// heard reports whether a source was read whole before this.
func (m *merger) heard(source string) bool {
	return slices.ContainsFunc(m.was.Sources, func(s Source) bool { return s.Name == source && s.Heard })
}

// incumbent reports whether the same origin had a pod of this full name accepted.
func (m *merger) incumbent(p *Pod) bool {
	if was, ok := m.was.Pods[p.Pod.UID]; ok && was.Source == p.Source && was.Origin == p.Origin {
		return true
	}
	if p.Source == pod.SourceAPI {
		return false
	}
	for _, was := range m.was.Pods {
		if was.Source == p.Source && was.Origin == p.Origin && pod.FullName(was.Pod) == pod.FullName(p.Pod) {
			return true
		}
	}
	return false
}

// settle accepts a claim or refuses it with a problem.
func (m *merger) settle(source *Source, c claim) {
	p := c.pod
	if err := pod.CheckUID(p.Pod.UID); err != nil {
		source.refuse(p, "metadata.uid", err.Error())
		return
	}
	if holder, taken := m.next.Pods[p.Pod.UID]; taken {
		source.refuse(p, "metadata.uid", fmt.Sprintf("uid %s is taken by pod %s/%s of %s",
			p.Pod.UID, holder.Pod.Namespace, holder.Pod.Name, holder.where()))
		return
	}
	if p.Source != pod.SourceAPI {
		full := pod.FullName(p.Pod)
		if holder, taken := m.names[full]; taken {
			source.refuse(p, "metadata.name", fmt.Sprintf("duplicate pod %s/%s: %s has one of that name",
				p.Pod.Namespace, p.Pod.Name, holder.where()))
			return
		}
		m.names[full] = p
	}
	m.next.Pods[p.Pod.UID] = p
}

func (s *Source) refuse(p *Pod, field, message string) {
	s.Problems = append(s.Problems, Problem{Origin: p.Origin, Field: field, Message: message, Pod: p.Pod})
}

func (p *Pod) where() string {
	return cmp.Or(p.Origin, "the API server")
}

// attachMirrors gives each static pod the mirror of its full name. A mirror
// that the API server is not known to have is not attached.
func (m *merger) attachMirrors() {
	byName := make(map[string]*v1.Pod, len(m.next.Mirrors))
	for _, mirror := range m.next.Mirrors {
		byName[pod.FullName(mirror)] = mirror
	}
	for uid, p := range m.next.Pods {
		var mirror *v1.Pod
		if p.Source != pod.SourceAPI {
			mirror = byName[pod.FullName(p.Pod)]
		}
		if p.Mirror != mirror {
			changed := *p
			changed.Mirror = mirror
			m.next.Pods[uid] = &changed
		}
	}
}
