// SPDX-License-Identifier: Apache-2.0

package file

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/config/internal/merge"
)

const good = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, image: registry.local/c:1}]}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	// As an editor does it: the file appears whole.
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, path string, period time.Duration) (*Source, func(ok func(merge.Listing) bool) merge.Listing) {
	t.Helper()
	changed := make(chan struct{}, 1000)
	s := New(Config{
		Path: path, Node: "n1", Period: period, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Changed: func() { changed <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s, func(ok func(merge.Listing) bool) merge.Listing {
		t.Helper()
		limit := time.After(time.Minute)
		for {
			if l := s.Listing(); ok(l) {
				return l
			}
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("listing stays %+v", s.Listing())
			}
		}
	}
}

// names are the pods of a listing, and the origins of its problems.
func names(l merge.Listing) string {
	var all []string
	for _, e := range l.Entries {
		if e.Problem != nil {
			all = append(all, "!"+filepath.Base(e.Origin))
		}
		for _, p := range e.Pods {
			all = append(all, p.Name)
		}
	}
	return strings.Join(all, " ")
}

func is(want string) func(merge.Listing) bool {
	return func(l merge.Listing) bool { return l.Heard && l.Err == "" && names(l) == want }
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), fmt.Sprintf(good, "db"))
	write(t, filepath.Join(dir, ".hidden.yaml"), fmt.Sprintf(good, "hidden"))
	s, until := start(t, dir, time.Hour) // inotify alone
	first := until(is("db-n1"))
	if first.Entries[0].Pods[0].UID == "" {
		t.Error("pod without uid")
	}

	write(t, filepath.Join(dir, "a.yaml"), fmt.Sprintf(good, "web"))
	second := until(is("web-n1 db-n1"))
	if second.Entries[1].Pods[0] != first.Entries[0].Pods[0] {
		t.Error("an unchanged file gave another pod")
	}
	write(t, filepath.Join(dir, "a.yaml"), "spec: [")
	until(is("!a.yaml db-n1"))
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	until(is("db-n1"))

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	until(is(""))
	_ = s
}

func TestSingleFileThatAppearsLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod.yaml")
	_, until := start(t, path, time.Hour)
	until(is(""))
	write(t, path, fmt.Sprintf(good, "web"))
	until(is("web-n1"))
}

func TestPeriodIsEnough(t *testing.T) {
	// The target of a link is edited in place: inotify on the folder is silent.
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "pod.yaml")
	write(t, elsewhere, fmt.Sprintf(good, "web"))
	if err := os.Symlink(elsewhere, filepath.Join(dir, "pod.yaml")); err != nil {
		t.Fatal(err)
	}
	_, until := start(t, dir, 10*time.Millisecond)
	until(is("web-n1"))
	write(t, elsewhere, fmt.Sprintf(good, "db"))
	until(is("db-n1"))
}

