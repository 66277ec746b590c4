// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/services/supervisor/versions"
	"github.com/sextant-node/sextant/test/fakelogind"
)

// oldNode has two versions, of which every part runs the first, below a supervisor that
// runs nothing.
func oldNode(t *testing.T) *upgradeFlags {
	t.Helper()
	u := &upgradeFlags{library: t.TempDir(), limit: 100 * time.Millisecond}
	u.node.paths = house.Paths{Run: t.TempDir(), State: t.TempDir()}
	for _, v := range []string{"1", "2"} {
		dir := filepath.Join(u.library, "versions", v)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sextant"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range u.subjects() {
		if err := u.lib().Switch(s.name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := json.Marshal(&supervisor.Plan{Run: u.node.paths.Run, State: u.node.paths.State, Library: u.library})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.node.paths.Run, "node.json"), plan, 0o600); err != nil {
		t.Fatal(err)
	}
	return u
}

// failing is prober, of which version 2 does not start.
func failing(u *upgradeFlags) subject {
	return subject{name: "prober", look: func(context.Context) versions.Seen {
		v := u.lib().Current("prober")
		if v == "2" {
			return versions.Seen{Err: "connection refused"}
		}
		return versions.Seen{Version: v, Epoch: "of " + v, Understood: true, Serving: true}
	}}
}

// TestInterruptedUpgrade: what an upgrade and a rollback have not come to, when they are
// ended, keeps its version: nobody would watch it start with another.
func TestInterruptedUpgrade(t *testing.T) {
	u := oldNode(t)
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := u.every(ctx, io.Discard, "2"); err == nil {
		t.Error("no error of the upgrade")
	}
	for _, s := range u.subjects() {
		if v := u.lib().Current(s.name); v != "1" {
			t.Errorf("%s starts with version %s the next time", s.name, v)
		}
		if err := u.lib().Switch(s.name, "2"); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.everyBack(ctx, io.Discard); err == nil {
		t.Error("no error of the rollback")
	}
	for _, s := range u.subjects() {
		if v := u.lib().Current(s.name); v != "2" {
			t.Errorf("%s is rolled back to version %s", s.name, v)
		}
	}
}

// TestUnknownKeeper: where systemd does not say whether it runs the services, none is
// switched.
func TestUnknownKeeper(t *testing.T) {
	u := oldNode(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", fakelogind.Start(t, false).Address()) // it knows no unit
	plan, err := json.Marshal(&supervisor.Plan{Run: u.node.paths.Run, Units: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.node.paths.Run, "node.json"), plan, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.try(t.Context(), io.Discard, failing(u), "2", true); err == nil || !strings.Contains(err.Error(), "not switched") || u.lib().Current("prober") != "1" {
		t.Errorf("%v; it runs %s", err, u.lib().Current("prober"))
	}
}

// TestKilledUpgrade: an upgrade that is killed in its trial and begun again goes back to
// the version that works.
func TestKilledUpgrade(t *testing.T) {
	u := oldNode(t)
	s := failing(u)
	killed := s
	killed.look = func(ctx context.Context) versions.Seen {
		if u.lib().Current("prober") == "2" {
			panic("killed")
		}
		return s.look(ctx)
	}
	func() {
		defer func() { _ = recover() }() // as if it were another process
		_ = u.try(t.Context(), io.Discard, killed, "2", true)
	}()
	if v := u.lib().Current("prober"); v != "2" {
		t.Fatalf("killed at version %s", v)
	}
	err := u.try(t.Context(), io.Discard, s, "2", true)
	if v := u.lib().Current("prober"); err == nil || !strings.Contains(err.Error(), "version 2 does not do its work") || v != "1" {
		t.Errorf("%v; it runs %s", err, v)
	}
}

// TestRollbackAfterFailure: `rollback --all` goes back to what all ran before the upgrade,
// also where that failed, or was not come to.
func TestRollbackAfterFailure(t *testing.T) {
	u := oldNode(t)
	if err := u.lib().Switch("status", "2"); err != nil { // it ran another version once
		t.Fatal(err)
	}
	if err := u.lib().Switch("status", "1"); err != nil {
		t.Fatal(err)
	}
	if err := u.try(t.Context(), io.Discard, failing(u), "2", true); err == nil || u.lib().Current("prober") != "1" {
		t.Fatalf("%v; it runs %s", err, u.lib().Current("prober"))
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := u.every(ctx, io.Discard, "2"); err == nil {
		t.Error("no error of the upgrade")
	}
	if err := u.everyBack(t.Context(), io.Discard); err != nil {
		t.Error(err)
	}
	for _, s := range u.subjects() {
		if v := u.lib().Current(s.name); v != "1" {
			t.Errorf("%s is rolled back to version %s", s.name, v)
		}
	}
}
