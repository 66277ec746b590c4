// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/test/compat/seen"
)

// TestPage: the page is what the command prints of the runs that are kept.
func TestPage(t *testing.T) {
	runs, err := load("../../docs/compatibility.jsonl")
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	want, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	if page(runs) != string(want) {
		t.Error("docs/compatibility.md is not what its runs give: go run ./test/compat")
	}
}

// TestNewest: a later run of the same takes the place of an earlier one, whatever was run
// otherwise stays.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(seen.File, filepath.Join(dir, "seen.jsonl"))
	write := func(commit, tests string, with ...string) {
		t.Helper()
		var n seen.Notes
		for _, part := range with {
			n.Add(part)
			n.Add(part)
		}
		if err := n.Write("e2e", commit, tests); err != nil {
			t.Fatal(err)
		}
	}
	write("c1", "", "containerd v2.4.2", "API server v1.36.3")
	write("c2", "-run=X", "containerd v2.4.2")
	write("c3", "", "containerd 1.6.20")
	add, err := load(filepath.Join(dir, "seen.jsonl"))
	if err != nil || len(add) != 3 {
		t.Fatalf("%d runs, %v", len(add), err)
	}
	later := add[0]
	later.Commit, later.Time = "c4", later.Time.AddDate(0, 0, 1)
	got := newest(append(add, later))
	text := page(got)
	if len(got) != 3 || strings.Contains(text, "c1") || !strings.Contains(text, "API server v1.36.3, containerd v2.4.2 | c4, ") || !strings.Contains(text, "e2e `-run=X`") {
		t.Errorf("%d runs:\n%s", len(got), text)
	}
	if _, err := seen.Read([]byte("no JSON\n")); err == nil {
		t.Error("what is no run has no error")
	}
}

// TestRun: runs are kept and the page is written.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	add, keep, out := filepath.Join(dir, "add"), filepath.Join(dir, "keep"), filepath.Join(dir, "page.md")
	if err := os.WriteFile(add, []byte(`{"package":"e2e","commit":"c1","time":"2026-01-02T03:04:05Z","system":"Debian","kernel":"6","arch":"amd64","cgroup":"v2","with":["x"]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again is the same
		if err := run(add, keep, out); err != nil {
			t.Fatal(err)
		}
	}
	if runs, err := load(keep); err != nil || len(runs) != 1 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), "| e2e | Debian | 6 | v2 | amd64 | x | c1, 2026-01-02 |") {
		t.Errorf("%v\n%s", err, text)
	}
	if err := run(filepath.Join(dir, "none"), keep, out); err == nil {
		t.Error("no run to add, and no error")
	}
}
