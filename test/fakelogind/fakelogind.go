// SPDX-License-Identifier: Apache-2.0

// Package fakelogind is a machine that can be shut down in a test: a real
// dbus-daemon of its own, and on it what a node agent needs of systemd-logind and
// of systemd.
//
// It keeps delay locks as logind does, by a pipe's end given to whoever asks; says
// PrepareForShutdown both ways; reads the delay it grants from a file when it is
// told to reload; and says when a shutdown would go on.
package fakelogind

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

const (
	login   = "org.freedesktop.login1"
	host    = login + ".Manager"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	systemd = "org.freedesktop.systemd1"
	// gate is the name of the orders a node's supervisor carries out.
	gate = "io.github.sextant_node.Gate"
)

// DefaultDelay is logind's own (logind.conf(5)).
const DefaultDelay = 5 * time.Second

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
`

// Machine is the machine.
type Machine struct {
	// Socket of the bus.
	Socket string
	// DropIn is the file that raises the delay.
	DropIn string

	t     *testing.T
	conn  *dbus.Conn
	props *prop.Properties
	bus   *exec.Cmd

	mu      sync.Mutex
	locks   map[*os.File]string // who, by the end that is read
	reloads int
	own     *os.File        // of the gate's own orders
	units   map[string]bool // whether they run
	changed chan struct{}
}

// Start starts a machine; with orders, it takes the orders of a node's supervisor
// itself. It ends with the test.
func Start(t *testing.T, orders bool) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "logind") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{
		Socket: filepath.Join(dir, "bus"), DropIn: filepath.Join(dir, "logind.conf.d", "99-kubelet.conf"),
		t: t, locks: map[*os.File]string{}, changed: make(chan struct{}),
	}
	t.Cleanup(func() {
		m.StopBus()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "bus.conf"), fmt.Appendf(nil, busConfig, m.Socket), 0o600); err != nil {
		t.Fatal(err)
	}
	m.StartBus()
	if orders {
		m.Orders()
	}
	return m
}

// Orders takes the orders of a node's supervisor.
func (m *Machine) Orders() {
	m.t.Helper()
	m.must(m.conn.Export(supervisor{m}, "/", gate))
	m.name(gate)
}

func (m *Machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// Address of the bus.
func (m *Machine) Address() string {
	return "unix:path=" + dbus.EscapeBusAddressValue(m.Socket)
}

// StartBus starts the bus and what is on it, after StopBus with fresh locks.
func (m *Machine) StartBus() {
	m.t.Helper()
	m.bus = exec.Command("dbus-daemon", "--config-file="+filepath.Join(filepath.Dir(m.Socket), "bus.conf"), "--nofork", "--print-address=1")
	out, err := m.bus.StdoutPipe()
	m.must(err)
	said := &bytes.Buffer{}
	m.bus.Stderr = said
	m.must(m.bus.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil { // it listens
		m.t.Fatalf("dbus-daemon: %v\n%s", err, said)
	}
	m.conn, err = dbus.Connect(m.Address())
	m.must(err)
	m.props, err = prop.Export(m.conn, object, prop.Map{host: {
		"InhibitDelayMaxUSec":  {Value: uint64(DefaultDelay / time.Microsecond), Emit: prop.EmitFalse},
		"PreparingForShutdown": {Value: false, Emit: prop.EmitFalse},
	}})
	m.must(err)
	m.must(m.conn.Export(logind{m}, object, host))
	m.must(m.conn.Export(manager{m}, "/org/freedesktop/systemd1", systemd+".Manager"))
	m.name(login)
	m.name(systemd)
}

func (m *Machine) name(name string) {
	m.t.Helper()
	reply, err := m.conn.RequestName(name, dbus.NameFlagDoNotQueue)
	m.must(err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		m.t.Fatalf("the name %s is taken", name)
	}
}

// StopBus ends the bus, as a crash of it would.
func (m *Machine) StopBus() {
	if m.bus == nil {
		return
	}
	_ = m.conn.Close() // it ends with the bus
	err := errors.Join(m.bus.Process.Kill(), m.bus.Wait())
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		m.t.Errorf("dbus-daemon: %v", err)
	}
	m.bus = nil
}

// Shutdown begins to shut the machine down; false calls it off.
func (m *Machine) Shutdown(down bool) {
	m.t.Helper()
	m.props.SetMust(host, "PreparingForShutdown", down)
	m.must(m.conn.Emit(object, host+".PrepareForShutdown", down))
}

// Held are those who delay a shutdown.
func (m *Machine) Held() (who []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.locks {
		who = append(who, name)
	}
	return who
}

// Reloads is how often logind was told to read its files again.
func (m *Machine) Reloads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reloads
}

// Delay is what logind grants.
func (m *Machine) Delay() time.Duration {
	return time.Duration(m.props.GetMust(host, "InhibitDelayMaxUSec").(uint64)) * time.Microsecond
}

// Changed is closed when a lock is taken or given back next.
func (m *Machine) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// lock makes a lock; the file is its holder's.
func (m *Machine) lock(who string) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.locks[read] = who
	m.tell()
	m.mu.Unlock()
	go func() {
		_, _ = read.Read(make([]byte, 1)) // ends when no writer is left
		m.mu.Lock()
		delete(m.locks, read)
		m.tell()
		m.mu.Unlock()
		_ = read.Close() // nothing is in it
	}()
	return write, nil
}

// tell wakes those who wait; m.mu is held.
func (m *Machine) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

type logind struct{ m *Machine }

// Inhibit is logind's.
func (l logind) Inhibit(what, who, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("a lock of %s, %s", what, mode))
	}
	write, err := l.m.lock(who)
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fd := dbus.UnixFD(write.Fd())
	// The bus passes a copy on; this one goes when it has.
	time.AfterFunc(time.Second, func() { _ = write.Close() })
	return fd, nil
}

// PowerOff is logind's; no test may get so far.
func (l logind) PowerOff(bool) *dbus.Error {
	l.m.t.Error("the machine was powered off")
	return nil
}

type manager struct{ m *Machine }

var delaySetting = regexp.MustCompile(`(?m)^InhibitDelayMaxSec=([0-9]+)$`)

// KillUnit is systemd's: a hang-up has logind read its files.
func (s manager) KillUnit(unit, _ string, signal int32) *dbus.Error {
	if unit != "systemd-logind.service" || signal != 1 {
		return dbus.MakeFailedError(fmt.Errorf("signal %d for %s", signal, unit))
	}
	data, err := os.ReadFile(s.m.DropIn)
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	seconds := 0
	if found := delaySetting.FindSubmatch(data); found != nil {
		seconds, _ = strconv.Atoi(string(found[1])) // digits
	}
	s.m.mu.Lock()
	s.m.reloads++
	s.m.mu.Unlock()
	s.m.props.SetMust(host, "InhibitDelayMaxUSec", uint64(seconds)*1_000_000)
	return nil
}

// supervisor carries out the orders of a node's own gate.
type supervisor struct{ m *Machine }

// Delay grants what is asked for.
func (s supervisor) Delay(need, want uint64) *dbus.Error {
	if uint64(s.m.Delay()/time.Microsecond) < need {
		s.m.props.SetMust(host, "InhibitDelayMaxUSec", want)
	}
	return nil
}

// Hold takes the supervisor's lock.
func (s supervisor) Hold() *dbus.Error {
	s.m.mu.Lock()
	held := s.m.own != nil
	s.m.mu.Unlock()
	if held {
		return nil
	}
	write, err := s.m.lock("sextant")
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	s.m.mu.Lock()
	s.m.own = write
	s.m.mu.Unlock()
	return nil
}

// Release gives it back.
func (s supervisor) Release() *dbus.Error {
	s.m.mu.Lock()
	own := s.m.own
	s.m.own = nil
	s.m.mu.Unlock()
	if own != nil {
		_ = own.Close() // a pipe
	}
	return nil
}
