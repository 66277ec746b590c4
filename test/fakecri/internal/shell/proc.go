// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Signal is what a process can be sent besides KILL, which is the end of its
// context.
type Signal string

// Files is the file system a process sees. Errors carry the text that the
// command prints after its own name.
type Files interface {
	Read(path string) ([]byte, error)
	Write(path string, data []byte, appending bool) error
	Remove(path string) error
}

// Exit is how a process ended.
type Exit struct {
	Code int32
	OOM  bool // ended by the kernel for lack of memory; Code is 137
}

// Proc is one process. The zero value of every optional field is usable.
type Proc struct {
	Clock    clock.Clock
	Files    Files
	Out, Err io.Writer
	// In is the standard input; nil for an empty one. It is closed by its owner.
	In io.Reader
	// Size waits until the terminal has a size; nil without a terminal.
	Size     func(context.Context) (rows, columns uint16)
	Env      map[string]string
	Args     []string // $0, $1, …
	Hostname string
	UID, GID int64
	Dir      string // "" is "/"
	// Programs finds executables that are not built in: the script and true.
	Programs func(name string) (*Script, bool)
	// Init says that the process is the first of its PID namespace: like a
	// real one it ignores signals for which it has set no trap.
	Init bool
	// Signals delivers signals; nil if none can come. They are looked at only
	// when the process waits, so a trap set before the first wait always counts.
	Signals <-chan Signal
	// KillInit sends a signal to the first process of the container; it may be nil.
	KillInit func(Signal)
	// Blocked is called with true just before the process waits, its timer
	// already set, and with false when it goes on. It may be nil.
	Blocked func(bool)

	traps map[Signal]*Script // nil script: ignored
	bg    time.Duration      // longest background sleep, -1 for ever
	depth int
}

// exited unwinds the interpreter when the process ends.
type exited Exit

func (e exited) Error() string { return fmt.Sprintf("exit %d", e.Code) }

// Run runs the script until it ends or ctx is cancelled; then the process was
// killed: 137.
func (p *Proc) Run(ctx context.Context, s *Script) Exit {
	code, err := p.list(ctx, s.body)
	var e exited
	switch {
	case errors.As(err, &e):
		return Exit(e)
	case err != nil:
		return Exit{Code: 137}
	}
	return Exit{Code: code}
}

func (p *Proc) list(ctx context.Context, body []stmt) (code int32, err error) {
	for _, s := range body {
		if (s.when == "&&" && code != 0) || (s.when == "||" && code == 0) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if code, err = p.stmt(ctx, s); err != nil {
			return 0, err
		}
		if s.not {
			code = map[bool]int32{true: 1, false: 0}[code == 0]
		}
	}
	return code, nil
}

func (p *Proc) stmt(ctx context.Context, s stmt) (int32, error) {
	switch s.kind {
	case "while":
		for {
			code, err := p.list(ctx, s.cond)
			if err != nil || code != 0 {
				return 0, err
			}
			if _, err = p.list(ctx, s.then); err != nil {
				return 0, err
			}
			// A loop without a wait must still hear signals.
			if err = p.pending(ctx); err != nil {
				return 0, err
			}
		}
	case "if":
		code, err := p.list(ctx, s.cond)
		if err != nil {
			return 0, err
		}
		if code == 0 {
			return p.list(ctx, s.then)
		}
		return p.list(ctx, s.els)
	}
	argv := make([]string, len(s.words))
	for i, w := range s.words {
		argv[i] = p.expand(w)
	}
	out := p.Out
	var file bytes.Buffer
	switch s.redir {
	case ">&2":
		out = p.Err
	case ">", ">>":
		out = &file
	}
	if s.bg {
		return 0, p.background(argv)
	}
	code, err := p.command(ctx, argv, out)
	if s.redir == ">" || s.redir == ">>" {
		if werr := p.redirect(p.expand(s.file), file.Bytes(), s.redir == ">>"); werr != nil {
			fmt.Fprintf(p.Err, "sh: can't create %s: %v\n", p.expand(s.file), werr)
			return 1, err
		}
	}
	return code, err
}

func (p *Proc) redirect(path string, data []byte, appending bool) (err error) {
	switch path {
	case "/dev/null":
	case "/dev/stdout":
		_, err = p.Out.Write(data)
	case "/dev/stderr":
		_, err = p.Err.Write(data)
	default:
		err = p.Files.Write(path, data, appending)
	}
	return err
}

// expand replaces $NAME, ${NAME}, $1, $$ and $(hostname) in a word.
func (p *Proc) expand(t token) string {
	var b strings.Builder
	for _, part := range t.parts {
		if !part.expand {
			b.WriteString(part.text)
			continue
		}
		text := strings.ReplaceAll(part.text, "$(hostname)", p.Hostname)
		b.WriteString(expandVars(text, p.variable))
	}
	return b.String()
}

func (p *Proc) variable(name string) string {
	if name == "$" {
		return "1"
	}
	if len(name) == 1 && name[0] >= '0' && name[0] <= '9' {
		if i := int(name[0] - '0'); i < len(p.Args) {
			return p.Args[i]
		}
		return ""
	}
	return p.Env[name]
}

// expandVars is os.Expand, except that a $ which names nothing stays.
func expandVars(s string, get func(string) string) string {
	isName := func(c byte) bool {
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch c := s[i+1]; {
		case c == '$':
			b.WriteString(get("$"))
			i++
		case c == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				b.WriteByte(s[i])
				continue
			}
			b.WriteString(get(s[i+2 : i+end]))
			i += end
		case isName(c):
			end := i + 1
			for end < len(s) && isName(s[end]) {
				end++
			}
			b.WriteString(get(s[i+1 : end]))
			i = end - 1
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
