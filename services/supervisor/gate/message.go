// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/godbus/dbus/v5"
)

const (
	// mostOfClient and mostOfBus bound one message, in bytes. A client's message is
	// decoded; a message of the bus is passed on unchanged (the specification allows
	// 128 MiB).
	mostOfClient = 64 << 10
	mostOfBus    = 1 << 20
	// mostText bounds a name, and a client's text in an error, in bytes.
	mostText = 255

	// fixedHeader is the length of what comes before the header fields, in bytes.
	fixedHeader = 16
)

// Message is the part of a client's message that a policy judges.
type Message struct {
	Type        dbus.Type
	Destination string
	Path        dbus.ObjectPath
	Interface   string
	Member      string
	// Signature of the body, which holds one value for each complete type in it:
	// fixed types and strings as godbus has them, ay as []byte, other arrays and
	// structs as []any, and variants as Variant.
	Signature string
	Body      []any

	serial uint32
}

// method is the method that is called, with its interface.
func (m *Message) method() string { return m.Interface + "." + m.Member }

// readFrame reads one message, of at most limit bytes (D-Bus Specification,
// "Message Format"). io.EOF is the end between two messages.
func readFrame(from io.Reader, limit int) ([]byte, error) {
	head := make([]byte, fixedHeader)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	order, err := byteOrder(head[0])
	if err != nil {
		return nil, err
	}
	fields, body := uint64(order.Uint32(head[12:])), uint64(order.Uint32(head[4:]))
	size := fixedHeader + (fields+7)&^7 + body
	if size > uint64(limit) {
		return nil, fmt.Errorf("a message of %d bytes: at most %d pass", size, limit)
	}
	raw := make([]byte, size)
	copy(raw, head)
	if _, err := io.ReadFull(from, raw[fixedHeader:]); err != nil {
		return nil, fmt.Errorf("a message of %d bytes: %w", size, noEOF(err))
	}
	return raw, nil
}

// noEOF distinguishes the end within a message from the end between two.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func byteOrder(mark byte) (binary.ByteOrder, error) {
	switch mark {
	case 'l':
		return binary.LittleEndian, nil
	case 'B':
		return binary.BigEndian, nil
	}
	return nil, fmt.Errorf("byte order %#x", mark)
}

// Decode reads a message that readFrame has delimited. It accepts less than the
// specification allows: no dictionaries, no descriptors, no repeated and no unknown
// header field, so that the bus cannot read the message differently.
func Decode(raw []byte) (*Message, error) {
	if len(raw) < fixedHeader {
		return nil, fmt.Errorf("a message of %d bytes", len(raw))
	}
	order, err := byteOrder(raw[0])
	if err != nil {
		return nil, err
	}
	if raw[3] != 1 {
		return nil, fmt.Errorf("protocol version %d", raw[3])
	}
	m := &Message{Type: dbus.Type(raw[1]), serial: order.Uint32(raw[8:])}
	if m.serial == 0 {
		return nil, fmt.Errorf("serial 0")
	}
	d := &decoder{order: order, data: raw, pos: 12}
	fields, err := d.value("a(yv)", 0)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	seen := map[dbus.HeaderField]bool{}
	for _, field := range fields.([]any) {
		pair := field.([]any)
		code := dbus.HeaderField(pair[0].(byte))
		if seen[code] {
			return nil, fmt.Errorf("header field %d twice", code)
		}
		seen[code] = true
		if err := m.field(code, pair[1].(Variant)); err != nil {
			return nil, err
		}
	}
	if err := d.align(8); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if length := order.Uint32(raw[4:]); uint64(length) != uint64(len(raw)-d.pos) {
		return nil, fmt.Errorf("a body of %d bytes, said to be %d", len(raw)-d.pos, length)
	}
	for rest := m.Signature; rest != ""; {
		one, after, err := complete(rest, 0)
		if err != nil {
			return nil, err
		}
		value, err := d.value(one, 0)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		m.Body, rest = append(m.Body, value), after
	}
	if d.pos != len(raw) {
		return nil, fmt.Errorf("body: %d bytes beyond its signature", len(raw)-d.pos)
	}
	return m, nil
}

// field takes in one header field ("Header Fields").
func (m *Message) field(code dbus.HeaderField, v Variant) error {
	name := func(to *string) error {
		text, ok := v.Value.(string)
		if v.Signature != "s" || !ok || !isName(text) {
			return fmt.Errorf("header field %d: want a name", code)
		}
		*to = text
		return nil
	}
	var other string
	switch code {
	case dbus.FieldDestination:
		return name(&m.Destination)
	case dbus.FieldInterface:
		return name(&m.Interface)
	case dbus.FieldMember:
		return name(&m.Member)
	case dbus.FieldSender, dbus.FieldErrorName: // the bus itself sets the sender
		return name(&other)
	case dbus.FieldPath:
		path, ok := v.Value.(dbus.ObjectPath)
		if !ok || !path.IsValid() || len(path) > mostText {
			return fmt.Errorf("header field %d: want a path of at most %d bytes", code, mostText)
		}
		m.Path = path
	case dbus.FieldSignature:
		if v.Signature != "g" {
			return fmt.Errorf("header field %d: want a signature", code)
		}
		m.Signature = v.Value.(string)
	case dbus.FieldReplySerial:
		if v.Signature != "u" {
			return fmt.Errorf("header field %d: want a serial", code)
		}
	default:
		return fmt.Errorf("header field %d is not passed on", code)
	}
	return nil
}

// isName reports whether a text is a valid name of a bus, an interface or a member
// ("Valid Names").
func isName(text string) bool {
	return text != "" && len(text) <= mostText && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:", r))
	})
}

// has reports whether the arguments are of these types.
func (m *Message) has(signature string) error {
	if m.Signature != signature {
		return fmt.Errorf("%s with arguments of type %q, want %q", m.method(), m.Signature, signature)
	}
	return nil
}

// breaksLine reports whether a character can end a line of a unit file, or join it with
// the next.
func breaksLine(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }

// quoted is a client's text for an error, quoted and cut.
func quoted(text string) string {
	if len(text) > mostText {
		return fmt.Sprintf("%q... (%d bytes)", text[:mostText], len(text))
	}
	return fmt.Sprintf("%q", text)
}
