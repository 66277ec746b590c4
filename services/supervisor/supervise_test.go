// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
)

// TestSystemdIsTold: a supervisor in the place of a kubelet tells systemd that it is up, that
// it lives, and that it ends, as a unit with Type=notify or WatchdogSec= asks for. Its
// services do not tell in its name.
func TestSystemdIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the services have users of their own
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "notify")
	heard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close() //nolint:errcheck // the test is over
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "60000")
	p := &Plan{
		Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), RootDir: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "logs"),
		Library: filepath.Join(dir, "library"), WorkDir: "/", LogDir: filepath.Join(dir, "out"), UIDBase: 64200,
	}
	for _, folder := range []string{p.Run, p.State, p.Library, p.LogDir} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range house.Services() {
		script := "#!/bin/sh\necho notify=$NOTIFY_SOCKET watchdog=$WATCHDOG_USEC >&2\nexec sleep 1000\n"
		if err := os.WriteFile(filepath.Join(p.Library, string(s)), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Supervise(ctx, slog.New(slog.DiscardHandler)) }()
	hear := func(want string) {
		t.Helper()
		if err := heard.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := heard.Read(buffer)
		if err != nil || string(buffer[:n]) != want {
			t.Fatalf("systemd heard %q, %v, want %q", buffer[:n], err, want)
		}
	}
	hear("READY=1")
	said := func(s house.Service) string {
		text, err := os.ReadFile(logFile(p.LogDir, string(s)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, s := range house.Services() {
		for began := time.Now(); !strings.Contains(said(s), "\n"); hear("WATCHDOG=1") {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s does not start", s)
			}
		}
		if !strings.HasPrefix(said(s), "notify= watchdog=\n") {
			t.Errorf("%s can speak to systemd in the supervisor's name: %s", s, said(s))
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
