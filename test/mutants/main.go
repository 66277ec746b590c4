// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/standin"
)

func main() {
	os.Exit(command())
}

// command is the program; it returns the exit code.
func command() int {
	chosen := flag.String("run", "", "regular expression for the names of the mutants")
	parallel := flag.Int("parallel", 2, "mutants at a time")
	out := flag.String("out", "", "file for the table, with the commit, the date and the machine")
	timeout := flag.Duration("timeout", 5*time.Minute, "limit of one run of tests; a mutant that exceeds it is invalid")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *chosen, *out, *parallel, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	return 0
}

// run tests all chosen mutants and prints a line for each. It is called at the root
// of the repository. out is the file for the table of them all, empty for none.
func run(ctx context.Context, chosen, out string, parallel int, timeout time.Duration) error {
	head, err := header(ctx)
	if err != nil {
		return err
	}
	names, err := regexp.Compile(chosen)
	if err != nil {
		return err
	}
	all, err := load(filepath.Join("test", "mutants"))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !names.MatchString(m.name) })
	r := runner{timeout: timeout, slots: make(chan struct{}, parallel), intact: map[string]func() error{}}
	if r.dir, err = os.MkdirTemp("", "mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir) //nolint:errcheck // a temporary folder
	var lines sync.Mutex
	var group sync.WaitGroup
	var failed []string
	table := make([]string, len(all))
	for _, m := range all {
		key := strings.Join(m.test, " ")
		if r.intact[key] == nil {
			r.intact[key] = sync.OnceValue(func() error { return r.unmutated(ctx, m.test) })
		}
	}
	for i, m := range all {
		group.Go(func() {
			v := r.try(ctx, m)
			lines.Lock()
			defer lines.Unlock()
			table[i] = fmt.Sprintf("%-9s %-32s %s\n", v.outcome, m.name, v.detail)
			fmt.Printf("%5.1f s  %s", v.took.Seconds(), table[i])
			if v.outcome != killed {
				failed = append(failed, m.name)
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	slices.Sort(failed)
	result := fmt.Sprintf("%d mutants, %d killed\n", len(all), len(all)-len(failed))
	fmt.Print(result)
	if out != "" {
		if err := os.WriteFile(out, []byte(head+result+"\n"+strings.Join(table, "")), 0o600); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// header says which program a table is of, when it was made and on what, as those of
// the end-to-end tests do.
func header(ctx context.Context) (string, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	recent, _, _ := strings.Cut(string(load), " ")
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return fmt.Sprintf("commit %s, %s, %d cores, Linux %s, load %s\n", strings.TrimSpace(string(commit)), time.Now().UTC().Format(time.RFC3339),
		runtime.NumCPU(), unix.ByteSliceToString(name.Release[:]), recent), nil
}

// outcome of one mutant.
type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	invalid  outcome = "INVALID" // no test judged it: see verdict.detail
)

type verdict struct {
	outcome outcome
	took    time.Duration
	detail  string // the tests that failed, or the promise that no test looks at
}

type runner struct {
	dir     string
	timeout time.Duration
	slots   chan struct{}
	intact  map[string]func() error // by arguments of go test: why they fail without a mutant
}

// unmutated fails when tests fail on the tree as it is.
func (r runner) unmutated(ctx context.Context, test []string) error {
	if out, err := r.test(ctx, test); err != nil {
		return fmt.Errorf("without a mutant: %w\n%s", err, tail(out))
	}
	return nil
}

// try runs the tests with one mutant in place.
func (r runner) try(ctx context.Context, m mutant) verdict {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	overlay, err := r.overlay(m)
	if err == nil {
		err = r.intact[strings.Join(m.test, " ")]()
	}
	if err != nil {
		return verdict{outcome: invalid, detail: err.Error()}
	}
	began := time.Now()
	out, err := r.test(ctx, append([]string{"-overlay=" + overlay}, m.test...))
	v := judge(out, err)
	v.took = time.Since(began)
	if v.outcome == survived {
		v.detail = "no test looks at: " + m.promise
	}
	return v
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// judge reads what go test printed and how it ended.
func judge(out string, err error) verdict {
	switch failed := failedTest.FindAllStringSubmatch(out, -1); {
	case err == nil:
		return verdict{outcome: survived}
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return verdict{outcome: invalid, detail: tail(out)}
	case len(failed) > 0:
		by := "by " + failed[0][1]
		if len(failed) > 1 {
			by += fmt.Sprintf(" and %d more", len(failed)-1)
		}
		return verdict{outcome: killed, detail: by}
	case strings.Contains(out, "panic: test timed out"):
		return verdict{outcome: invalid, detail: "no test fails: the time limit ends them"}
	case strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: "):
		return verdict{outcome: killed, detail: "by a panic"}
	}
	return verdict{outcome: invalid, detail: fmt.Sprintf("go test: %v: %s", err, tail(out))}
}

// overlay writes the changed file and the list that puts it in the place of the file.
func (r runner) overlay(m mutant) (string, error) {
	place, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(place)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(source))
	if err != nil {
		return "", err
	}
	at := filepath.Join(r.dir, m.name)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{place: at + ".go"}})
	if err != nil {
		return "", err
	}
	return at + ".json", errors.Join(os.WriteFile(at+".go", []byte(changed), 0o600), os.WriteFile(at+".json", list, 0o600))
}

// test runs go test. Analysis is left out: it would reject a mutant before a test does.
func (r runner) test(ctx context.Context, args []string) (string, error) {
	args = append([]string{"test", "-vet=off", "-timeout=" + r.timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", standin.LimitVariable, r.timeout*2/5)) // what fails says so
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tail is the end of an output, where the reason is.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
