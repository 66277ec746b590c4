// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// readers serializes the readings of each pod, so that none is overtaken by an older
// one, and remembers what was read last. Requests during a reading wait for the next
// one, which they share: a burst of events is two readings.
type readers struct {
	mu    sync.Mutex
	pods  map[string]*reader
	ended uint64 // readings
}

type reader struct {
	// guarded by readers.mu
	next        *reading // asked for, not begun
	notice      *notice  // what the next reading answers beside what it is asked for
	running     bool
	ended       uint64 // the last reading, as they were counted
	fingerprint uint64
	failing     bool

	// What follows belongs to the running reading: the status of containers that can no
	// longer change, when those that have failed lately were first read, and what the last
	// reading found, nil before the first.
	exited map[string]*runtimeapi.ContainerStatus
	failed map[string]time.Time
	found  *inventory
}

// reading is one look at one pod; its fields may be read when done is closed.
type reading struct {
	question question
	done     chan struct{}
	record   *plegv1.PodRecord
	revision feed.Revision
	err      error
}

// notice is a question that causes no reading: the next one answers it, whoever asks for
// that. Readings that have begun before do not.
type notice struct {
	question question
	taken    bool // guarded by readers.mu: a reading has begun that answers it
}

func newReaders() *readers { return &readers{pods: map[string]*reader{}} }

// ask adds a question to the next reading of a pod. first is set if no goroutine runs the
// pod's readings yet.
func (r *readers) ask(uid string, q question) (next *reading, p *reader, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p = r.of(uid)
	if p.next == nil {
		p.next = &reading{question: newQuestion(), done: make(chan struct{})}
	}
	p.next.question.join(q)
	first, p.running = !p.running, true
	return p.next, p, first
}

// of is the reader of a pod, whose lock is held.
func (r *readers) of(uid string) *reader {
	p := r.pods[uid]
	if p == nil {
		p = &reader{exited: map[string]*runtimeapi.ContainerStatus{}}
		r.pods[uid] = p
	}
	return p
}

// note leaves a question with a pod for its next reading.
func (r *readers) note(uid string, q question) *notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of(uid)
	if p.notice == nil {
		p.notice = &notice{question: newQuestion()}
	}
	p.notice.question.join(q)
	return p.notice
}

// taken reports whether a reading that answers a notice has begun.
func (r *readers) taken(n *notice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.taken
}

// begin takes the next reading, with what was noted for it; nil when none is requested.
func (r *readers) begin(p *reader) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := p.next
	p.next, p.running = nil, next != nil
	if next != nil && p.notice != nil {
		next.question.join(p.notice.question)
		p.notice.taken, p.notice = true, nil
	}
	if next != nil {
		if q := &next.question; q.given != nil && p.ended > q.since {
			q.given, q.list = nil, true
		}
	}
	return next
}

// end notes that a reading has ended.
func (r *readers) end(p *reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	p.ended = r.ended
}

// mark counts the readings that have ended. A list that is made then is newer than all
// that they found; it may be older than what a reading finds that is under way.
func (r *readers) mark() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// differs reports whether a pod must be read: it looks different from the last
// reading, or that reading failed.
func (r *readers) differs(uid string, fingerprint uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	return p == nil || p.failing || p.fingerprint != fingerprint
}

func (r *readers) done(p *reader, fingerprint uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.fingerprint, p.failing = fingerprint, false
}

// failed notes a reading that failed; first if the one before had not.
func (r *readers) failed(p *reader) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, p.failing = !p.failing, true
	return first
}

// failing reports whether the last reading of any pod failed.
func (r *readers) failing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.failing {
			return true
		}
	}
	return false
}

// forget drops pods that are nowhere any more and not being read.
func (r *readers) forget(gone func(uid string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, p := range r.pods {
		if !p.running && gone(uid) {
			delete(r.pods, uid)
		}
	}
}
