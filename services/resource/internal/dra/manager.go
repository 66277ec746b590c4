// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/store"
)

// attempts is the pause between attempts to prepare or unprepare; it ends early when a
// driver connects, a claim changes, or one is gone that had the name of another. It grows no
// longer than a kubelet's, which tries a pod again after ten to fifteen seconds.
var attempts = backoff.Doubling{Least: time.Second, Most: 10 * time.Second}

// patience is how long an answer waits for drivers: most need milliseconds.
const patience = time.Second

// Config of a manager. The functions may be called at any time, from any goroutine.
type Config struct {
	// Store keeps the claims.
	Store *store.Store
	// File is the kubelet's dra_manager_state.
	File string
	// Boot identifies the current boot of the node.
	Boot string
	// Claim finds a ResourceClaim as the API server has it.
	Claim func(namespace, name string) Object
	// DriversChanged says that a driver came, went, connected or lost its connection.
	DriversChanged func()
	// Changed says that Ask or Leave would answer something else for a pod.
	Changed func(uid string)
	// Observe takes in how long it took to prepare or unprepare a pod's claims, under the
	// kubelet's name of the operation.
	Observe     func(operation string, failed bool, took time.Duration)
	ObserveCall ObserveCall
	Now         func() time.Time
	Log         *slog.Logger
}

// Manager prepares the claims of pods. Make it with New; it works for one pod at a time in
// a goroutine of the pod's own, until its context ends.
type Manager struct {
	cfg     Config
	drivers *Drivers
	journal *journal
	health  *healths

	mu   sync.Mutex
	ctx  context.Context  // nil until Run
	pods map[string]*work // by UID
	// busy claims have a pod at work on them; idle is closed when one has not any more.
	busy map[string]bool
	idle chan struct{}
	work sync.WaitGroup
}

// New makes a manager of the claims that are in the store and the kubelet's file.
func New(cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, pods: map[string]*work{}, busy: map[string]bool{}, idle: make(chan struct{})}
	var err error
	if m.journal, err = openJournal(cfg.Store, cfg.File, cfg.Boot, cfg.Now(), cfg.Log); err != nil {
		return nil, fmt.Errorf("resource claims: %w", err)
	}
	if m.health, err = openHealths(cfg.Store, cfg.Now); err != nil {
		return nil, fmt.Errorf("health of the devices of claims: %w", err)
	}
	m.drivers = NewDrivers(cfg.ObserveCall, func(string) { m.Look(); cfg.DriversChanged() }, m.health, cfg.Now)
	return m, nil
}

// Drivers are those that registered.
func (m *Manager) Drivers() *Drivers { return m.drivers }

// Run works until ctx ends; it does not wait for drivers then.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	for _, w := range m.pods {
		m.begin(w)
	}
	m.mu.Unlock()
	m.watchHealth(ctx)
	m.work.Wait()
	m.drivers.Close()
}

// healthPace is the least time between two looks at what drivers report.
const healthPace = time.Second

// watchHealth has pods shown again whose devices are reported otherwise, until ctx ends.
func (m *Manager) watchHealth(ctx context.Context) {
	timer := time.NewTimer(0) // what was kept has an end, too
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.health.wake:
		case <-timer.C:
		}
		drivers, next := m.health.collect()
		for _, driver := range drivers {
			if err := m.health.keep(driver); err != nil {
				m.cfg.Log.Warn("reports about devices are not kept", "driver", driver, "error", err.Error())
			}
			for _, uid := range m.journal.users(driver) {
				m.cfg.Changed(uid)
			}
		}
		timer.Reset(healthPace)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !next.IsZero() {
			timer.Reset(max(next.Sub(m.cfg.Now()), healthPace))
		}
	}
}

// Health is how the devices of a container's claims are, as the pod's status shows them
// (KEP-4680).
func (m *Manager) Health(p *v1.Pod, c *v1.Container) []DeviceHealth {
	return healthOf(p, c, func(name string) *Claim { return m.journal.get(key(p.Namespace, name)) }, m.health.of)
}

// Look has whatever waits tried again now: a driver or a claim has changed.
func (m *Manager) Look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.pods {
		w.wake.Send()
	}
}

