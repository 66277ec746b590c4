// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/pkg/signal"
)

// goal of the work for a pod.
type goal string

// The goals: on the way to being prepared, prepared, and on the way to being unprepared.
// A pod whose claims are unprepared has no work.
const (
	arriving goal = "arriving"
	there    goal = "there"
	away     goal = "away"
)

// mostError bounds what a driver says of one claim, in bytes.
const mostError = 1024

// work is what is done for one pod; guarded by Manager.mu.
type work struct {
	uid  string
	pod  *v1.Pod // nil for one that only leaves
	goal goal
	err  error // of the last attempt at the goal
	// called: the attempt has come as far as calling drivers; err is of one that had not when
	// uncalled.
	called, uncalled bool
	// busy: a goroutine is at it. tried is closed after the first attempt at the goal.
	busy   bool
	tried  chan struct{}
	wake   signal.Signal
	cancel context.CancelFunc // of the attempt, if there is one
}

func newWork(uid string, p *v1.Pod) *work {
	w := &work{uid: uid, pod: p, goal: arriving, tried: make(chan struct{}), wake: signal.New()}
	if p == nil {
		w.goal = away
	}
	return w
}

// turn changes the goal; an attempt at the former one ends.
func (w *work) turn(to goal) {
	w.goal, w.err = to, nil
	if w.cancel != nil {
		w.cancel()
	}
	w.wake.Send()
}

// reach is for a goal that needs no more work.
func (w *work) reach(at goal) {
	w.goal, w.err = at, nil
	w.answer()
}

// answer lets those go on who wait for the first attempt.
func (w *work) answer() {
	select {
	case <-w.tried:
	default:
		close(w.tried)
	}
}

// calling notes that drivers are called. What kept the attempt before from that is over, as
// it reports, and is not what the pod waits for, however long they take.
func (w *work) calling() (over bool) {
	if w == nil || w.goal != arriving {
		return false
	}
	w.called = true
	if over = w.err != nil && w.uncalled; over {
		w.err = nil
	}
	return over
}

// uses reports whether a pod that comes uses one of the claims.
func (w *work) uses(keys []string) bool {
	if w.goal != arriving {
		return false
	}
	needs, _ := needsOf(w.pod) // none while a claim has no name yet: the pod waits for that
	return slices.ContainsFunc(needs, func(n need) bool { return slices.Contains(keys, key(w.pod.Namespace, n.claim)) })
}

// begin has a goroutine work for a pod unless one does; callers hold Manager.mu.
func (m *Manager) begin(w *work) {
	if w.busy || w.goal == there || m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	w.busy = true
	m.work.Go(func() { m.pursue(m.ctx, w) })
}

// pursue tries until the pod's goal is reached, or ctx ends.
func (m *Manager) pursue(ctx context.Context, w *work) {
	for failures := 1; ; failures++ {
		m.mu.Lock()
		attempt, cancel := context.WithCancel(ctx)
		w.cancel = cancel
		to, p := w.goal, w.pod
		w.called = false
		m.mu.Unlock()
		err := m.attempt(attempt, w.uid, to, p)
		cancel()
		if over := m.attempted(w, to, err); over || ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(attempts.After(failures))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.wake:
			failures = 0
		}
		timer.Stop()
	}
}

// attempted takes in how an attempt at a goal ended; over when there is nothing more to do.
func (m *Manager) attempted(w *work, to goal, err error) (over bool) {
	m.mu.Lock()
	moved := false
	if w.goal == to {
		moved = err == nil || w.err == nil || w.err.Error() != err.Error()
		w.err, w.uncalled = err, !w.called
		switch {
		case err != nil:
		case to == arriving:
			w.reach(there)
			w.busy, over = false, true
		default:
			delete(m.pods, w.uid)
			w.busy, over = false, true
		}
	}
	w.answer()
	m.mu.Unlock()
	if moved {
		if err != nil {
			m.cfg.Log.Warn("resource claims", "uid", w.uid, "goal", string(to), "error", err.Error())
		}
		m.cfg.Changed(w.uid)
	}
	return over
}

func (m *Manager) attempt(ctx context.Context, uid string, to goal, p *v1.Pod) error {
	began, operation := m.cfg.Now(), "PrepareResources"
	var err error
	if to == away {
		operation = "UnprepareResources"
		err = m.unprepare(ctx, uid)
	} else {
		err = m.prepare(ctx, p)
	}
	m.cfg.Observe(operation, err != nil, m.cfg.Now().Sub(began))
	return err
}

