// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
)

// bus answers every call with the name of what was called.
func bus(t *testing.T) (socket string, calls chan string) {
	t.Helper()
	socket, calls = filepath.Join(t.TempDir(), "bus"), make(chan string, 10)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, calls)
		}
	}()
	return socket, calls
}

func answer(conn net.Conn, calls chan string) {
	defer conn.Close() //nolint:errcheck // nothing was left to send
	from := bufio.NewReader(conn)
	if welcome(from, conn) != nil {
		return
	}
	for {
		m, err := dbus.DecodeMessage(from)
		if err != nil {
			return // the connection has ended
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		reply := *m
		reply.Type, reply.Body = dbus.TypeMethodReply, []any{member}
		reply.Headers = map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
		}
		calls <- member
		if err := reply.EncodeTo(conn, binary.LittleEndian); err != nil {
			return
		}
	}
}

// open runs a gate and returns its socket.
func open(t *testing.T, uid int) (socket string, calls chan string) {
	t.Helper()
	return openSaying(t, uid, slog.DiscardHandler)
}

func openSaying(t *testing.T, uid int, log slog.Handler) (socket string, calls chan string) {
	t.Helper()
	busSocket, calls := bus(t)
	socket = filepath.Join(t.TempDir(), "gate")
	ctx, stop := context.WithCancel(t.Context())
	g := &Gate{Socket: socket, UID: uint32(uid), Bus: busSocket, Policy: Slices{Root: pod.CgroupName{"demo"}}, Log: slog.New(log)}
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- g.run(ctx, func() { close(listening) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	select {
	case <-listening:
	case err := <-done:
		done <- err
		t.Fatalf("gate: %v", err)
	}
	return socket, calls
}

func TestGate(t *testing.T) {
	socket, calls := open(t, os.Getuid())
	conn, err := dbus.Connect("unix:path=" + dbus.EscapeBusAddressValue(socket)) // greets, and says Hello
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // every call was answered
	if got := <-calls; got != "Hello" {
		t.Errorf("the bus heard %s first", got)
	}
	object := conn.Object(systemd, object)
	// Refused, by an answer: the connection goes on.
	for range 2 {
		err := object.Call(manager+".StopUnit", 0, "ssh.service", "replace").Err
		var refused dbus.Error
		if !errors.As(err, &refused) || refused.Name != "org.freedesktop.DBus.Error.AccessDenied" || !strings.Contains(err.Error(), `"ssh.service"`) {
			t.Errorf("a stranger's unit: %v", err)
		}
	}
	var heard string
	if err := object.Call(manager+".StopUnit", 0, "demo-kubepods-podx.slice", "replace").Store(&heard); err != nil || heard != "StopUnit" {
		t.Errorf("a pod's slice: %q, %v", heard, err)
	}
	if got := <-calls; got != "StopUnit" || len(calls) > 0 {
		t.Errorf("the bus heard %s, and %d more calls", got, len(calls))
	}
}

// lines are what was logged.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestShortOfFiles: who comes while the gate can open no file is served once it can again,
// and those who were connected before stay so.
func TestShortOfFiles(t *testing.T) {
	said := make(lines, 100)
	socket, _ := openSaying(t, os.Getuid(), slog.NewTextHandler(said, nil))
	stays, err := dbus.Connect("unix:path=" + dbus.EscapeBusAddressValue(socket)) // all of its files are open when Hello is answered
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close() //nolint:errcheck // every call was answered
	comes, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(comes), "comes")
	defer file.Close() //nolint:errcheck // a test's
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	enough := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(enough)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(comes, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-said:
		if !strings.Contains(line, unix.EMFILE.Error()) {
			t.Errorf("said %q", line)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the gate does not say that it cannot accept")
	}
	enough()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's
	if err := greet(bufio.NewReader(conn), conn); err != nil {
		t.Error(err)
	}
	var heard string
	if err := stays.Object(systemd, object).Call(manager+".StopUnit", 0, "demo-kubepods-podx.slice", "replace").Store(&heard); err != nil || heard != "StopUnit" {
		t.Errorf("who stayed: %q, %v", heard, err)
	}
}

func TestGateIsForOneUID(t *testing.T) {
	socket, calls := open(t, 64999)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	// The operator, root, may; that another one may not is the kernel's answer
	// to connect, and the gate's own to who comes past it.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[0]), "peer")
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1]) //nolint:errcheck // a test's
	if peer, err := rpc.Credentials(conn); err != nil || peer.Uid != uint32(os.Getuid()) {
		t.Errorf("the peer is %v, %v", peer, err)
	}
	g := &Gate{UID: 64999, Log: slog.New(slog.DiscardHandler)}
	if err := g.admit(64998); err == nil || !strings.Contains(err.Error(), "64998") {
		t.Errorf("a stranger: %v", err)
	}
	if err := errors.Join(g.admit(64999), g.admit(0), conn.Close()); err != nil {
		t.Error(err)
	}
	if len(calls) > 0 {
		t.Error("the bus heard something")
	}
}
