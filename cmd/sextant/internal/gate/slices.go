package gate

import (
	"fmt"
	"slices"
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

// properties that a slice of pods may have (systemd.resource-control(5)). None
// runs anything.
var properties = []string{
	"Description", "Wants", "DefaultDependencies",
	"CPUAccounting", "IOAccounting", "BlockIOAccounting", "MemoryAccounting", "TasksAccounting",
	"CPUShares", "CPUWeight", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec",
	"MemoryLimit", "MemoryLow", "MemoryMax", "MemorySwapMax", "TasksMax",
	"AllowedCPUs", "AllowedMemoryNodes",
}

// Slices passes what makes the slices of pods.
type Slices struct {
	// Root is the cgroup that kubepods is made in.
	Root pod.CgroupName
}

// Allow implements Policy.
func (p Slices) Allow(m *dbus.Message) error {
	if m.Type != dbus.TypeMethodCall {
		return fmt.Errorf("a message of type %s", m.Type)
	}
	destination, path, call := called(m)
	switch {
	case destination == theBus && (call == theBus+".Hello" || call == theBus+".AddMatch"):
		return nil
	case destination != systemd || path != object:
		return fmt.Errorf("%s of %s %s", call, destination, path)
	}
	switch call {
	case theBus + ".Properties.Get":
		return nil
	case manager + ".StartTransientUnit":
		if len(m.Body) != 4 {
			return fmt.Errorf("%s with %d arguments", call, len(m.Body))
		}
		if others, ok := m.Body[3].([][]any); !ok || len(others) > 0 {
			return fmt.Errorf("%s of more than one unit", call)
		}
		return p.change(m.Body[0], m.Body[2])
	case manager + ".SetUnitProperties":
		if len(m.Body) != 3 {
			return fmt.Errorf("%s with %d arguments", call, len(m.Body))
		}
		if runtime, ok := m.Body[1].(bool); !ok || !runtime {
			return fmt.Errorf("%s beyond the next boot", call)
		}
		return p.change(m.Body[0], m.Body[2])
	case manager + ".StopUnit", manager + ".ResetFailedUnit":
		if len(m.Body) == 0 {
			return fmt.Errorf("%s without a unit", call)
		}
		if unit, _ := m.Body[0].(string); !p.pods(unit) {
			return fmt.Errorf("%s: %q is not from kubepods down", call, unit)
		}
		return nil
	}
	return fmt.Errorf("%s", call)
}

// change judges the properties of one unit.
func (p Slices) change(unit, properties any) error {
	name, _ := unit.(string)
	if !p.slice(name) {
		return fmt.Errorf("the unit %q", name)
	}
	list, ok := properties.([][]any) // a(sv)
	if !ok {
		return fmt.Errorf("%s: properties of type %T", name, properties)
	}
	for _, pair := range list {
		if err := p.property(pair); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (p Slices) property(pair []any) error {
	if len(pair) != 2 {
		return fmt.Errorf("a property of %d parts", len(pair))
	}
	name, _ := pair[0].(string)
	value, _ := pair[1].(dbus.Variant)
	if !slices.Contains(properties, name) {
		return fmt.Errorf("the property %q", name)
	}
	if name != "Wants" {
		return nil
	}
	// A unit that is wanted is started: only a slice above may be.
	units, ok := value.Value().([]string)
	if !ok {
		return fmt.Errorf("wants of type %s", value.Signature())
	}
	for _, unit := range units {
		if unit != pod.CgroupName(nil).Slice() && !p.slice(unit) {
			return fmt.Errorf("wants %q", unit)
		}
	}
	return nil
}

// slice tells whether a unit is a slice from kubepods down, or one that kubepods
// is in.
func (p Slices) slice(unit string) bool {
	for i := range p.Root {
		if unit == p.Root[:i+1].Slice() {
			return true
		}
	}
	return p.pods(unit)
}

func (p Slices) pods(unit string) bool {
	name, ok := strings.CutSuffix(unit, ".slice")
	kubepods := strings.TrimSuffix(pod.KubepodsCgroup(p.Root).Slice(), ".slice")
	return ok && !strings.Contains(name, "/") && (name == kubepods || strings.HasPrefix(name, kubepods+"-"))
}
