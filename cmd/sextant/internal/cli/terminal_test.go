// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"
)

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"NAME\tREADY\nweb\ttrue\n":         "NAME\tREADY\nweb\ttrue\n",
		"größe 値 🙂":                        "größe 値 🙂",
		"\x1b]0;owned\x07":                 "^[]0;owned^G",
		"\x1b[2J\x1b[H":                    "^[[2J^[[H",
		"a\rb\bc\x7f":                      "a^Mb^Hc^?",
		"\u009b2J":                         `\u009b2J`,
		"\x9b2J":                           "\ufffd2J",
		"user\u202etxt.exe\u2066":          `user\u202etxt.exe\u2066`,
		"half a character at the end \xe2": "half a character at the end ",
	} {
		var whole, single bytes.Buffer
		if n, err := (&plain{w: &whole}).Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		w := &plain{w: &single}
		for i := range len(text) {
			if n, err := w.Write([]byte(text[i : i+1])); n != 1 || err != nil {
				t.Errorf("%q: %d, %v", text, n, err)
			}
		}
		if whole.String() != want || single.String() != want {
			t.Errorf("%q: %q, and byte by byte %q; want %q", text, &whole, &single, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m \xe2\x80"), 3)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var out bytes.Buffer
		w := &plain{w: &out}
		at = min(max(at, 0), len(data))
		for _, part := range [][]byte{data[:at], data[at:]} {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Errorf("%q becomes %q", data, &out)
		}
	})
}

// terminal is a pair of a terminal and its other end.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestOnTerminal: a terminal gets no escapes, and a file gets what there is.
func TestOnTerminal(t *testing.T) {
	const hostile = "\x1b]0;owned\x07"
	master, slave := terminal(t)
	if _, err := io.WriteString(onTerminal(slave), hostile); err != nil {
		t.Fatal(err)
	}
	want := "^[]0;owned^G"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(master, got); err != nil || string(got) != want {
		t.Errorf("a terminal gets %q, %v", got, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(onTerminal(write), hostile); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if got, err := io.ReadAll(read); err != nil || string(got) != hostile {
		t.Errorf("a pipe gets %q, %v", got, err)
	}
}

// TestTableOfHostileText: what a container says is one cell.
func TestTableOfHostileText(t *testing.T) {
	var out bytes.Buffer
	o := output{format: "table"}
	if err := o.print(&out, nil, []string{"POD", "WHY"}, [][]string{{"a", "x\nkube-system/etcd\tall is well\vy"}}); err != nil {
		t.Fatal(err)
	}
	if want := "POD  WHY\na    x kube-system/etcd all is well y\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
