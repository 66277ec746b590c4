// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// looking runs a watch and yields a channel that hears each look; the first one,
// which says that it watches, was heard already.
func looking(t *testing.T, period time.Duration, paths ...string) <-chan struct{} {
	t.Helper()
	looks := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := Run(ctx, Config{
			Paths: paths, Period: period, Quiet: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
			Look: func() { looks <- struct{}{} },
		})
		if err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-looks
	return looks
}

// seen makes a change and waits for a look.
func seen(t *testing.T, looks <-chan struct{}, change func()) {
	t.Helper()
	change()
	select {
	case <-looks:
	case <-time.After(time.Minute):
		t.Fatal("change not seen")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSeesChanges(t *testing.T) {
	cases := map[string]func(t *testing.T, dir string) (path string, change func()){
		"file written": func(t *testing.T, dir string) (string, func()) {
			p := filepath.Join(dir, "f")
			write(t, p, "1")
			return p, func() { write(t, p, "2") }
		},
		"file made": func(t *testing.T, dir string) (string, func()) {
			p := filepath.Join(dir, "f")
			return p, func() { write(t, p, "1") }
		},
		"file replaced": func(t *testing.T, dir string) (string, func()) {
			p := filepath.Join(dir, "f")
			write(t, p, "1")
			return p, func() {
				write(t, p+".new", "2")
				if err := os.Rename(p+".new", p); err != nil {
					t.Fatal(err)
				}
			}
		},
		"file in folder": func(t *testing.T, dir string) (string, func()) {
			return dir, func() { write(t, filepath.Join(dir, "f"), "1") }
		},
		"folder of links swapped": func(t *testing.T, dir string) (string, func()) {
			if err := os.Symlink("nowhere", filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "f"), func() {
				if err := os.Symlink("elsewhere", filepath.Join(dir, "..new")); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, setup := range cases {
		t.Run(name, func(t *testing.T) {
			path, change := setup(t, t.TempDir())
			seen(t, looking(t, time.Hour, path), change)
		})
	}
}

func TestFolderMadeLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	looks := looking(t, time.Hour, dir)
	seen(t, looks, func() {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	seen(t, looks, func() { write(t, filepath.Join(dir, "f"), "1") })
}

func TestPeriodWithoutChange(t *testing.T) {
	looks := looking(t, 5*time.Millisecond, filepath.Join(t.TempDir(), "no", "such", "folder"))
	for range 3 {
		<-looks
	}
}

// TestTellsWhatIsGone: a file that is removed, or moved away, and is back at once;
// not one that another is renamed to, nor one written in place.
func TestTellsWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"renamed-to", "written", "removed", "moved", "last"} {
		write(t, file(name), "1")
	}
	gone, looks := make(chan string, 1000), make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Paths: []string{dir}, Period: time.Hour, Quiet: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
			Look: func() { looks <- struct{}{} }, Gone: func(path string) { gone <- filepath.Base(path) },
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-looks
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(file(from), file(to)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(file(name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, file(".new"), "1")
	rename(".new", "renamed-to")
	write(t, file("written"), "2")
	remove("removed")
	write(t, file("removed"), "1")
	rename("moved", "away")
	rename("away", "moved")
	remove("last")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "last" {
		select {
		case name := <-gone:
			got = append(got, name)
		case <-time.After(time.Minute):
			t.Fatalf("gone so far: %q", got)
		}
	}
	if want := []string{".new", "removed", "moved", "away", "last"}; !slices.Equal(got, want) {
		t.Errorf("gone %q, want %q", got, want)
	}
}

func TestConcerns(t *testing.T) {
	w := &watcher{paths: map[string]bool{"/etc/kubelet/config.yaml": true, "/etc/manifests": true}}
	for name, want := range map[string]bool{
		"/etc/kubelet/config.yaml": true,
		"/etc/kubelet/other":       false,
		"/etc/kubelet/..data":      true,
		"/etc/manifests":           true,
		"/etc/manifests/a.yaml":    true,
		"/etc/manifests/d/a.yaml":  false,
		"/etc/other":               false,
	} {
		if got := w.concerns(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
