// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/test/fuzzing"
)

type property struct {
	Name  string
	Value dbus.Variant
}

// encode is a method call as a client sends it.
func encode(t testing.TB, order binary.ByteOrder, destination, path, iface, member string, args ...any) []byte {
	t.Helper()
	m := dbus.Message{Type: dbus.TypeMethodCall, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(destination), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(path)),
		dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
	}}
	if len(args) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var raw bytes.Buffer
	if err := m.EncodeTo(&raw, order); err != nil {
		t.Fatal(err)
	}
	order.PutUint32(raw.Bytes()[8:], 7) // the serial
	return raw.Bytes()
}

// sent are messages that clients of gates send.
func sent(t testing.TB) map[string][]byte {
	unit := []property{
		{"Description", dbus.MakeVariant("a pod")}, {"Wants", dbus.MakeVariant([]string{"kubepods.slice"})},
		{"AllowedCPUs", dbus.MakeVariant([]byte{3})}, {"MemoryMax", dbus.MakeVariant(uint64(1 << 30))}, {"CPUAccounting", dbus.MakeVariant(true)},
	}
	none := []struct {
		Name       string
		Properties []property
	}{}
	little := binary.LittleEndian
	return map[string][]byte{
		"hello":       encode(t, little, theBus, "/org/freedesktop/DBus", theBus, "Hello"),
		"match":       encode(t, little, theBus, "/org/freedesktop/DBus", theBus, "AddMatch", "type='signal',interface='"+manager+"'"),
		"start":       encode(t, little, systemd, string(object), manager, "StartTransientUnit", "kubepods-podx.slice", "replace", unit, none),
		"start, B":    encode(t, binary.BigEndian, systemd, string(object), manager, "StartTransientUnit", "kubepods-podx.slice", "replace", unit, none),
		"change":      encode(t, little, systemd, string(object), manager, "SetUnitProperties", "kubepods-podx.slice", true, unit),
		"stop":        encode(t, little, systemd, string(object), manager, "StopUnit", "kubepods-podx.slice", "replace"),
		"delay":       encode(t, little, Name, "/", Name, "Delay", uint64(1), uint64(2)),
		"of all":      encode(t, little, "x.y", "/", "x.y", "Z", byte(1), int16(-2), uint16(2), int32(-3), uint32(3), int64(-4), uint64(4), 1.5, "s", dbus.ObjectPath("/p"), dbus.SignatureOf(uint32(0)), []any{}),
		"nested":      encode(t, little, "x.y", "/", "x.y", "Z", dbus.MakeVariant(dbus.MakeVariant([][]string{{"a"}, {}}))),
		"of nothing":  {},
		"a dict":      encode(t, little, "x.y", "/", "x.y", "Z", map[string]string{"a": "b"}),
		"descriptors": encode(t, little, "x.y", "/", "x.y", "Z", dbus.UnixFDIndex(0)),
	}
}

// TestDecode: what godbus encodes is read as it was meant.
func TestDecode(t *testing.T) {
	for name, want := range map[string]string{
		"hello": "", "match": "s", "start": "ssa(sv)a(sa(sv))", "start, B": "ssa(sv)a(sa(sv))", "stop": "ss", "delay": "tt", "of all": "ynqiuxtdsogav", "nested": "v",
	} {
		raw := sent(t)[name]
		framed, err := readFrame(bytes.NewReader(raw), mostOfClient)
		if err != nil || !bytes.Equal(framed, raw) {
			t.Fatalf("%s: a frame of %d bytes, %v; want %d", name, len(framed), err, len(raw))
		}
		m, err := Decode(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if m.Signature != want || m.serial != 7 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	m, err := Decode(sent(t)["start, B"])
	if err != nil {
		t.Fatal(err)
	}
	properties := m.Body[2].([]any)
	cpus := properties[2].([]any)
	memory := properties[3].([]any)
	if m.Destination != systemd || m.Path != object || m.method() != manager+".StartTransientUnit" || m.Body[0] != "kubepods-podx.slice" ||
		cpus[0] != "AllowedCPUs" || !bytes.Equal(cpus[1].(Variant).Value.([]byte), []byte{3}) || memory[1] != (Variant{"t", uint64(1 << 30)}) {
		t.Errorf("%+v", m)
	}
}

// TestDecodeRefuses: what the bus might read otherwise, or is not needed.
func TestDecodeRefuses(t *testing.T) {
	stop := sent(t)["stop"]
	change := func(at int, to ...byte) []byte {
		raw := bytes.Clone(stop)
		copy(raw[at:], to)
		return raw
	}
	twice := encode(t, binary.LittleEndian, "x.y", "/", "x.y", "Zzzzzzz")
	twice = bytes.Replace(twice, []byte{byte(dbus.FieldInterface), 1, 's', 0}, []byte{byte(dbus.FieldMember), 1, 's', 0}, 1)
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"no byte order":       {change(0, 'x'), "byte order"},
		"another version":     {change(3, 2), "version 2"},
		"no serial":           {change(8, 0, 0, 0, 0), "serial 0"},
		"a shorter body":      {change(4, 1), "said to be"},
		"more than signed":    {append(change(4, stop[4]+1), 0), "beyond its signature"},
		"a field twice":       {twice, "twice"},
		"a dictionary":        {sent(t)["a dict"], "type '{'"},
		"descriptors":         {sent(t)["descriptors"], "type 'h'"},
		"half":                {stop[:len(stop)-9], "said to be"},
		"an endless header":   {change(12, 0xff, 0xff, 0xff, 0x7f), errShort.Error()},
		"a text without end":  {bytes.Replace(stop, []byte("replace\x00"), []byte("replacex"), 1), "UTF-8"},
		"a text with a zero":  {bytes.Replace(stop, []byte("replace"), []byte("rep\x00ace"), 1), "UTF-8"},
		"a name of two lines": {bytes.Replace(stop, []byte("StopUnit"), []byte("Stop\nnit"), 1), "want a name"},
	} {
		if m, err := Decode(c.raw); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, m, err, c.want)
		}
	}
}

