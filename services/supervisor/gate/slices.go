// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Names of the manager on the bus (org.freedesktop.systemd1(5)).
const (
	systemd = "org.freedesktop.systemd1"
	manager = systemd + ".Manager"
	object  = dbus.ObjectPath("/org/freedesktop/systemd1")
	theBus  = "org.freedesktop.DBus"
)

// properties that a slice of pods may have, with the signature of their values
// (systemd.resource-control(5), org.freedesktop.systemd1(5)). None runs anything.
var properties = map[string]string{
	"Description": "s", "Wants": "as", "DefaultDependencies": "b",
	"CPUAccounting": "b", "IOAccounting": "b", "BlockIOAccounting": "b", "MemoryAccounting": "b", "TasksAccounting": "b",
	"CPUShares": "t", "CPUWeight": "t", "CPUQuotaPerSecUSec": "t", "CPUQuotaPeriodUSec": "t",
	"MemoryLimit": "t", "MemoryMin": "t", "MemoryLow": "t", "MemoryMax": "t", "MemorySwapMax": "t", "TasksMax": "t",
	"AllowedCPUs": "ay", "AllowedMemoryNodes": "ay",
}

// Slices passes the calls that make, change and stop the slices of pods.
type Slices struct {
	// Root is the cgroup that kubepods is made in.
	Root pod.CgroupName
}

// Allow implements Policy.
func (p Slices) Allow(m *Message) error {
	if m.Type != dbus.TypeMethodCall {
		return fmt.Errorf("a message of type %s", m.Type)
	}
	call := m.method()
	switch {
	case m.Destination == theBus && call == theBus+".Hello":
		return nil
	case m.Destination == theBus && call == theBus+".AddMatch":
		return listens(m, manager)
	case m.Destination != systemd || m.Path != object:
		return fmt.Errorf("%s of %s %s", call, m.Destination, m.Path)
	}
	switch call {
	case theBus + ".Properties.Get":
		return nil
	case manager + ".StartTransientUnit":
		if err := m.has("ssa(sv)a(sa(sv))"); err != nil {
			return err
		}
		if others := m.Body[3].([]any); len(others) > 0 {
			return fmt.Errorf("%s of more than one unit", call)
		}
		return errors.Join(replaces(m), p.change(m.Body[0].(string), m.Body[2].([]any)))
	case manager + ".SetUnitProperties":
		if err := m.has("sba(sv)"); err != nil {
			return err
		}
		if runtime := m.Body[1].(bool); !runtime {
			return fmt.Errorf("%s beyond the next boot", call)
		}
		return p.change(m.Body[0].(string), m.Body[2].([]any))
	case manager + ".StopUnit":
		if err := m.has("ss"); err != nil {
			return err
		}
		return errors.Join(replaces(m), p.ends(m))
	case manager + ".ResetFailedUnit":
		if err := m.has("s"); err != nil {
			return err
		}
		return p.ends(m)
	}
	return fmt.Errorf("%s", call)
}

// replaces reports whether a job has the mode "replace", which all clients use. Other
// modes affect units that are not named: isolate stops them, flush cancels their jobs.
func replaces(m *Message) error {
	if mode := m.Body[1].(string); mode != "replace" {
		return fmt.Errorf("%s in the mode %s", m.method(), quoted(mode))
	}
	return nil
}

// ends judges a call that ends a unit.
func (p Slices) ends(m *Message) error {
	if unit := m.Body[0].(string); !p.pods(unit) {
		return fmt.Errorf("%s: %s is not from kubepods down", m.method(), quoted(unit))
	}
	return nil
}

// change judges the properties of one unit.
func (p Slices) change(unit string, list []any) error {
	if !p.slice(unit) {
		return fmt.Errorf("the unit %s", quoted(unit))
	}
	for _, pair := range list {
		pair := pair.([]any)
		if err := p.property(pair[0].(string), pair[1].(Variant)); err != nil {
			return fmt.Errorf("%s: %w", unit, err)
		}
	}
	return nil
}

func (p Slices) property(name string, value Variant) error {
	kind, ok := properties[name]
	if !ok {
		return fmt.Errorf("the property %s", quoted(name))
	}
	if value.Signature != kind {
		return fmt.Errorf("%s of type %q", name, value.Signature)
	}
	switch name {
	case "Description":
		// systemd writes it into a unit file, and escapes nothing but %.
		if text := value.Value.(string); len(text) > mostText || strings.ContainsFunc(text, breaksLine) {
			return fmt.Errorf("the description %s", quoted(text))
		}
	case "Wants":
		// systemd starts a wanted unit: only a slice above is allowed.
		for _, unit := range value.Value.([]any) {
			if unit := unit.(string); unit != pod.CgroupName(nil).Slice() && !p.slice(unit) {
				return fmt.Errorf("wants %s", quoted(unit))
			}
		}
	}
	return nil
}

// slice reports whether a unit is kubepods, a slice below it or a slice above it.
func (p Slices) slice(unit string) bool {
	for i := range p.Root {
		if unit == p.Root[:i+1].Slice() {
			return true
		}
	}
	return p.pods(unit)
}

// pods reports whether a unit is kubepods or a slice below it.
func (p Slices) pods(unit string) bool {
	name, ok := strings.CutSuffix(unit, ".slice")
	kubepods := strings.TrimSuffix(pod.KubepodsCgroup(p.Root).Slice(), ".slice")
	below, within := strings.CutPrefix(name, kubepods)
	return ok && within && (below == "" || below[0] == '-' && isName(below))
}
