// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/file"
)

// Names of logind on the bus (org.freedesktop.login1(5)), and the gate's own.
const (
	login       = "org.freedesktop.login1"
	loginObject = dbus.ObjectPath("/org/freedesktop/login1")
	loginHost   = login + ".Manager"

	// Name is the destination and the interface of the calls that a gate to logind
	// carries out itself: Delay(need, want), both in microseconds, Hold() and
	// Release().
	Name = "io.github.sextant_node.Gate"
)

// DropIn is the file that raises the delay logind grants (logind.conf.d(5)); the
// kubelet's name for it, so that the two do not contradict each other.
const DropIn = "/etc/systemd/logind.conf.d/99-kubelet.conf"

// written is the first line of the file, by which Undo knows it.
const written = "# Written by sextant: pods are given time to end before the machine goes down."

// reloads is the pause between the looks, mostLooks at most, at whether logind has read
// its files.
var reloads = backoff.Doubling{Least: 100 * time.Millisecond, Most: 1600 * time.Millisecond}

const mostLooks = 5

// maxDelay is the longest delay a client may request.
const maxDelay = 24 * time.Hour

// Logind passes the signals of a shutdown, and holds the lock that delays it.
type Logind struct {
	// Bus is the socket of the system bus.
	Bus string
	// DropIn is the path of the file for the delay.
	DropIn string

	mu   sync.Mutex
	lock io.Closer
}

// Allow implements Policy.
func (l *Logind) Allow(m *Message) error {
	if m.Type != dbus.TypeMethodCall {
		return fmt.Errorf("a message of type %s", m.Type)
	}
	call := m.method()
	switch {
	case m.Destination == theBus && call == theBus+".Hello":
		return nil
	case m.Destination == theBus && call == theBus+".AddMatch":
		return listens(m, loginHost)
	case m.Destination == login && m.Path == loginObject && call == theBus+".Properties.Get":
		return nil
	}
	return fmt.Errorf("%s of %s %s", call, m.Destination, m.Path)
}

// Answer implements Answerer.
func (l *Logind) Answer(ctx context.Context, m *Message) (mine bool, err error) {
	if m.Destination != Name || m.Type != dbus.TypeMethodCall {
		return false, nil
	}
	switch m.method() {
	case Name + ".Delay":
		need, want, err := delays(m)
		if err != nil {
			return true, err
		}
		return true, l.delay(ctx, need, want)
	case Name + ".Hold":
		return true, l.hold(ctx)
	case Name + ".Release":
		return true, l.Release()
	}
	return false, nil
}

func delays(m *Message) (need, want time.Duration, err error) {
	if err := m.has("tt"); err != nil {
		return 0, 0, err
	}
	for i, to := range []*time.Duration{&need, &want} {
		micros := m.Body[i].(uint64)
		if micros > uint64(maxDelay/time.Microsecond) {
			return 0, 0, fmt.Errorf("a delay of %d microseconds", micros)
		}
		*to = time.Duration(micros) * time.Microsecond
	}
	return need, max(need, want), nil
}

// connect connects to the bus as root.
func (l *Logind) connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.Connect("unix:path="+dbus.EscapeBusAddressValue(l.Bus), dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return conn, nil
}

// hold takes the lock, unless it is held.
func (l *Logind) hold(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		return nil
	}
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the lock is a descriptor of its own
	var fd dbus.UnixFD
	err = conn.Object(login, loginObject).CallWithContext(ctx, loginHost+".Inhibit", 0,
		"shutdown", "sextant", "pods are given time to end", "delay").Store(&fd)
	if err != nil {
		return fmt.Errorf("delaying shutdowns: %w", err)
	}
	l.lock = os.NewFile(uintptr(fd), "inhibitor")
	return nil
}

// Release releases the lock, so that the machine goes down.
func (l *Logind) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock == nil {
		return nil
	}
	err := l.lock.Close()
	l.lock = nil
	return err
}

// delay makes logind wait at least as long as needed for holders of a delay lock.
func (l *Logind) delay(ctx context.Context, need, want time.Duration) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // every call was answered
	have, err := granted(ctx, conn)
	if err != nil || have >= need {
		return err
	}
	if err := l.write(want); err != nil {
		return err
	}
	const hangup = int32(1)
	err = conn.Object(systemd, object).CallWithContext(ctx, manager+".KillUnit", 0, "systemd-logind.service", "all", hangup).Err
	if err != nil {
		return fmt.Errorf("reload of logind: %w", err)
	}
	// It reads its files some time after the reload.
	for looks := 1; looks <= mostLooks; looks++ {
		if have, err = granted(ctx, conn); err != nil || have >= need {
			return err
		}
		if !reloads.Wait(ctx, looks) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("logind grants a delay of %s although %s asks for %s", have, l.DropIn, want)
}

func granted(ctx context.Context, conn *dbus.Conn) (time.Duration, error) {
	var v dbus.Variant
	err := conn.Object(login, loginObject).CallWithContext(ctx, theBus+".Properties.Get", 0, loginHost, "InhibitDelayMaxUSec").Store(&v)
	if err != nil {
		return 0, fmt.Errorf("delay granted by logind: %w", err)
	}
	micros, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("delay granted by logind: a value of type %s", v.Signature())
	}
	return time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond, nil
}

func (l *Logind) write(delay time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(l.DropIn), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("%s\n[Login]\nInhibitDelayMaxSec=%d\n", written, int64(math.Ceil(delay.Seconds())))
	return file.Replace(l.DropIn, []byte(text), 0o644)
}

// Undo removes the file if a gate wrote it; any other stays.
func Undo(dropIn string) error {
	data, err := os.ReadFile(dropIn)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil || !strings.HasPrefix(string(data), written) {
		return err
	}
	return os.Remove(dropIn)
}
