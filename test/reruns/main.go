// SPDX-License-Identifier: Apache-2.0

// Command reruns judges the tests that passed only when they were run once more.
//
//	reruns -events FILE -never FILE -ledger FILE
//
// It reads the events of go test -json of all runs (gotestsum --jsonfile), appends a
// line for each such test to the ledger,
//
//	DATE COMMIT PACKAGE TEST
//
// and fails when never.txt names one: a test whose subject is that something never
// happens has shown by its first failure that it does. A TestMain that failed has the
// name TestMain here; gotestsum itself takes a second run of it, without any test, for
// success.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	events := flag.String("events", "", "events of go test -json")
	never := flag.String("never", "test/env/never.txt", "tests that may not fail even once")
	ledger := flag.String("ledger", "bin/reruns.txt", "file to append to")
	flag.Parse()
	if err := run(*events, *never, *ledger); err != nil {
		fmt.Fprintln(os.Stderr, "reruns:", err)
		os.Exit(1)
	}
}

func run(events, never, ledger string) error {
	f, err := os.Open(events)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	again, err := passedLater(f)
	if err != nil || len(again) == 0 {
		return err
	}
	text, err := os.ReadFile(never)
	if err != nil {
		return err
	}
	subjects, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", never, err)
	}
	if err := record(ledger, again); err != nil {
		return err
	}
	if bad := forbidden(again, subjects); len(bad) > 0 {
		return fmt.Errorf("these may not fail even once (%s):\n%s", never, strings.Join(bad, "\n"))
	}
	return nil
}

// testMain stands for a test binary that fails while no test of it does.
const testMain = "TestMain"

// event is one of go test -json (go doc test2json).
type event struct{ Action, Package, Test string }

// passedLater are the tests that failed in one run and passed in the next, as
// "PACKAGE TEST", without those of which a subtest is listed.
func passedLater(r io.Reader) ([]string, error) {
	failing := map[string]int{} // tests that failed in the present run of a package
	failed := map[string]bool{} // ever
	last := map[string]string{} // the outcome of the last run
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("event %q: %w", scanner.Text(), err)
		}
		name := e.Package + " " + e.Test
		if e.Test == "" {
			name = e.Package + " " + testMain
		}
		switch {
		case e.Action == "start":
			failing[e.Package] = 0
		case e.Action == "pass":
			last[name] = e.Action
		case e.Action == "fail" && (e.Test != "" || failing[e.Package] == 0):
			failing[e.Package]++
			failed[name], last[name] = true, e.Action
		}
	}
	var again []string
	for name := range failed {
		parent := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if last[name] == "pass" && !slices.ContainsFunc(keys(failed), parent) {
			again = append(again, name)
		}
	}
	slices.Sort(again)
	return again, scanner.Err()
}

func keys(set map[string]bool) []string {
	all := make([]string, 0, len(set))
	for k := range set {
		all = append(all, k)
	}
	return all
}

// parse reads never.txt: lines of PACKAGE TEST, regular expressions that match the end
// of an import path, and the beginning of a test's name up to a slash.
func parse(text string) ([]*regexp.Regexp, error) {
	var all []*regexp.Regexp
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pkg, test, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%q: not PACKAGE TEST", line)
		}
		subject, err := regexp.Compile("(^|/)(" + pkg + ") (" + test + ")(/|$)")
		if err != nil {
			return nil, err
		}
		all = append(all, subject)
	}
	return all, nil
}

// forbidden are those that a line of never.txt names.
func forbidden(again []string, subjects []*regexp.Regexp) []string {
	var bad []string
	for _, name := range again {
		if slices.ContainsFunc(subjects, func(s *regexp.Regexp) bool { return s.MatchString(name) }) {
			bad = append(bad, name)
		}
	}
	return bad
}

// record appends a line for each test.
func record(ledger string, again []string) error {
	if err := os.MkdirAll(filepath.Dir(ledger), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	for _, name := range again {
		if _, err := fmt.Fprintln(f, time.Now().UTC().Format(time.RFC3339), strings.TrimSpace(string(commit)), name); err != nil {
			return err
		}
	}
	return f.Close()
}
