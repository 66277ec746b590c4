// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// onTerminal is a file that verbs write to. Much of what they show comes from
// containers and from users who name objects: on a terminal it must not move the
// cursor, set the window's title or enter input. Output to anything but a terminal is
// unchanged.
func onTerminal(f *os.File) io.Writer {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return f
	}
	return &plain{w: f}
}

// plain writes text and makes visible what a terminal would act upon: control
// characters other than newline and tab, characters that change the direction of text,
// and bytes that are not UTF-8.
type plain struct {
	w io.Writer
	// begun holds the first bytes of a character whose rest has not been written yet.
	begun []byte
}

func (p *plain) Write(data []byte) (int, error) {
	text := append(p.begun, data...)
	var out bytes.Buffer
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			out.WriteRune(r)
		case r < ' ':
			out.WriteString("^" + string(r+'@')) // as cat -v
		case r == 0x7f:
			out.WriteString("^?")
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			out.WriteRune(r) // U+FFFD for a byte that is none
		}
		text = text[size:]
	}
	p.begun = bytes.Clone(text)
	if _, err := p.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}