// TestIgnored: what has no effect in a file is said beside its pod, with file and field.
func TestIgnored(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	s := New(Config{Path: dir, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct{ text, field, message string }{
		{fmt.Sprintf(good, "x") + "status: {nonsense: 1}\n", "status.nonsense", `unknown field "status.nonsense"`},
		{fmt.Sprintf(good, "x") + "kind: Pod\n", "kind", `key "kind" already set`},
		{fmt.Sprintf(good, "x") + "---\n" + fmt.Sprintf(good, "y"), "", "more than one YAML document"},
	} {
		write(t, path, c.text)
		s.update(list(dir))
		l := s.Listing()
		if got := names(l); got != "x-n1" {
			t.Errorf("listing %q, want x-n1 alone", got)
			continue
		}
		if i := l.Entries[0].Ignored; i == nil || i.Origin != path || i.Field != c.field || !strings.Contains(i.Message, c.message) {
			t.Errorf("ignored %+v, want field %q and message with %q", i, c.field, c.message)
		}
	}
	write(t, path, fmt.Sprintf(good, "x"))
	s.update(list(dir))
	if i := s.Listing().Entries[0].Ignored; i != nil {
		t.Errorf("still ignored: %+v", i)
	}
}

// TestBadFiles puts each kind of bad file beside a good one: one problem that
// names the file and the field, and the good one goes on.
func TestBadFiles(t *testing.T) {
	link := func(to string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, path, text) }
	}
	cases := map[string]struct {
		make           func(t *testing.T, path string)
		field, message string
	}{
		"syntax error": {content("apiVersion: v1\nkind: Pod\nmetadata: {name: x\n"), "", "not valid YAML"},
		"json error":   {content(`{"apiVersion": "v1", "kind": "Pod",`), "", ""},
		"wrong type":   {content("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostNetwork: many}\n"), "spec.hostNetwork", ""},
		"no name":      {content(fmt.Sprintf(good, `""`)), "metadata.name", "Required"},
		"no kind":      {content("metadata: {name: x}\n"), "kind", "Required"},
		"other kind":   {content("apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"), "", "want v1, Pod"},
		"list":         {content("apiVersion: v1\nkind: PodList\nitems: []\n"), "", "one Pod"},
		"no image":     {content("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c}]}\n"), "spec.containers[0].image", "Required"},
		"secret": {content("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}], volumes: [{name: v, secret: {secretName: s}}]}\n"),
			"spec.volumes[0].secret", "may not"},
		"empty":         {content(""), "", "empty"},
		"binary":        {content("\x00\x01\xff\xfe\x80"), "", ""},
		"too large":     {content(fmt.Sprintf(good, "x") + "#" + strings.Repeat("x", 10<<20)), "", "larger than 10 MiB"},
		"link loop":     {link("bad.yaml"), "", "too many levels of symbolic links"},
		"dangling link": {link("nowhere"), "", "no such file"},
		"folder": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(path, "c.yaml"), fmt.Sprintf(good, "nested"))
		}, "", "is a folder"},
		"fifo": {func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "", "not a regular file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "bad.yaml")
			c.make(t, path)
			write(t, filepath.Join(dir, "good.yaml"), fmt.Sprintf(good, "web"))
			s := New(Config{Path: dir, Node: "n1", Log: slog.New(slog.DiscardHandler)})
			if !s.update(list(dir)) {
				t.Fatal("the first listing is no change")
			}
			l := s.Listing()
			if got := names(l); got != "!bad.yaml web-n1" {
				t.Fatalf("listing %q", got)
			}
			p := l.Entries[0].Problem
			if p.Origin != path || p.Field != c.field || !strings.Contains(p.Message, c.message) || strings.Contains(p.Message, "\n") {
				t.Errorf("problem %+v, want field %q and message with %q", p, c.field, c.message)
			}
			if s.update(list(dir)) {
				t.Error("the same listing is a change")
			}
		})
	}
}

// TestRemovedAndWrittenAgain: no reading lacks the file, and its entry tells all
// the same, once for each time.
func TestRemovedAndWrittenAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1, 0)
	path, other := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, path, fmt.Sprintf(good, "web"))
	write(t, other, fmt.Sprintf(good, "db"))
	s := New(Config{Path: dir, Node: "n1", Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	want := func(changed bool, rewritten time.Time) {
		t.Helper()
		if got := s.update(list(dir)); got != changed {
			t.Errorf("changed %v, want %v", got, changed)
		}
		all := s.Listing().Entries
		if len(all) != 2 || !all[0].Rewritten.Equal(rewritten) || !all[1].Rewritten.IsZero() || len(all[0].Pods) != 1 {
			t.Errorf("entries %+v, want the first rewritten at %v", all, rewritten)
		}
	}
	want(true, time.Time{})
	s.removed(path)
	s.removed(filepath.Join(dir, "a.yaml.tmp")) // what an editor renamed to it
	want(true, now)
	at := now
	now = now.Add(time.Second)
	want(false, at)
	s.removed(path)
	want(true, now)
	// Seen removed, it begins by appearing.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.removed(path)
	s.update(list(dir))
	s.removed(path) // heard of late
	write(t, path, fmt.Sprintf(good, "web"))
	want(true, time.Time{})
}

func TestUnlistablePathIsNotHeard(t *testing.T) {
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Path: loop, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	s.update(list(loop))
	if l := s.Listing(); l.Heard || !strings.Contains(l.Err, "symbolic links") {
		t.Errorf("listing %+v", l)
	}
}

// FuzzDecode: whatever a file holds, it is one pod or one problem.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(good, "web")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}`))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("---\n...\n---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := Decode("/m/a.yaml", "n1", data)
		if (e.Problem == nil) != (len(e.Pods) == 1) || len(e.Pods) > 1 {
			t.Fatalf("%d pods, problem %v", len(e.Pods), e.Problem)
		}
		if e.Problem != nil {
			if e.Problem.Message == "" || e.Problem.Origin != "/m/a.yaml" || bytes.ContainsRune([]byte(e.Problem.Message), '\n') {
				t.Fatalf("problem %+v", e.Problem)
			}
			return
		}
		p := e.Pods[0]
		if p.UID == "" || p.Name == "" || p.Namespace == "" || p.Spec.NodeName != "n1" {
			t.Fatalf("pod not ready to run: %v", p.ObjectMeta)
		}
		if wire, err := p.Marshal(); err != nil || len(wire) == 0 {
			t.Fatalf("pod does not marshal: %v", err)
		}
	})
}
