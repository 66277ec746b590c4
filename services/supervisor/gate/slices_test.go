// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/supervisor/gate"
)

type property struct {
	Name  string
	Value dbus.Variant
}

type unit struct {
	Name       string
	Properties []property
}

const (
	manager = "org.freedesktop.systemd1.Manager."
	podUnit = "demo_root-kubepods-burstable-pod1234.slice"
)

// call is what the gate sees of a method call: it went over the wire.
func call(t *testing.T, destination, path, method string, args ...any) *gate.Message {
	t.Helper()
	i := strings.LastIndex(method, ".")
	sent := dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(destination), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(path)),
		dbus.FieldInterface: dbus.MakeVariant(method[:i]), dbus.FieldMember: dbus.MakeVariant(method[i+1:]),
	}, Body: args}
	if len(args) > 0 {
		sent.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var wire bytes.Buffer
	if err := sent.EncodeTo(&wire, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(wire.Bytes()[8:], 1) // the serial, which a connection gives
	m, err := gate.Decode(wire.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPolicy(t *testing.T) {
	of := func(pairs ...any) []property {
		list := []property{}
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, property{pairs[i].(string), dbus.MakeVariant(pairs[i+1])})
		}
		return list
	}
	start := func(name string, properties []property, others ...unit) []any {
		return []any{name, "replace", properties, append([]unit{}, others...)}
	}
	usual := of("Description", "x", "Wants", []string{"demo_root-kubepods-burstable.slice"}, "MemoryAccounting", true, "DefaultDependencies", false)
	for name, test := range map[string]struct {
		method string
		args   []any
		denied string // "" passes
	}{
		"make a pod's slice":       {manager + "StartTransientUnit", start(podUnit, usual), ""},
		"make the root":            {manager + "StartTransientUnit", start("demo_root.slice", of("Wants", []string{"-.slice"})), ""},
		"make kubepods":            {manager + "StartTransientUnit", start("demo_root-kubepods.slice", of("Wants", []string{"demo_root.slice"})), ""},
		"change a pod's slice":     {manager + "SetUnitProperties", []any{podUnit, true, of("MemoryMax", uint64(1), "CPUWeight", uint64(5), "TasksMax", uint64(9))}, ""},
		"stop a pod's slice":       {manager + "StopUnit", []any{podUnit, "replace"}, ""},
		"forget a failure":         {manager + "ResetFailedUnit", []any{podUnit}, ""},
		"read the version":         {"org.freedesktop.DBus.Properties.Get", []any{"org.freedesktop.systemd1.Manager", "Version"}, ""},
		"make a service":           {manager + "StartTransientUnit", start("demo_root-kubepods-x.service", usual), "the unit"},
		"make a stranger's slice":  {manager + "StartTransientUnit", start("system.slice", usual), "the unit"},
		"make a name alike":        {manager + "StartTransientUnit", start("demo_root-kubepodsx.slice", usual), "the unit"},
		"make a path":              {manager + "StartTransientUnit", start("demo_root-kubepods-/etc/x.slice", usual), "the unit"},
		"run a program":            {manager + "StartTransientUnit", start(podUnit, of("ExecStart", "x")), `the property "ExecStart"`},
		"start another unit":       {manager + "StartTransientUnit", start(podUnit, of("Wants", []string{"reboot.target"})), "wants"},
		"Wants in disguise":        {manager + "StartTransientUnit", start(podUnit, of("Wants", "reboot.target")), "Wants of type"},
		"make a second unit":       {manager + "StartTransientUnit", start(podUnit, usual, unit{"x.service", of()}), "more than one"},
		"change a service":         {manager + "SetUnitProperties", []any{"ssh.service", true, of("MemoryMax", uint64(1))}, "the unit"},
		"change for good":          {manager + "SetUnitProperties", []any{podUnit, false, of("MemoryMax", uint64(1))}, "beyond the next boot"},
		"change without arguments": {manager + "SetUnitProperties", nil, `of type ""`},
		"stop the root":            {manager + "StopUnit", []any{"demo_root.slice", "replace"}, "from kubepods down"},
		"stop a service":           {manager + "StopUnit", []any{"ssh.service", "replace"}, "from kubepods down"},
		"stop nothing":             {manager + "StopUnit", nil, `of type ""`},
		"a line more":              {manager + "StartTransientUnit", start(podUnit, of("Description", "x\n[Unit]\nWants=debug-shell.service")), "the description"},
		"a line joined":            {manager + "StartTransientUnit", start(podUnit, of("Description", `x\`)), "the description"},
		"a line of its own kind":   {manager + "StartTransientUnit", start(podUnit, of("Description", "x\u2028y")), "the description"},
		"a long description":       {manager + "SetUnitProperties", []any{podUnit, true, of("Description", strings.Repeat("x", 256))}, "the description"},
		"a description of numbers": {manager + "SetUnitProperties", []any{podUnit, true, of("Description", uint64(1))}, `Description of type "t"`},
		"a limit of words":         {manager + "SetUnitProperties", []any{podUnit, true, of("MemoryMax", "1\nx")}, `MemoryMax of type "s"`},
		"a name with a line":       {manager + "StopUnit", []any{"demo_root-kubepods-x\n.slice", "replace"}, "from kubepods down"},
		"stop all others":          {manager + "StartTransientUnit", []any{podUnit, "isolate", usual, []unit{}}, `the mode "isolate"`},
		"drop the jobs of others":  {manager + "StopUnit", []any{podUnit, "flush"}, `the mode "flush"`},
		"power off":                {manager + "PowerOff", nil, "PowerOff"},
		"write a property":         {"org.freedesktop.DBus.Properties.Set", []any{"org.freedesktop.systemd1.Manager", "LogLevel", dbus.MakeVariant("debug")}, "Properties.Set"},
	} {
		t.Run(name, func(t *testing.T) {
			p := gate.Slices{Root: pod.CgroupName{"demo-root"}}
			check(t, p.Allow(call(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", test.method, test.args...)), test.denied)
		})
	}
	p := gate.Slices{}
	check(t, p.Allow(call(t, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.Hello")), "")
	check(t, p.Allow(call(t, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.RequestName", "org.x", uint32(0))), "RequestName")
	for rule, denied := range map[string]string{
		"type='signal', interface='org.freedesktop.systemd1.Manager', member='JobRemoved'":                                              "", // go-systemd's
		"type='signal',path='/org/freedesktop/systemd1',interface='org.freedesktop.systemd1.Manager',sender='org.freedesktop.systemd1'": "",
		"":                 "listening",
		"type='signal'":    "listening",
		"eavesdrop='true'": "listening",
		"type='signal',interface='org.freedesktop.systemd1.Manager',eavesdrop='true'": "listening",
		"type='method_call',interface='org.freedesktop.systemd1.Manager'":             "listening",
		"type='signal',interface='org.freedesktop.PolicyKit1.Authority'":              "listening",
		"interface='org.freedesktop.systemd1.Manager',interface='org.x'":              "listening",
		"member='interface='org.freedesktop.systemd1.Manager''":                       "listening",
		"arg0='x',interface='org.freedesktop.systemd1.Manager'":                       "listening",
		strings.Repeat("type='signal',", 100):                                         "a rule of 1400 bytes",
	} {
		check(t, p.Allow(call(t, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.AddMatch", rule)), denied)
	}
	check(t, p.Allow(call(t, "org.freedesktop.login1", "/org/freedesktop/login1", manager+"StopUnit", podUnit, "replace")), "login1")
	check(t, p.Allow(call(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/x", manager+"StopUnit", podUnit, "replace")), "unit/x")
	check(t, p.Allow(call(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager+"StopUnit", "kubepods-podx.slice", "replace")), "")
	check(t, p.Allow(call(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager+"StopUnit", "-.slice", "replace")), "from kubepods down")
}

// TestPropertiesOfPods: all that pods' slices may be given, which is what the cgroup library
// writes on either version of cgroups, passes with values of its type and with no other.
func TestPropertiesOfPods(t *testing.T) {
	amount, set, yes := dbus.MakeVariant(uint64(1)), dbus.MakeVariant([]byte{3}), dbus.MakeVariant(true)
	for name, value := range map[string]dbus.Variant{
		"CPUAccounting": yes, "IOAccounting": yes, "BlockIOAccounting": yes, "MemoryAccounting": yes, "TasksAccounting": yes, "DefaultDependencies": yes,
		"CPUShares": amount, "CPUWeight": amount, "CPUQuotaPerSecUSec": amount, "CPUQuotaPeriodUSec": amount,
		"MemoryLimit": amount, "MemoryMin": amount, "MemoryLow": amount, "MemoryMax": amount, "MemorySwapMax": amount, "TasksMax": amount,
		"AllowedCPUs": set, "AllowedMemoryNodes": set,
	} {
		p := gate.Slices{Root: pod.CgroupName{"demo-root"}}
		change := func(value dbus.Variant) error {
			return p.Allow(call(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager+"SetUnitProperties", podUnit, true, []property{{name, value}}))
		}
		check(t, change(value), "")
		check(t, change(dbus.MakeVariant("1")), name+` of type "s"`)
	}
}

func check(t *testing.T, err error, denied string) {
	t.Helper()
	if denied == "" && err != nil {
		t.Errorf("denied: %v", err)
	}
	if denied != "" && (err == nil || !strings.Contains(err.Error(), denied)) {
		t.Errorf("%v, want it denied for %q", err, denied)
	}
}
