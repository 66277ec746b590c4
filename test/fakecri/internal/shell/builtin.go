// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// builtins are the commands every image has, by base name. One that reads its
// arguments wrongly says so on stderr and fails with status 2.
var builtins map[string]func(p *Proc, ctx context.Context, args []string, out io.Writer) (int32, error)

func init() {
	builtins = map[string]func(*Proc, context.Context, []string, io.Writer) (int32, error){
		":": (*Proc).succeed, "true": (*Proc).succeed,
		"false": func(*Proc, context.Context, []string, io.Writer) (int32, error) { return 1, nil },
		"exit":  (*Proc).exit,
		"sleep": (*Proc).sleep,
		"wait": func(p *Proc, ctx context.Context, _ []string, _ io.Writer) (int32, error) {
			return 0, p.wait(ctx, p.bg)
		},
		"trap": (*Proc).trap,
		"on-term": func(p *Proc, ctx context.Context, a []string, out io.Writer) (int32, error) {
			return p.trap(ctx, []string{strings.Join(a, " "), "TERM"}, out)
		},
		"ignore-term": func(p *Proc, ctx context.Context, _ []string, out io.Writer) (int32, error) {
			return p.trap(ctx, []string{"", "TERM"}, out)
		},
		"kill": (*Proc).kill,
		"oom": func(*Proc, context.Context, []string, io.Writer) (int32, error) {
			return 0, exited{Code: 137, OOM: true}
		},
		"tail": (*Proc).tail,
		"sh":   (*Proc).sh, "ash": (*Proc).sh, "bash": (*Proc).sh,
		"exec": func(p *Proc, ctx context.Context, a []string, out io.Writer) (int32, error) {
			return p.command(ctx, a, out)
		},
		"echo":   (*Proc).echo,
		"printf": (*Proc).printf,
		"log":    (*Proc).log,
		"hostname": func(p *Proc, _ context.Context, _ []string, out io.Writer) (int32, error) {
			fmt.Fprintln(out, p.Hostname)
			return 0, nil
		},
		"id": (*Proc).id,
		"pwd": func(p *Proc, _ context.Context, _ []string, out io.Writer) (int32, error) {
			fmt.Fprintln(out, path.Join("/", p.Dir))
			return 0, nil
		},
		"printenv": (*Proc).printenv,
		"touch":    (*Proc).touch,
		"rm":       (*Proc).rm,
		"cat":      (*Proc).cat,
		"stty":     (*Proc).stty,
		"test":     (*Proc).test, "[": (*Proc).test,
	}
}

var binDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"}

// Builtin reports whether name, bare or in a usual directory, is built in.
func Builtin(name string) bool { return builtin(name) != "" }

func builtin(name string) string {
	if dir, base := path.Split(name); dir != "" {
		if !slices.Contains(binDirs, path.Clean(dir)) {
			return ""
		}
		name = base
	}
	if _, ok := builtins[name]; !ok {
		return ""
	}
	return name
}

func (p *Proc) succeed(context.Context, []string, io.Writer) (int32, error) { return 0, nil }

// usage reports a misused command the way a shell does.
func (p *Proc) usage(format string, args ...any) (int32, error) {
	fmt.Fprintf(p.Err, "sh: "+format+"\n", args...)
	return 2, nil
}

func (p *Proc) command(ctx context.Context, argv []string, out io.Writer) (int32, error) {
	if len(argv) == 0 {
		return 0, nil
	}
	if p.Programs != nil {
		if s, ok := p.Programs(argv[0]); ok {
			return p.sub(ctx, s, argv, out)
		}
	}
	if name := builtin(argv[0]); name != "" {
		return builtins[name](p, ctx, argv[1:], out)
	}
	fmt.Fprintf(p.Err, "sh: %s: not found\n", argv[0])
	return 127, nil
}

// sub runs a script within this process: its exit is a status, except for one
// that kills the whole process.
func (p *Proc) sub(ctx context.Context, s *Script, argv []string, out io.Writer) (int32, error) {
	if p.depth > 20 {
		return p.usage("too deep: %s", argv[0])
	}
	args, stdout := p.Args, p.Out
	p.Args, p.Out, p.depth = argv, out, p.depth+1
	defer func() { p.Args, p.Out, p.depth = args, stdout, p.depth-1 }()
	code, err := p.list(ctx, s.body)
	if e, ok := err.(exited); ok && !e.OOM {
		return e.Code, nil
	}
	return code, err
}

func (p *Proc) sh(ctx context.Context, args []string, out io.Writer) (int32, error) {
	if len(args) < 2 || !strings.HasPrefix(args[0], "-") || !strings.HasSuffix(args[0], "c") {
		return p.usage("only sh -c SCRIPT is understood")
	}
	s, err := Parse(args[1])
	if err != nil {
		return p.usage("syntax error: %v", err)
	}
	return p.sub(ctx, s, append([]string{"sh"}, args[min(3, len(args)):]...), out)
}

// exit takes "N" and "N after D".
func (p *Proc) exit(ctx context.Context, args []string, _ io.Writer) (int32, error) {
	var code int
	if len(args) > 0 {
		var err error
		if code, err = strconv.Atoi(args[0]); err != nil {
			return p.usage("exit: illegal number: %s", args[0])
		}
	}
	if len(args) == 3 && args[1] == "after" {
		if code, err := p.sleep(ctx, args[2:], nil); err != nil || code != 0 {
			return code, err
		}
	}
	return 0, exited{Code: int32(code & 0xff)}
}

func (p *Proc) sleep(ctx context.Context, args []string, _ io.Writer) (int32, error) {
	if len(args) != 1 {
		return p.usage("sleep needs one duration")
	}
	d, err := duration(args[0])
	if err != nil {
		return p.usage("sleep: %v", err)
	}
	return 0, p.wait(ctx, d)
}

func (p *Proc) trap(_ context.Context, args []string, _ io.Writer) (int32, error) {
	if len(args) < 2 {
		return p.usage("trap needs an action and a signal")
	}
	var handler *Script
	if args[0] != "" {
		s, err := Parse(args[0])
		if err != nil {
			return p.usage("trap: %v", err)
		}
		handler = s
	}
	if p.traps == nil {
		p.traps = map[Signal]*Script{}
	}
	for _, sig := range args[1:] {
		p.traps[Signal(strings.TrimPrefix(sig, "SIG"))] = handler
	}
	return 0, nil
}

// kill sends a signal to the first process, the only one with a number. As in
// a PID namespace, KILL does nothing to it from inside.
func (p *Proc) kill(_ context.Context, args []string, _ io.Writer) (int32, error) {
	sig := "TERM"
	if len(args) == 2 && strings.HasPrefix(args[0], "-") {
		sig, args = strings.TrimPrefix(args[0][1:], "SIG"), args[1:]
	}
	if len(args) != 1 || args[0] != "1" {
		return p.usage("kill: only process 1 can be reached")
	}
	switch sig {
	case "9", "KILL":
		return 0, nil
	case "15":
		sig = "TERM"
	}
	if p.KillInit != nil {
		p.KillInit(Signal(sig))
	}
	return 0, nil
}

// tail knows the two idioms: eat all memory, and wait for ever.
func (p *Proc) tail(ctx context.Context, args []string, out io.Writer) (int32, error) {
	switch {
	case slices.Equal(args, []string{"/dev/zero"}):
		return 0, exited{Code: 137, OOM: true}
	case slices.Equal(args, []string{"-f", "/dev/null"}):
		return 0, p.wait(ctx, forever)
	}
	return p.cat(ctx, args[max(0, len(args)-1):], out)
}
