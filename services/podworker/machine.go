// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/podworker/internal/logind"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
)

// reconnect is how soon logind is tried again.
const reconnect = time.Second

// host is what the end of the node asks of the machine; a connection to logind is
// one.
type host interface {
	Preparing(ctx context.Context) (bool, error)
	Delay(ctx context.Context, need, want time.Duration) error
	Hold(ctx context.Context) error
	Release(ctx context.Context) error
	Changed() <-chan *dbus.Signal
	Close() error
}

// machine keeps a connection to logind while the configuration asks for it, learns
// whether the machine goes down, and holds it or lets it go.
type machine struct {
	// connect connects; nil where there is nothing to connect to.
	connect func(ctx context.Context) (host, error)
	log     *slog.Logger
	// changed is called when said may answer otherwise.
	changed func()

	wake      signal.Signal
	mu        sync.Mutex
	total     time.Duration // that pods need; 0 for: shutdowns are not waited for
	decided   bool          // whether to hold; before that nothing is let go
	holding   bool
	preparing *bool
	problem   string
}

// dialLogind connects to a D-Bus address; nil for none.
func dialLogind(address string) func(ctx context.Context) (host, error) {
	if address == "" {
		return nil
	}
	return func(ctx context.Context) (host, error) { return logind.Connect(ctx, address) }
}

// need says how much time pods need.
func (m *machine) need(total time.Duration) {
	m.mu.Lock()
	m.total = total
	m.mu.Unlock()
	m.wake.Send()
}

// hold says whether the machine must not go down yet.
func (m *machine) hold(holding bool) {
	m.mu.Lock()
	same := m.decided && m.holding == holding
	m.decided, m.holding = true, holding
	m.mu.Unlock()
	if !same {
		m.wake.Send()
	}
}

// said is whether the machine is about to go down, nil while that is not known, and
// why it would not wait for pods, if so.
func (m *machine) said() (preparing *bool, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.preparing, m.problem
}

// run works until ctx ends. What is held stays held: the next process decides.
func (m *machine) run(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		err := errNoLogind
		if m.connect != nil {
			err = m.attend(ctx)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped, whatever that did to the connection
		}
		m.mu.Lock()
		wanted := m.total > 0
		m.mu.Unlock()
		why := ""
		if err != nil && wanted {
			why = err.Error()
		}
		if why != "" && why != last {
			m.log.Warn("shutdowns of the machine do not wait for pods", service.KeyError, why)
		}
		last = why
		m.settle(nil, why)
		if wanted && m.connect != nil {
			m.pause(ctx, reconnect)
		} else {
			m.pause(ctx, 0)
		}
	}
	return nil
}

// pause waits; without a duration until something changes.
func (m *machine) pause(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	wake := m.wake
	if d > 0 {
		over, wake = time.After(d), nil
	}
	select {
	case <-ctx.Done():
	case <-over:
	case <-wake:
	}
}

// settle notes what is known, and reports it if it has changed.
func (m *machine) settle(preparing *bool, problem string) {
	m.mu.Lock()
	same := m.problem == problem && (m.preparing == nil) == (preparing == nil) && (preparing == nil || *m.preparing == *preparing)
	m.preparing, m.problem = preparing, problem
	m.mu.Unlock()
	if !same {
		m.changed()
	}
}

var (
	errLogindAway = errors.New("logind: the connection has ended")
	errNoLogind   = errors.New("nobody tells of shutdowns: systemd is not what started this machine")
)

// attend works with one connection until it breaks.
func (m *machine) attend(ctx context.Context) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	for {
		preparing, err := conn.Preparing(ctx)
		if err != nil {
			return err
		}
		if err := m.carryOut(ctx, conn, preparing); err != nil {
			m.settle(&preparing, err.Error())
			return err
		}
		m.settle(&preparing, "")
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case _, ok := <-conn.Changed():
			if !ok {
				return errLogindAway
			}
		}
	}
}

// carryOut holds the machine, or lets it go. Once it is on its way down it is too
// late to take hold of it.
func (m *machine) carryOut(ctx context.Context, conn host, preparing bool) error {
	m.mu.Lock()
	total, decided, holding := m.total, m.decided, m.holding
	m.mu.Unlock()
	switch {
	case !decided:
		return nil
	case !holding:
		return conn.Release(ctx)
	case preparing:
		return nil
	}
	if err := conn.Delay(ctx, total, total+shutdown.ReportTime); err != nil {
		return err
	}
	return conn.Hold(ctx)
}