// occupy waits until no other pod is at work on any of the claims.
func (m *Manager) occupy(ctx context.Context, keys []string) (free func(), err error) {
	for {
		m.mu.Lock()
		if !slices.ContainsFunc(keys, func(k string) bool { return m.busy[k] }) {
			for _, k := range keys {
				m.busy[k] = true
			}
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, k := range keys {
					delete(m.busy, k)
				}
				close(m.idle)
				m.idle = make(chan struct{})
			}, nil
		}
		idle := m.idle
		m.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// prepare has every claim of a pod prepared.
func (m *Manager) prepare(ctx context.Context, p *v1.Pod) error {
	needs, err := needsOf(p)
	if err != nil {
		return err
	}
	var wants []wanted
	var keys []string
	for _, n := range needs {
		if slices.Contains(keys, key(p.Namespace, n.claim)) {
			continue // two entries may name one claim
		}
		o := m.cfg.Claim(p.Namespace, n.claim)
		names, err := usable(p, n, o)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := m.drivers.get(name); err != nil {
				return err
			}
		}
		wants = append(wants, wanted{o.Claim.UID, p.Namespace, n.claim, names})
		keys = append(keys, key(p.Namespace, n.claim))
	}
	free, err := m.occupy(ctx, keys)
	if err != nil {
		return err
	}
	defer free()
	var calls map[string][]*Claim
	var refused error
	err = m.journal.change(func(known map[string]*Claim) (next []*Claim) {
		next, calls, refused = join(string(p.UID), wants, known, m.cfg.Boot)
		return next
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return fmt.Errorf("checkpoint ResourceClaim cache: %w", err)
	}
	m.mu.Lock()
	over := m.pods[string(p.UID)].calling()
	m.mu.Unlock()
	if over {
		m.cfg.Changed(string(p.UID))
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if err := m.prepareBy(ctx, name, calls[name]); err != nil {
			return err
		}
	}
	return nil
}

// prepareBy has a driver prepare claims. What it has prepared is on the disk, whatever else
// went wrong.
func (m *Manager) prepareBy(ctx context.Context, name string, claims []*Claim) error {
	driver, err := m.drivers.get(name)
	if err != nil {
		return err
	}
	if err := fault.Hit(ctx, "dra.prepare"); err != nil {
		return err
	}
	resp, err := driver.prepare(ctx, claims)
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	if err := fault.Hit(ctx, "dra.prepared"); err != nil {
		return err
	}
	var done []*Claim
	devices := map[string][]Device{}
	err = answers("NodePrepareResources", claims, resp.GetClaims(), func(c *Claim, r *drav1.NodePrepareResourceResponse) {
		for _, d := range r.GetDevices() {
			devices[c.key()] = append(devices[c.key()], deviceOf(d))
		}
		done = append(done, c)
	})
	journalErr := m.journal.amend(done, func(c *Claim) {
		c.Drivers[name] = Driver{Stage: prepared, Boot: m.cfg.Boot, Devices: devices[c.key()]}
	})
	if journalErr != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", journalErr)
	}
	return err
}

// unprepare has every claim unprepared that a pod was the last to use. All drivers are
// called, whatever others answer.
func (m *Manager) unprepare(ctx context.Context, uid string) error {
	var keys []string
	for k, c := range m.journal.all() {
		if slices.Contains(c.Pods, uid) {
			keys = append(keys, k)
		}
	}
	free, err := m.occupy(ctx, keys)
	if err != nil {
		return err
	}
	defer free()
	var last []*Claim
	var calls map[string][]*Claim
	err = m.journal.change(func(known map[string]*Claim) []*Claim {
		var shared []*Claim
		shared, last, calls = leave(uid, known)
		return slices.Concat(shared, last)
	})
	if err != nil {
		return fmt.Errorf("checkpoint ResourceClaim cache: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if err := m.unprepareBy(ctx, name, calls[name]); err != nil {
			errs = append(errs, err)
		}
	}
	var gone []string
	err = m.journal.amend(last, func(c *Claim) {
		if c.unheld() {
			c.Pods = nil
			gone = append(gone, c.key())
		}
	})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("checkpoint ResourceClaim state: %w", err))...)
	}
	m.mu.Lock()
	for _, w := range m.pods {
		if w.uses(gone) { // it may wait for the name
			w.wake.Send()
		}
	}
	m.mu.Unlock()
	return errors.Join(errs...)
}

// unprepareBy has a driver unprepare claims.
func (m *Manager) unprepareBy(ctx context.Context, name string, claims []*Claim) error {
	driver, err := m.drivers.get(name)
	if err != nil {
		return err
	}
	if err := fault.Hit(ctx, "dra.unprepare"); err != nil {
		return err
	}
	resp, err := driver.unprepare(ctx, claims)
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	if err := fault.Hit(ctx, "dra.unprepared"); err != nil {
		return err
	}
	var done []*Claim
	err = answers("NodeUnprepareResources", claims, resp.GetClaims(), func(c *Claim, _ *drav1.NodeUnprepareResourceResponse) {
		done = append(done, c)
	})
	journalErr := m.journal.amend(done, func(c *Claim) { c.Drivers[name] = Driver{Stage: none} })
	if journalErr != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", journalErr)
	}
	return err
}

// answers goes through what a driver said of each claim: good is called for those without
// an error, and the first fault is returned in the kubelet's words.
func answers[R interface{ GetError() string }](method string, claims []*Claim, said map[string]R, good func(*Claim, R)) error {
	var first error
	fail := func(err error) {
		if first == nil {
			first = err
		}
	}
	skipped := 0
	for _, c := range claims {
		r, ok := said[string(c.UID)]
		switch {
		case !ok:
			skipped++
		case r.GetError() != "":
			fail(fmt.Errorf("%s failed for ResourceClaim %s: %s", method, c.Name, quiet.Cut(r.GetError(), mostError)))
		default:
			good(c, r)
		}
	}
	for uid := range said {
		if !slices.ContainsFunc(claims, func(c *Claim) bool { return string(c.UID) == uid }) {
			fail(fmt.Errorf("%s returned result for unknown claim UID %s", method, quiet.Cut(uid, 64)))
		}
	}
	if skipped > 0 {
		fail(fmt.Errorf("%s skipped %d ResourceClaims", method, skipped))
	}
	return first
}

func deviceOf(d *drav1.Device) Device {
	is := Device{PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), RequestNames: d.GetRequestNames(), CDIDeviceIDs: d.GetCdiDeviceIds()}
	if id := d.ShareId; id != nil {
		is.ShareID = new(types.UID(*id))
	}
	return is
}
