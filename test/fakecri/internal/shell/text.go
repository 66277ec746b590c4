// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

func (p *Proc) echo(_ context.Context, args []string, out io.Writer) (int32, error) {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		end, args = "", args[1:]
	}
	_, err := io.WriteString(out, strings.Join(args, " ")+end)
	return 0, ignoreWrite(err)
}

// escape is what printf's format has in place of a byte: \n, \t, \\ or octal, \351.
var escape = regexp.MustCompile(`\\([nt\\]|[0-3][0-7]{2})`)

func unescape(text string) string {
	return escape.ReplaceAllStringFunc(text, func(found string) string {
		if code, err := strconv.ParseUint(found[1:], 8, 8); err == nil {
			return string([]byte{byte(code)})
		}
		return map[string]string{`\n`: "\n", `\t`: "\t", `\\`: `\`}[found]
	})
}

// printf expands \n, \t, \\ and octal bytes, and replaces each %s or %d by the next
// argument.
func (p *Proc) printf(_ context.Context, args []string, out io.Writer) (int32, error) {
	if len(args) == 0 {
		return p.usage("printf needs a format")
	}
	text := unescape(args[0])
	for _, a := range args[1:] {
		text = replaceFirst(text, a)
	}
	_, err := io.WriteString(out, text)
	return 0, ignoreWrite(err)
}

func replaceFirst(text, arg string) string {
	i := strings.Index(text, "%")
	if i < 0 || i+1 >= len(text) {
		return text
	}
	return text[:i] + arg + text[i+2:]
}

// ignoreWrite: a process does not die of an output nobody keeps.
func ignoreWrite(error) error { return nil }

// log takes "lines N" and "lines N every D".
func (p *Proc) log(ctx context.Context, args []string, out io.Writer) (int32, error) {
	if len(args) != 2 && len(args) != 4 || args[0] != "lines" {
		return p.usage("log takes: lines N [every D]")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return p.usage("log: illegal number: %s", args[1])
	}
	for i := 1; i <= n; i++ {
		fmt.Fprintf(out, "line %d\n", i)
		if len(args) == 4 {
			if code, err := p.sleep(ctx, args[3:], nil); err != nil || code != 0 {
				return code, err
			}
		}
	}
	return 0, nil
}

func (p *Proc) id(_ context.Context, args []string, out io.Writer) (int32, error) {
	switch strings.Join(args, " ") {
	case "":
		fmt.Fprintf(out, "uid=%d gid=%d\n", p.UID, p.GID)
	case "-u":
		fmt.Fprintln(out, p.UID)
	case "-g":
		fmt.Fprintln(out, p.GID)
	default:
		return p.usage("id takes -u or -g")
	}
	return 0, nil
}

func (p *Proc) printenv(_ context.Context, args []string, out io.Writer) (int32, error) {
	for _, name := range args {
		v, ok := p.Env[name]
		if !ok {
			return 1, nil
		}
		fmt.Fprintln(out, v)
	}
	return 0, nil
}

func (p *Proc) touch(_ context.Context, args []string, _ io.Writer) (int32, error) {
	return p.each("touch", args, func(name string) error { return p.Files.Write(name, nil, true) })
}

func (p *Proc) rm(_ context.Context, args []string, _ io.Writer) (int32, error) {
	force := false
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		force, args = strings.Contains(args[0], "f"), args[1:]
	}
	return p.each("rm", args, func(name string) error {
		if err := p.Files.Remove(name); !force {
			return err
		}
		return nil
	})
}

func (p *Proc) cat(ctx context.Context, args []string, out io.Writer) (int32, error) {
	if len(args) == 0 {
		return 0, p.copy(ctx, out)
	}
	return p.each("cat", args, func(name string) error {
		data, err := p.Files.Read(name)
		if err == nil {
			_, err = out.Write(data)
			err = ignoreWrite(err)
		}
		return err
	})
}

// copy copies the standard input to its end.
func (p *Proc) copy(ctx context.Context, out io.Writer) error {
	if p.In == nil {
		return nil
	}
	if p.Blocked != nil {
		p.Blocked(true)
		defer p.Blocked(false)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(out, p.In) // whose other end is gone
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stty knows "size" alone.
func (p *Proc) stty(ctx context.Context, args []string, out io.Writer) (int32, error) {
	if len(args) != 1 || args[0] != "size" {
		return p.usage("stty: only size is known")
	}
	if p.Size == nil {
		fmt.Fprintln(p.Err, "stty: standard input: Not a tty")
		return 1, nil
	}
	rows, columns := p.Size(ctx)
	fmt.Fprintln(out, rows, columns)
	return 0, nil
}

func (p *Proc) each(cmd string, names []string, do func(string) error) (code int32, err error) {
	for _, name := range names {
		if err := do(name); err != nil {
			fmt.Fprintf(p.Err, "%s: can't open '%s': %v\n", cmd, name, err)
			code = 1
		}
	}
	return code, nil
}

// test knows -f and -e FILE, -n and -z TEXT, A = B and A != B, and ! before.
func (p *Proc) test(_ context.Context, args []string, _ io.Writer) (int32, error) {
	if n := len(args); n > 0 && args[n-1] == "]" {
		args = args[:n-1]
	}
	not := len(args) > 0 && args[0] == "!"
	if not {
		args = args[1:]
	}
	var ok bool
	switch {
	case len(args) == 2 && (args[0] == "-f" || args[0] == "-e"):
		_, err := p.Files.Read(args[1])
		ok = err == nil
	case len(args) == 2 && args[0] == "-n":
		ok = args[1] != ""
	case len(args) == 2 && args[0] == "-z":
		ok = args[1] == ""
	case len(args) == 3 && args[1] == "=":
		ok = args[0] == args[2]
	case len(args) == 3 && args[1] == "!=":
		ok = args[0] != args[2]
	default:
		return p.usage("test: cannot read %q", args)
	}
	if ok != not {
		return 0, nil
	}
	return 1, nil
}
