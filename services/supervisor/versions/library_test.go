// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func library(t *testing.T, versions ...string) Library {
	t.Helper()
	l := Library{Dir: t.TempDir()}
	for _, v := range versions {
		dir := filepath.Join(l.Dir, "versions", v)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sextant"), []byte(v), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestSwitch(t *testing.T) {
	l := library(t, "1", "2")
	for _, step := range []struct{ to, current, previous string }{
		{"1", "1", ""}, {"2", "2", "1"}, {"2", "2", "1"}, {"1", "1", "2"},
	} {
		if err := l.Switch("pleg", step.to); err != nil {
			t.Fatal(err)
		}
		if c, p := l.Current("pleg"), l.Previous("pleg"); c != step.current || p != step.previous {
			t.Errorf("after %s: %q before it %q, want %q and %q", step.to, c, p, step.current, step.previous)
		}
		if text, err := os.ReadFile(filepath.Join(l.Dir, "pleg")); err != nil || string(text) != step.to {
			t.Errorf("the link leads to %q, %v", text, err)
		}
	}
	if l.Current("prober") != "" {
		t.Error("another service was switched")
	}
}

// TestTry: until it is judged, a version on trial has one to go back to; one that failed is
// never the one to roll back to.
func TestTry(t *testing.T) {
	l := library(t, "1", "2")
	check := func(when, current, previous, trial string) {
		t.Helper()
		if c, p, o := l.Current("pleg"), l.Previous("pleg"), l.OnTrial("pleg"); c != current || p != previous || o != trial {
			t.Errorf("%s: %q, before it %q, in place of %q; want %q, %q and %q", when, c, p, o, current, previous, trial)
		}
	}
	do := func(when string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	do("first", l.Try("pleg", "1"))
	check("first", "1", "", "")
	do("on trial", l.Try("pleg", "2"))
	check("on trial", "2", "1", "1")
	do("killed, and again", l.Try("pleg", "2"))
	check("killed, and again", "2", "1", "1")
	do("back", l.Back("pleg", "1"))
	check("back", "1", "1", "")
	do("on trial again", l.Try("pleg", "2"))
	do("judged", l.Judged("pleg"))
	check("judged", "2", "1", "")
	if err := l.Try("pleg", "3"); err == nil {
		t.Error("a version that is not there is tried")
	}
	check("no such version", "2", "1", "")
}

func TestSwitchToNothing(t *testing.T) {
	l := library(t, "1")
	if err := l.Switch("pleg", "3"); err == nil || !strings.Contains(err.Error(), `"3" is not installed: there are [1]`) {
		t.Errorf("%v", err)
	}
	if _, err := (Library{Dir: t.TempDir()}).Installed(); err == nil {
		t.Error("an empty library has versions")
	}
}

func TestExecuted(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/lib/sextant/versions/0.2.0/sextant":           "0.2.0",
		"/usr/lib/sextant/versions/0.2.0/sextant (deleted)": "0.2.0",
		"/usr/lib/systemd/systemd":                          "",
		"/usr/bin/dash":                                     "",
		"/usr/bin/sextant":                                  "",
		"":                                                  "",
	} {
		if got, ok := Executed(path); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t; want %q", path, got, ok, want)
		}
	}
}
