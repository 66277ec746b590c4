// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/sextant-node/sextant/pkg/house"
)

// Slice is the unit that holds every unit of the node: starting and stopping it
// starts and stops them.
const Slice = "sextant.slice"

// UnitOf is the unit of a service.
func UnitOf(s house.Service) string { return "sextant-" + string(s) + ".service" }

// keptPlan is the copy of the plan that outlives a reboot.
func keptPlan(state string) string { return filepath.Join(state, filepath.Base(planFile(""))) }

// Keep also stores the plan in the state directory, for a start with a configuration
// that cannot be read. Only root can read it.
func (p *Plan) Keep() error { return writeJSON(keptPlan(p.State), p, 0o600, Account{}) }

// ReadKeptPlan reads the plan of the last good start.
func ReadKeptPlan(state string) (*Plan, error) { return readPlanFile(keptPlan(state)) }

// planPause is how often a service that was started before the plan checks for it.
const planPause = 500 * time.Millisecond

// AwaitPlan reads the node's plan as soon as there is one, and reports whether it
// had to wait for it.
func AwaitPlan(ctx context.Context, run string, log *slog.Logger) (p *Plan, waited bool, err error) {
	tick := time.NewTicker(planPause)
	defer tick.Stop()
	for ; ; waited = true {
		p, err := ReadPlan(run)
		if !errors.Is(err, ErrNoNode) {
			return p, waited, err
		}
		if !waited {
			log.Warn("waiting for sextant-prepare.service, which has not written the node's plan yet", "run-dir", run)
		}
		select {
		case <-ctx.Done():
			return nil, waited, ctx.Err()
		case <-tick.C:
		}
	}
}

// unitJob has systemd start, stop or restart a unit, and waits for the end of it.
func unitJob(ctx context.Context, what func(*dbus.Conn, chan<- string) (int, error), unit string) error {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", unit, err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := what(conn, done); err != nil {
		return fmt.Errorf("%s: %w", unit, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", unit, ctx.Err())
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: the job ended as %s: see journalctl -u %s", unit, result, unit)
		}
		return nil
	}
}

// StopUnit has systemd stop a unit and waits until it has ended. One that is not there is
// no error.
func StopUnit(ctx context.Context, unit string) error {
	if defined, err := UnitDefined(ctx, unit); !defined || err != nil {
		return err
	}
	return unitJob(ctx, func(c *dbus.Conn, done chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", done)
	}, unit)
}

// StartUnit has systemd start a unit and waits until it has started.
func StartUnit(ctx context.Context, unit string) error {
	return unitJob(ctx, func(c *dbus.Conn, done chan<- string) (int, error) {
		return c.StartUnitContext(ctx, unit, "replace", done)
	}, unit)
}

// ReloadUnits has systemd read the unit files again.
func ReloadUnits(ctx context.Context) error {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.ReloadContext(ctx)
}

// UnitDefined reports whether there is a file of a unit.
func UnitDefined(ctx context.Context, unit string) (bool, error) {
	state, err := unitProperty(ctx, unit, "LoadState")
	return state != "" && state != "not-found", err
}

// UnitActive reports whether a unit runs, or is about to.
func UnitActive(ctx context.Context, unit string) (bool, error) {
	state, err := unitProperty(ctx, unit, "ActiveState")
	return state == "active" || state == "activating" || state == "reloading", err
}

// unitProperty is a property of a unit that is a string.
func unitProperty(ctx context.Context, unit, name string) (string, error) {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: %w", unit, err)
	}
	defer conn.Close()
	property, err := conn.GetUnitPropertyContext(ctx, unit, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", unit, err)
	}
	value, _ := property.Value.Value().(string)
	return value, nil
}

// UnitState is what systemd says of a unit.
type UnitState struct {
	// Active is its ActiveState.
	Active string
	// Invocation is another one for each start.
	Invocation string
	// Program is what its main process executes; empty without one.
	Program string
}

// LookAtUnit asks systemd for the state of a unit.
func LookAtUnit(ctx context.Context, unit string) (UnitState, error) {
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return UnitState{}, fmt.Errorf("%s: %w", unit, err)
	}
	defer conn.Close()
	all, err := conn.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return UnitState{}, fmt.Errorf("%s: %w", unit, err)
	}
	active, _ := all["ActiveState"].(string)
	invocation, _ := all["InvocationID"].([]byte)
	state := UnitState{Active: active, Invocation: hex.EncodeToString(invocation)}
	if pid, _ := all["MainPID"].(uint32); pid != 0 {
		state.Program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // it may have ended
	}
	return state, nil
}

// RestartUnit has systemd restart a unit and waits until it is ready.
func RestartUnit(ctx context.Context, unit string) error {
	return unitJob(ctx, func(c *dbus.Conn, done chan<- string) (int, error) {
		return c.RestartUnitContext(ctx, unit, "replace", done)
	}, unit)
}

// SliceActive reports whether systemd runs the services of the node with this run
// directory.
func SliceActive(ctx context.Context, run string) (bool, error) {
	if !unitsPlanned(run) {
		return false, nil // there is no node, or the supervisor runs it
	}
	return UnitActive(ctx, Slice)
}

// unitsPlanned reports whether the node's plan is one for systemd.
func unitsPlanned(run string) bool {
	p, err := ReadPlan(run)
	return err == nil && p.Units
}