// TestFrames: one message after the other, none above the limit, and the length it
// claims is not believed.
func TestFrames(t *testing.T) {
	hello, stop := sent(t)["hello"], sent(t)["stop"]
	both := bytes.NewReader(append(bytes.Clone(hello), stop...))
	for _, want := range [][]byte{hello, stop} {
		if got, err := readFrame(both, mostOfClient); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := readFrame(both, mostOfClient); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	for name, half := range map[string][]byte{"in the header": stop[:10], "after it": stop[:16], "in the body": stop[:len(stop)-1]} {
		if _, err := readFrame(bytes.NewReader(half), mostOfClient); err == nil || err == io.EOF {
			t.Errorf("the end %s: %v", name, err)
		}
	}
	for _, length := range []uint32{mostOfClient, 1 << 27, math.MaxUint32} {
		large := bytes.Clone(stop)
		binary.LittleEndian.PutUint32(large[4:], length)
		fuzzing.Allocates(t, 1<<20, func() {
			if _, err := readFrame(bytes.NewReader(large), mostOfClient); err == nil || !strings.Contains(err.Error(), "at most 65536") {
				t.Errorf("a body of %d bytes: %v", length, err)
			}
		})
	}
}

// FuzzClient: no message of a client makes a gate panic, or allocate much more than
// its length; and what it accepts godbus reads in the same way.
func FuzzClient(f *testing.F) {
	for _, raw := range sent(f) {
		f.Add(raw)
	}
	policies := []Policy{Slices{}, Slices{Root: pod.CgroupName{"a-b"}}, &Logind{}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Message
		fuzzing.Allocates(t, 256<<10+200*uint64(len(data)), func() {
			raw, err := readFrame(bytes.NewReader(data), mostOfClient)
			if err != nil {
				return
			}
			if m, err = Decode(raw); err != nil {
				return
			}
			for _, p := range policies {
				if denied := p.Allow(m); denied != nil && len(denied.Error()) > 8*mostText {
					t.Errorf("an error of %d bytes", len(denied.Error()))
				}
			}
			if need, want, err := delays(m); err == nil && (need > maxDelay || want > maxDelay || want < need) {
				t.Errorf("a delay of %s, %s", need, want)
			}
		})
		if m == nil {
			return
		}
		other, err := dbus.DecodeMessage(bytes.NewReader(data))
		if err != nil {
			return // it wants fields that a call needs
		}
		text := func(field dbus.HeaderField) string { s, _ := other.Headers[field].Value().(string); return s }
		path, _ := other.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		if other.Type != m.Type || other.Serial() != m.serial || path != m.Path || text(dbus.FieldDestination) != m.Destination ||
			text(dbus.FieldInterface) != m.Interface || text(dbus.FieldMember) != m.Member || len(other.Body) != len(m.Body) {
			t.Fatalf("%+v, and for godbus %+v", m, other)
		}
		for i, value := range m.Body {
			if text, ok := value.(string); ok && m.Signature[0] == 's' && i == 0 && other.Body[0] != text {
				t.Errorf("%q, and for godbus %q", text, other.Body[0])
			}
		}
	})
}
