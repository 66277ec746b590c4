// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// starts observes how long starts of pods took; *metrics does.
type starts interface {
	// running: the pod runs, so long after it was first seen.
	running(seen time.Duration)
	// known: the API server knows that all of its containers run, so long after
	// the pod was created; sli is without image pulls and init containers.
	known(p *v1.Pod, sli, total time.Duration)
}

// startTimes measures how long pods take from creation to running, without those
// that were there before this process.
type startTimes struct {
	since time.Time
	to    starts

	mu   sync.Mutex
	pods map[string]*startTime
}

type startTime struct {
	running, known bool               // measured
	pulls          map[string]*pulled // by container
}

// pulled is the time from the first try to pull an image to its presence.
type pulled struct{ begin, end time.Time }

func newStartTimes(since time.Time, to starts) *startTimes {
	return &startTimes{since: since, to: to, pods: map[string]*startTime{}}
}

func (s *startTimes) entry(uid string) *startTime {
	t, ok := s.pods[uid]
	if !ok {
		t = &startTime{pulls: map[string]*pulled{}}
		s.pods[uid] = t
	}
	return t
}

// event observes pulls.
func (s *startTimes) event(e *eventv1.Event) {
	reason := e.GetReason()
	if reason != "Pulling" && reason != "Pulled" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, at, container := s.entry(e.GetObject().GetUid()), e.GetTime().AsTime(), e.GetObject().GetFieldPath()
	p := t.pulls[container]
	switch {
	case reason == "Pulling" && p == nil:
		t.pulls[container] = &pulled{begin: at}
	case reason == "Pulled" && p != nil && p.end.IsZero():
		p.end = at
	}
}

// rendered observes each status that was rendered.
func (s *startTimes) rendered(uid string, d *desired, status *v1.PodStatus, now time.Time) {
	if d == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.entry(uid)
	if t.running || status.Phase == v1.PodPending || status.Phase == "" {
		return
	}
	t.running = true
	if seen := d.item.GetSeenAt().AsTime(); status.Phase == v1.PodRunning && !seen.Before(s.since) {
		s.to.running(now.Sub(seen))
	}
}

// reported observes the status that the API server is known to have, nil for
// none.
func (s *startTimes) reported(uid string, d *desired, status *v1.PodStatus, now time.Time) {
	if d == nil || status == nil || !allRunning(status) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.entry(uid)
	if t.known {
		return
	}
	t.known = true
	seen := d.item.GetSeenAt().AsTime()
	if seen.Before(s.since) {
		return
	}
	created := d.pod.CreationTimestamp.Time
	if created.IsZero() {
		created = seen // a static pod
	}
	total := now.Sub(created)
	s.to.known(d.pod, max(0, total-t.pulled()-initTime(status)), total)
}

// allRunning reports whether every container of a pod runs.
func allRunning(status *v1.PodStatus) bool {
	return len(status.ContainerStatuses) > 0 && !slices.ContainsFunc(status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.IsZero()
	})
}

// pulled is how long any image was waited for; pulls at the same time count once.
func (t *startTime) pulled() (sum time.Duration) {
	var all []*pulled
	for _, p := range t.pulls {
		if p.end.After(p.begin) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pulled) int { return a.begin.Compare(b.begin) })
	var until time.Time
	for _, p := range all {
		from := p.begin
		if until.After(from) {
			from = until
		}
		if p.end.After(from) {
			sum, until = sum+p.end.Sub(from), p.end
		}
	}
	return sum
}

// initTime is how long init containers ran.
func initTime(status *v1.PodStatus) (sum time.Duration) {
	for _, c := range status.InitContainerStatuses {
		if e := c.State.Terminated; e != nil && !e.StartedAt.IsZero() && e.FinishedAt.After(e.StartedAt.Time) {
			sum += e.FinishedAt.Sub(e.StartedAt.Time)
		}
	}
	return sum
}

// stateful reports whether a pod mounts more than the API and the node give it: its
// start is not the node's alone (pod startup latency SLI).
func stateful(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		return volumetype.Of(&v).Origin == volumetype.Elsewhere
	})
}

func (s *startTimes) forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}
