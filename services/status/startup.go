package status

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// startTimes measures how long pods take from creation to running, without those
// that were there before this process.
type startTimes struct {
	since   time.Time
	observe func(seen, sli, total time.Duration)

	mu   sync.Mutex
	pods map[string]*startTime
}

type startTime struct {
	measured             bool
	pullBegin, pullFinal time.Time
}

func newStartTimes(since time.Time, observe func(seen, sli, total time.Duration)) *startTimes {
	return &startTimes{since: since, observe: observe, pods: map[string]*startTime{}}
}

func (s *startTimes) entry(uid string) *startTime {
	t, ok := s.pods[uid]
	if !ok {
		t = &startTime{}
		s.pods[uid] = t
	}
	return t
}

// event hears of pulls.
func (s *startTimes) event(e *eventv1.Event) {
	reason := e.GetReason()
	if reason != "Pulling" && reason != "Pulled" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, at := s.entry(e.GetObject().GetUid()), e.GetTime().AsTime()
	if reason == "Pulling" && t.pullBegin.IsZero() {
		t.pullBegin = at
	}
	if reason == "Pulled" && !t.pullBegin.IsZero() {
		t.pullFinal = at
	}
}

// rendered hears of each new status.
func (s *startTimes) rendered(uid string, d *desired, status *v1.PodStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.entry(uid)
	if t.measured || status.Phase == v1.PodPending || status.Phase == "" {
		return
	}
	t.measured = true
	seen := d.item.GetSeenAt().AsTime()
	if status.Phase != v1.PodRunning || seen.Before(s.since) {
		return
	}
	created := d.pod.CreationTimestamp.Time
	if created.IsZero() {
		created = seen
	}
	total := now.Sub(created)
	s.observe(now.Sub(seen), max(0, total-t.pulled()-initTime(status)), total)
}

func (t *startTime) pulled() time.Duration {
	if t.pullFinal.Before(t.pullBegin) {
		return 0
	}
	return t.pullFinal.Sub(t.pullBegin)
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

func (s *startTimes) forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}
