// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
)

// TestNotify: systemd hears READY when clients may come, WATCHDOG while the loops
// come round, and STOPPING at the end.
func TestNotify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	paths := house.Paths{Run: dir, State: dir}
	k := newKit(t, paths, house.Pleg)
	k.Heart("loop", time.Hour)
	stop := run(t, k)
	if got := said(t, socket); got != "READY=1" {
		t.Fatalf("first word: %q", got)
	}
	if _, err := os.Stat(paths.Socket(house.Pleg)); err != nil {
		t.Errorf("ready without a socket: %v", err)
	}
	for range 3 {
		if got := said(t, socket); got != "WATCHDOG=1" {
			t.Fatalf("while it runs: %q", got)
		}
	}
	go stop()
	for {
		switch got := said(t, socket); got {
		case "WATCHDOG=1":
		case "STOPPING=1":
			return
		default:
			t.Fatalf("at the end: %q", got)
		}
	}
}

// TestNotifyStuck: a loop that does not come round leaves the watchdog hungry.
func TestNotifyStuck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	k := newKit(t, house.Paths{Run: dir, State: dir}, house.Pleg)
	k.Heart("loop", time.Nanosecond) // late whenever it is looked at
	stop := run(t, k)
	if got := said(t, socket); got != "READY=1" {
		t.Fatalf("first word: %q", got)
	}
	stop()
	if got := said(t, socket); got != "STOPPING=1" {
		t.Errorf("the watchdog was fed: %q", got)
	}
}

func said(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 256)
	n, err := socket.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[:n])
}
