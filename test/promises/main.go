// SPDX-License-Identifier: Apache-2.0

// Command promises runs the tests and benchmarks that show what this project promises its
// users, and prints a table: what, the bound, what was measured, and whether it is met.
//
//	go run ./test/promises             a look (root, the real parts of test/env)
//	go run ./test/promises -full       as many kills as promised
//	go run ./test/promises -only=REGEXP
//
// It ends with 1 when a promise is broken that was kept, or when something is worse than
// its ratchet; promises that are known not to be kept yet are listed as such. Figures of a
// machine that does other things at the same time are upper bounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(promises()) }

// promises returns what the program ends with.
func promises() int {
	full := flag.Bool("full", false, "the whole of what takes long")
	only := flag.String("only", "", "only promises whose text matches this")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "promises: -only:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var rows []row
	for _, s := range shows(*full) {
		if !slices.ContainsFunc(s.promises, func(p promise) bool { return wanted.MatchString(p.what) }) {
			continue
		}
		if len(s.args) == 0 {
			rows = append(rows, s.judge("", true)...)
			continue
		}
		began := time.Now()
		fmt.Fprintln(os.Stderr, "==", s)
		output, passed := s.run(ctx)
		fmt.Fprintf(os.Stderr, "   %s\n", time.Since(began).Round(time.Second))
		judged := s.judge(output, passed)
		if slices.ContainsFunc(judged, func(r row) bool { return r.state.fails() }) {
			fmt.Fprint(os.Stderr, output)
		}
		rows = append(rows, judged...)
	}
	fmt.Print(table(rows))
	if slices.ContainsFunc(rows, func(r row) bool { return r.state.fails() }) {
		return 1
	}
	return 0
}

// run runs the test and returns what it printed.
func (s show) run(ctx context.Context) (output string, passed bool) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout=3h"}, s.args...)...)
	cmd.Dir = s.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up
	cmd.WaitDelay = time.Minute
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func (s show) String() string {
	text := "go test " + strings.Join(s.args, " ")
	if s.dir != "" {
		text = "cd " + s.dir + " && " + text
	}
	return text
}
