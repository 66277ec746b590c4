// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
)

// mostDeep is the greatest depth of nested values ("Valid Signatures" allows 64).
const mostDeep = 16

var errShort = errors.New("the message ends within a value")

// decoder reads values of the wire format ("Marshaling (Wire Format)"). It allocates
// for the bytes present, whatever lengths the message claims.
type decoder struct {
	order binary.ByteOrder
	data  []byte
	pos   int
}

// complete cuts the first complete type off a signature.
func complete(sig string, deep int) (one, rest string, err error) {
	if deep > mostDeep {
		return "", "", fmt.Errorf("a type nested deeper than %d", mostDeep)
	}
	if sig == "" {
		return "", "", errors.New("a type that is missing")
	}
	switch sig[0] {
	case 'y', 'b', 'n', 'q', 'i', 'u', 'x', 't', 'd', 's', 'o', 'g', 'v':
		return sig[:1], sig[1:], nil
	case 'a':
		element, rest, err := complete(sig[1:], deep+1)
		return sig[:1+len(element)], rest, err
	case '(':
		rest := sig[1:]
		for !strings.HasPrefix(rest, ")") || len(rest) == len(sig)-1 { // no empty struct
			if _, rest, err = complete(rest, deep+1); err != nil {
				return "", "", err
			}
		}
		rest = rest[1:]
		return sig[:len(sig)-len(rest)], rest, nil
	}
	return "", "", fmt.Errorf("a value of type %q", sig[0])
}

// alignment of a type, in bytes.
func alignment(kind byte) int {
	switch kind {
	case 'n', 'q':
		return 2
	case 'b', 'i', 'u', 's', 'o', 'a':
		return 4
	case 'x', 't', 'd', '(':
		return 8
	}
	return 1
}

// align passes over padding, which is zero.
func (d *decoder) align(n int) error {
	for d.pos%n != 0 {
		b, err := d.take(1)
		if err != nil {
			return err
		}
		if b[0] != 0 {
			return errors.New("padding that is not zero")
		}
	}
	return nil
}

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.data)-d.pos {
		return nil, errShort
	}
	b := d.data[d.pos : d.pos+n]
	d.pos += n
	return b, nil
}

// length reads a length, and refuses one that goes beyond the message.
func (d *decoder) length() (int, error) {
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	if n := d.order.Uint32(b); uint64(n) <= uint64(len(d.data)-d.pos) {
		return int(n), nil
	}
	return 0, errShort
}

// value reads a value of one complete type.
func (d *decoder) value(sig string, deep int) (any, error) {
	if deep > mostDeep {
		return nil, fmt.Errorf("a value nested deeper than %d", mostDeep)
	}
	if err := d.align(alignment(sig[0])); err != nil {
		return nil, err
	}
	switch sig[0] {
	case 's', 'o', 'g':
		return d.text(sig[0])
	case 'v':
		return d.variant(deep)
	case 'a':
		return d.array(sig[1:], deep)
	case '(':
		return d.structure(sig[1:len(sig)-1], deep)
	}
	return d.fixed(sig[0])
}

func (d *decoder) fixed(kind byte) (any, error) {
	b, err := d.take(alignment(kind)) // which is its size
	if err != nil {
		return nil, err
	}
	switch kind {
	case 'y':
		return b[0], nil
	case 'n':
		return int16(d.order.Uint16(b)), nil
	case 'q':
		return d.order.Uint16(b), nil
	case 'i':
		return int32(d.order.Uint32(b)), nil
	case 'u':
		return d.order.Uint32(b), nil
	case 'x', 'd': // no policy looks at a floating-point number
		return int64(d.order.Uint64(b)), nil
	case 't':
		return d.order.Uint64(b), nil
	}
	switch n := d.order.Uint32(b); n {
	case 0, 1:
		return n == 1, nil
	default:
		return nil, fmt.Errorf("a boolean of %d", n)
	}
}

func (d *decoder) text(kind byte) (any, error) {
	var n int
	var err error
	if kind == 'g' {
		var b []byte
		if b, err = d.take(1); err == nil {
			n = int(b[0])
		}
	} else {
		n, err = d.length()
	}
	if err != nil {
		return nil, err
	}
	b, err := d.take(n + 1)
	if err != nil {
		return nil, err
	}
	text := string(b[:n])
	if b[n] != 0 || strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return nil, errors.New("a text that is not UTF-8, or has a zero in it")
	}
	if kind == 'o' {
		return dbus.ObjectPath(text), nil
	}
	return text, nil
}

func (d *decoder) variant(deep int) (any, error) {
	sig, err := d.text('g')
	if err != nil {
		return nil, err
	}
	one, rest, err := complete(sig.(string), 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("a variant of type %q", sig)
	}
	if err != nil {
		return nil, err
	}
	value, err := d.value(one, deep+1)
	return Variant{Signature: one, Value: value}, err
}

func (d *decoder) array(element string, deep int) (any, error) {
	n, err := d.length()
	if err == nil {
		err = d.align(alignment(element[0]))
	}
	if err != nil {
		return nil, err
	}
	if n > len(d.data)-d.pos {
		return nil, errShort
	}
	if element == "y" {
		return d.take(n)
	}
	all, end := []any{}, d.pos+n
	for d.pos < end {
		value, err := d.value(element, deep+1)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	if d.pos != end {
		return nil, errors.New("an array that ends within a value")
	}
	return all, nil
}

func (d *decoder) structure(members string, deep int) (any, error) {
	var all []any
	for members != "" {
		one, rest, err := complete(members, 0)
		if err != nil {
			return nil, err
		}
		value, err := d.value(one, deep+1)
		if err != nil {
			return nil, err
		}
		all, members = append(all, value), rest
	}
	return all, nil
}

// Variant is a value with the signature of its type.
type Variant struct {
	Signature string
	Value     any
}
