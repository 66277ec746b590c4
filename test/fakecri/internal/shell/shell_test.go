// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/test/fakecri/internal/shell"
)

// memory is a file system in a map.
type memory map[string]string

func (m memory) Read(path string) ([]byte, error) {
	text, ok := m[path]
	if !ok {
		return nil, errors.New("No such file or directory")
	}
	return []byte(text), nil
}

func (m memory) Write(path string, data []byte, appending bool) error {
	if appending {
		data = append([]byte(m[path]), data...)
	}
	m[path] = string(data)
	return nil
}

func (m memory) Remove(path string) error {
	if _, err := m.Read(path); err != nil {
		return err
	}
	delete(m, path)
	return nil
}

func run(t *testing.T, script string) (exit shell.Exit, out, errout string, files memory) {
	t.Helper()
	s, err := shell.Parse(script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	var o, e bytes.Buffer
	files = memory{"/etc/motd": "hello\n"}
	server, err := shell.Parse("echo serving $1; exit 6")
	if err != nil {
		t.Fatal(err)
	}
	p := &shell.Proc{
		Clock: clock.RealClock{}, Files: files, Out: &o, Err: &e, Hostname: "host", Init: true,
		UID: 10, GID: 20, Dir: "/srv",
		Env:  map[string]string{"COLOUR": "blue"},
		Args: []string{"zero", "one"},
		Programs: func(name string) (*shell.Script, bool) {
			return server, name == "/bin/server"
		},
	}
	exit = p.Run(t.Context(), s)
	return exit, o.String(), e.String(), files
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script      string
		code        int32
		out, errout string
	}{
		{"", 0, "", ""},
		{"exit 3; echo never", 3, "", ""},
		{"exit 300", 44, "", ""},
		{"exit 2 after 1ms", 2, "", ""},
		{"exit x; exit 4", 4, "", "sh: exit: illegal number: x\n"},
		{"false", 1, "", ""},
		{"false || echo saved && echo on", 0, "saved\non\n", ""},
		{"true && false && echo never || exit 5", 5, "", ""},
		{"! true", 1, "", ""},
		{"! false && echo yes", 0, "yes\n", ""},
		{"echo a\necho b # comment\necho c#d", 0, "a\nb\nc#d\n", ""},
		{"echo -n a; echo 'b  c' \"d  $COLOUR\" '$COLOUR' ''x", 0, "ab  c d  blue $COLOUR x\n", ""},
		{"echo ${COLOUR}ish $1 $7 $$ $ 5$", 0, "blueish one  1 $ 5$\n", ""},
		{`echo a\;b \$COLOUR`, 0, "a;b $COLOUR\n", ""},
		{"echo to >&2", 0, "", "to\n"},
		{"echo to 1>&2", 0, "", "to\n"},
		{"echo a > /f; echo b >> /f; cat /f", 0, "a\nb\n", ""},
		{"echo a >/dev/null; cat /no 2>/dev/null", 1, "", "cat: can't open '/no': No such file or directory\n"},
		{"echo a2 2>&1", 0, "a2\n", ""},
		{"cat /etc/motd; rm /etc/motd && test -f /etc/motd", 1, "hello\n", ""},
		{"rm -f /none", 0, "", ""},
		{"touch /x && [ -f /x ] && [ ! -f /y ] && echo both", 0, "both\n", ""},
		{"test a = a && test a != b && test -n x && test -z ''", 0, "", ""},
		{"test what", 2, "", "sh: test: cannot read [\"what\"]\n"},
		{"if test -f /etc/motd; then echo yes; else echo no; fi", 0, "yes\n", ""},
		{"if false; then echo yes; else exit 8; fi", 8, "", ""},
		{"while test ! -f /stop; do echo once; touch /stop; done", 0, "once\n", ""},
		{"id -u; id -g; pwd", 0, "10\n20\n/srv\n", ""},
		{"hostname; echo on $(hostname)", 0, "host\non host\n", ""},
		{"printenv COLOUR; printenv NONE", 1, "blue\n", ""},
		{`printf 'a\nb %s %d' x 5`, 0, "a\nb x 5", ""},
		{`printf 'a\\nb\351\101'`, 0, "a\\nb\xe9A", ""},
		{"log lines 2; log lines 1 every 1ms", 0, "line 1\nline 2\nline 1\n", ""},
		{"sh -c 'echo in $1; exit 7' name arg; echo out", 0, "in arg\nout\n", ""},
		{"/bin/server ready || exit 9", 9, "serving ready\n", ""},
		{"exec sh -c 'exit 11'", 11, "", ""},
		{"nothing here", 127, "", "sh: nothing: not found\n"},
		{"/usr/bin/true; /opt/true", 127, "", "sh: /opt/true: not found\n"},
		{"kill -9 1; kill 1; kill 77; echo alive", 0, "alive\n", "sh: kill: only process 1 can be reached\n"},
		{"oom; echo never", 137, "", ""},
		{"sh -c oom; echo never", 137, "", ""},
		{"tail /dev/zero", 137, "", ""},
		{"sleep x", 2, "", "sh: sleep: invalid number \"x\"\n"},
		{"sleep 0.001 & wait; echo waited", 0, "waited\n", ""},
	} {
		exit, out, errout, _ := run(t, tt.script)
		if exit.Code != tt.code || out != tt.out || errout != tt.errout {
			t.Errorf("%q: code %d, out %q, err %q; want %d, %q, %q", tt.script, exit.Code, out, errout, tt.code, tt.out, tt.errout)
		}
		if wantOOM := strings.Contains(tt.script, "oom") || strings.Contains(tt.script, "zero"); exit.OOM != wantOOM {
			t.Errorf("%q: out of memory %v", tt.script, exit.OOM)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo 'open":           "unterminated quote",
		"while true; done":     `expected "do"`,
		"while true; do true":  `expected "done"`,
		"if true; fi":          `expected "then"`,
		"true; fi":             `unexpected "fi"`,
		"echo a >":             "needs a file",
		"&& true":              `unexpected "&&"`,
		"if true; then else x": `expected "fi"`,
	} {
		if _, err := shell.Parse(script); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", script, err, want)
		}
	}
}

