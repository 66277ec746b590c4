// SPDX-License-Identifier: Apache-2.0

package fakelogind

import (
	"fmt"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Unit has systemd know a unit, which runs or does not.
func (m *Machine) Unit(name string, active bool) {
	m.t.Helper()
	m.mu.Lock()
	if m.units == nil {
		m.units = map[string]bool{}
	}
	m.units[name] = active
	m.mu.Unlock()
	path := dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + sd.PathBusEscape(name))
	m.must(m.conn.Export(unit{m, name}, path, "org.freedesktop.DBus.Properties"))
}

// Active reports whether a unit runs.
func (m *Machine) Active(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.units[name]
}

// unit is what systemd says of a unit.
type unit struct {
	m    *Machine
	name string
}

// Get is that of D-Bus.
func (u unit) Get(_, property string) (dbus.Variant, *dbus.Error) {
	switch property {
	case "LoadState":
		return dbus.MakeVariant("loaded"), nil
	case "ActiveState":
		if u.m.Active(u.name) {
			return dbus.MakeVariant("active"), nil
		}
		return dbus.MakeVariant("inactive"), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("the property %s", property))
}

// StartUnit is systemd's.
func (s manager) StartUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) { return s.job(name, true) }

// StopUnit is systemd's.
func (s manager) StopUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) { return s.job(name, false) }

// Reload is systemd's.
func (s manager) Reload() *dbus.Error { return nil }

// job starts or stops a unit at once.
func (s manager) job(name string, active bool) (dbus.ObjectPath, *dbus.Error) {
	const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/1")
	s.m.mu.Lock()
	_, known := s.m.units[name]
	if known {
		s.m.units[name] = active
	}
	s.m.mu.Unlock()
	if !known {
		return "", dbus.MakeFailedError(fmt.Errorf("unit %s not found", name))
	}
	if err := s.m.conn.Emit("/org/freedesktop/systemd1", systemd+".Manager.JobRemoved", uint32(1), job, name, "done"); err != nil {
		return "", dbus.MakeFailedError(err)
	}
	return job, nil
}