// Keep has the claims of a pod prepared that was admitted before, if they are not. begun
// reports whether containers of the pod were started in this boot, as Ask's running does.
func (m *Manager) Keep(p *v1.Pod, begun func() bool) error {
	if !Uses(p) {
		return nil
	}
	if !m.done(p) && begun() {
		if err := m.trust(string(p.UID)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.take(p)
	return nil
}

// Ask has the claims of a pod prepared. It returns nil when they are, waits a moment for
// that, and else returns why they are not yet: an error for the pod's user, in the
// kubelet's words, or ErrPending. A pod that runs is not waited for; what a kubelet
// prepared for it is taken to be prepared.
func (m *Manager) Ask(ctx context.Context, p *v1.Pod, running bool) error {
	if !Uses(p) {
		return nil
	}
	if running {
		if err := m.trust(string(p.UID)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	w := m.take(p)
	tried, waits := w.tried, !running && w.goal == arriving
	m.mu.Unlock()
	if waits {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		select {
		case <-tried:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.why()
}

// why is the answer about work that may be nil; callers hold Manager.mu.
func (w *work) why() error {
	switch {
	case w != nil && w.goal == there:
		return nil
	case w == nil || w.goal == away || w.err == nil || errors.Is(w.err, errUnread):
		return ErrPending
	}
	return fmt.Errorf("prepare dynamic resources: %w", w.err)
}

// take finds or begins the work for a pod, whose status may say more than before; callers
// hold Manager.mu.
func (m *Manager) take(p *v1.Pod) *work {
	w := m.pods[string(p.UID)]
	switch {
	case w == nil:
		w = newWork(string(p.UID), p)
		m.pods[w.uid] = w
	case w.goal == arriving:
		former, _ := needsOf(w.pod)
		if now, err := needsOf(p); err == nil && !slices.Equal(former, now) {
			w.wake.Send()
		}
		w.pod = p
	}
	if w.goal == arriving && !w.busy && m.done(p) {
		w.reach(there)
	}
	m.begin(w)
	return w
}

// done reports whether every claim of a pod is prepared for it.
func (m *Manager) done(p *v1.Pod) bool {
	needs, err := needsOf(p)
	return err == nil && !slices.ContainsFunc(needs, func(n need) bool {
		c := m.journal.get(key(p.Namespace, n.claim))
		return c == nil || !slices.Contains(c.Pods, string(p.UID)) || !c.ready(m.cfg.Boot)
	})
}

// Why says why the claims of a pod are not prepared, or returns nil when they are.
func (m *Manager) Why(uid string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid].why()
}

// ErrPending is the error of claims that are at work on, or not known yet.
var ErrPending = errors.New("the devices of its resource claims are being prepared")

// Leave has the claims of a pod unprepared that it was the last to use. It returns at
// once: done when the pod uses none any more, else with the last error, or nil if there is
// none yet.
func (m *Manager) Leave(uid string) (done bool, err error) {
	used := slices.Contains(m.journal.pods(), uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.pods[uid]
	switch {
	case w == nil && !used:
		return true, nil
	case w == nil:
		w = newWork(uid, nil)
		m.pods[uid] = w
	case !used && !w.busy: // nothing was begun for it
		delete(m.pods, uid)
		return true, nil
	}
	if w.goal != away {
		w.turn(away)
	}
	m.begin(w)
	if w.err != nil {
		return false, fmt.Errorf("unprepare dynamic resources: %w", w.err)
	}
	return false, nil
}

// Sweep has claims unprepared of pods that are gone, which only a kubelet that ran before
// can have left: wanted reports of a UID that is used, and not known here, whether the pod
// is still to be expected.
func (m *Manager) Sweep(wanted func(uid string) bool) {
	for _, uid := range m.journal.pods() {
		m.mu.Lock()
		known := m.pods[uid] != nil
		m.mu.Unlock()
		if !known && !wanted(uid) {
			m.cfg.Log.Info("claims of a pod that is gone are unprepared", "uid", uid)
			m.Leave(uid) //nolint:errcheck // tried until it is done
		}
	}
}

// Devices are the CDI devices of a container, by their qualified names.
func (m *Manager) Devices(p *v1.Pod, c *v1.Container) []string {
	return cdiDevices(p, c, func(name string) *Claim { return m.journal.get(key(p.Namespace, name)) })
}

// Claims are those that a container uses. They are not to be changed.
func (m *Manager) Claims(p *v1.Pod, c *v1.Container) []*Claim {
	return claimsOf(p, c, func(name string) *Claim { return m.journal.get(key(p.Namespace, name)) })
}

// InUse counts the claims that pods use, by driver, and all of them.
func (m *Manager) InUse() (byDriver map[string]int, all int) {
	byDriver = map[string]int{}
	claims := m.journal.all()
	for _, c := range claims {
		for name := range c.Drivers {
			byDriver[name]++
		}
	}
	return byDriver, len(claims)
}

// trust takes what a kubelet prepared for a running pod as prepared.
func (m *Manager) trust(uid string) error {
	return m.journal.change(func(known map[string]*Claim) []*Claim {
		var trusted []*Claim
		for _, c := range known {
			if !slices.Contains(c.Pods, uid) || c.ready(m.cfg.Boot) {
				continue
			}
			c = c.clone()
			for name, d := range c.Drivers {
				if d.Stage == unsure {
					c.Drivers[name] = Driver{Stage: prepared, Boot: m.cfg.Boot, Devices: d.Devices}
				}
			}
			m.cfg.Log.Info("claim of a running pod is taken to be prepared", "claim", c.key(), "uid", uid)
			trusted = append(trusted, c)
		}
		return trusted
	})
}