// proc runs a script on a fake clock and reports when it waits.
func proc(t *testing.T, script string, init bool) (clk *clocktesting.FakeClock, signals chan shell.Signal, blocked chan bool, exit chan shell.Exit, kill func()) {
	t.Helper()
	s, err := shell.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	clk = clocktesting.NewFakeClock(time.Unix(0, 0))
	signals = make(chan shell.Signal, 4)
	blocked = make(chan bool, 100)
	exit = make(chan shell.Exit, 1)
	p := &shell.Proc{
		Clock: clk, Files: memory{}, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Init: init, Signals: signals,
		Blocked: func(b bool) { blocked <- b },
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { exit <- p.Run(ctx, s) }()
	return clk, signals, blocked, exit, cancel
}

// TestSignals sends TERM, then HUP, whose trap exits with 9: 9 is a TERM ignored.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		init         bool
		want         int32
	}{
		{"a trap runs", "trap 'exit 7' TERM; sleep infinity", true, 7},
		{"a trap by its long name", "trap 'exit 7' SIGTERM INT; sleep infinity", true, 7},
		{"a trap in other words", "on-term exit 7; sleep infinity", true, 7},
		{"ignored", "trap '' TERM; sleep infinity", false, 9},
		{"ignored in other words", "ignore-term; sleep infinity", false, 9},
		{"ignored by the first process", "sleep infinity", true, 9},
		{"deadly to others", "sleep infinity", false, 143},
		{"in a loop", "trap 'exit 7' TERM; while true; do sleep 1; done", true, 7},
		{"waiting for the background", "trap 'exit 7' TERM; sleep infinity & wait", true, 7},
		{"waiting for ever", "trap 'exit 7' TERM; tail -f /dev/null", true, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, signals, blocked, exit, _ := proc(t, "trap 'exit 9' HUP; "+tt.script, tt.init)
			<-blocked
			signals <- "TERM"
			signals <- "HUP"
			if got := <-exit; got.Code != tt.want {
				t.Errorf("exit code %d, want %d", got.Code, tt.want)
			}
		})
	}
}

func TestSleepIsTheClocks(t *testing.T) {
	t.Parallel()
	clk, _, blocked, exit, _ := proc(t, "sleep 3600; exit 4", true)
	<-blocked
	clk.Step(3599 * time.Second)
	select {
	case got := <-exit:
		t.Fatalf("ended early with %v", got)
	default:
	}
	clk.Step(time.Second)
	if got := <-exit; got.Code != 4 {
		t.Errorf("exit code %d", got.Code)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"sleep infinity", "trap '' TERM; while true; do sleep 1; done"} {
		_, _, blocked, exit, kill := proc(t, script, true)
		<-blocked
		kill()
		if got := <-exit; got.Code != 137 || got.OOM {
			t.Errorf("%s: %v", script, got)
		}
	}
	_, _, _, exit, kill := proc(t, "while true; do true; done", true)
	kill()
	if got := <-exit; got.Code != 137 {
		t.Errorf("a busy loop: %v", got)
	}
}

func TestCommandExpandsNothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &shell.Proc{Clock: clock.RealClock{}, Files: memory{}, Out: &out, Err: &out}
	p.Run(t.Context(), shell.Command("echo", "$HOME; exit", "a > b"))
	if out.String() != "$HOME; exit a > b\n" {
		t.Errorf("got %q", out.String())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"while true; do sleep 1; done", "a && b || c &", "echo \"$X\" '$Y' > f", "if a; then b; else c; fi", "trap 'exit 1' TERM", "2>&1 >", "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = shell.Parse(s) // it must only come back
	})
}
