// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/test/fakelogind"
)

// machine is a gate to logind in front of a real bus.
func machine(t *testing.T) (m *fakelogind.Machine, l *Logind, client *dbus.Conn) {
	t.Helper()
	m = fakelogind.Start(t, false)
	l = &Logind{Bus: m.Socket, DropIn: m.DropIn}
	socket := filepath.Join(filepath.Dir(m.Socket), "gate")
	g := &Gate{Socket: socket, UID: uint32(os.Getuid()), Bus: m.Socket, Policy: l, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- g.run(ctx, func() { close(listening) }) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, l.Release()); err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	<-listening
	return m, l, dial(t, socket)
}

func dial(t *testing.T, socket string) *dbus.Conn {
	t.Helper()
	client, err := dbus.Connect("unix:path=" + dbus.EscapeBusAddressValue(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // twice is no harm
	return client
}

func order(t *testing.T, client *dbus.Conn, name string, args ...any) {
	t.Helper()
	if err := client.Object(Name, "/").Call(Name+"."+name, 0, args...).Err; err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func await(t *testing.T, m *fakelogind.Machine, what string, check func() bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		changed := m.Changed()
		if check() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited for %s; held by %v", what, m.Held())
		}
	}
}

// TestLockOutlivesItsClient: it is the supervisor's, until it is given back.
func TestLockOutlivesItsClient(t *testing.T) {
	m, l, client := machine(t)
	order(t, client, "Hold")
	order(t, client, "Hold")
	if got := m.Held(); !slices.Equal(got, []string{"sextant"}) {
		t.Fatalf("held by %v", got)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	client = dial(t, filepath.Join(filepath.Dir(m.Socket), "gate"))
	if got := m.Held(); len(got) != 1 {
		t.Fatalf("the lock went with its client: %v", got)
	}
	order(t, client, "Release")
	await(t, m, "the machine to be let go", func() bool { return len(m.Held()) == 0 })
	order(t, client, "Release")
	order(t, client, "Hold")
	if err := l.Release(); err != nil { // the supervisor ends
		t.Fatal(err)
	}
	await(t, m, "the machine to be let go with the supervisor", func() bool { return len(m.Held()) == 0 })
}

func TestShutdownIsHeardOf(t *testing.T) {
	m, _, client := machine(t)
	heard := make(chan *dbus.Signal, 4)
	client.Signal(heard)
	if err := client.AddMatchSignal(dbus.WithMatchObjectPath(loginObject), dbus.WithMatchInterface(loginHost), dbus.WithMatchMember("PrepareForShutdown")); err != nil {
		t.Fatal(err)
	}
	for _, down := range []bool{true, false} {
		m.Shutdown(down)
		for s := range heard { // the bus itself tells of names
			if s.Name == loginHost+".PrepareForShutdown" && s.Body[0] == down {
				break
			}
		}
		v, err := client.Object(login, loginObject).GetProperty(loginHost + ".PreparingForShutdown")
		if err != nil || v.Value() != down {
			t.Errorf("preparing: %v, %v", v, err)
		}
	}
	m.StopBus()
	for range heard { // until it is closed: the client is told that the bus has gone
	}
}

func TestDelay(t *testing.T) {
	m, _, client := machine(t)
	seconds := func(n uint64) uint64 { return n * 1_000_000 }
	order(t, client, "Delay", seconds(5), seconds(10)) // logind's own will do
	if m.Reloads() != 0 || m.Delay() != fakelogind.DefaultDelay {
		t.Fatalf("%d reloads, delay %s", m.Reloads(), m.Delay())
	}
	order(t, client, "Delay", seconds(30), seconds(35))
	if m.Reloads() != 1 || m.Delay() != 35*time.Second {
		t.Fatalf("%d reloads, delay %s", m.Reloads(), m.Delay())
	}
	data, err := os.ReadFile(m.DropIn)
	if err != nil || string(data) != written+"\n[Login]\nInhibitDelayMaxSec=35\n" {
		t.Errorf("%q, %v", data, err)
	}
	order(t, client, "Delay", seconds(30), seconds(35))
	if m.Reloads() != 1 {
		t.Errorf("%d reloads for a delay that is granted", m.Reloads())
	}
	if err := client.Object(Name, "/").Call(Name+".Delay", 0, seconds(30), seconds(2*86400)).Err; err == nil {
		t.Error("a delay of two days")
	}
	// Purging takes the file away, unless somebody else wrote it.
	if err := Undo(m.DropIn); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.DropIn); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if err := errors.Join(Undo(m.DropIn), os.WriteFile(m.DropIn, []byte("# Kubelet logind override\n"), 0o600), Undo(m.DropIn)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.DropIn); err != nil {
		t.Errorf("another's file: %v", err)
	}
}

// TestLogindRefuses: what is not needed for a shutdown does not reach the bus.
func TestLogindRefuses(t *testing.T) {
	_, _, client := machine(t)
	at := client.Object(login, loginObject)
	for name, err := range map[string]error{
		"power off":      at.Call(loginHost+".PowerOff", 0, true).Err,
		"a lock":         at.Call(loginHost+".Inhibit", 0, "shutdown", "x", "y", "delay").Err,
		"set a property": at.SetProperty(loginHost+".PreparingForShutdown", dbus.MakeVariant(true)),
		"a signal":       client.Object(systemd, object).Call(manager+".KillUnit", 0, "systemd-logind.service", "all", int32(9)).Err,
		"a name":         client.BusObject().Call(theBus+".RequestName", 0, "org.example", uint32(0)).Err,
		"all signals":    client.AddMatchSignal(),
		"listening in":   client.BusObject().Call(theBus+".AddMatch", 0, "eavesdrop='true',interface='"+loginHost+"'").Err,
		"another order":  client.Object(Name, "/").Call(Name+".Reboot", 0).Err,
	} {
		var refused dbus.Error
		if !errors.As(err, &refused) || !strings.HasSuffix(refused.Name, ".AccessDenied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
