// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// machine has version 1, and programs that are these scripts, by their paths; pack is a
// package of version 2.
func machine(t *testing.T, scripts map[string]string) (r *Request, pack *os.File) {
	t.Helper()
	r = &Request{Version: "2", Out: &bytes.Buffer{}, root: t.TempDir()}
	files := map[string]string{"usr/lib/sextant/version": "1\n", "var/lib/dpkg/status": "", "run/x": ""}
	for path, script := range scripts {
		files[path] = "#!/bin/sh\ncd " + r.root + "\n" + script
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(r.at(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.at(path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pack, err := os.Create(r.at("package"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pack.Close() }) // only read
	return r, pack
}

// unpacks is what dpkg does before it runs the package's script.
const unpacks = "echo 2 >usr/lib/sextant/version\n"

// TestFailedPackage: a package whose script fails, because a part went back to its former
// version, is not installed, however often it is tried; one that is installed is left alone.
func TestFailedPackage(t *testing.T) {
	r, pack := machine(t, map[string]string{"usr/bin/dpkg": unpacks + "[ -e good ]\n"})
	for range 2 {
		if err := r.onMachine(t.Context(), pack); err == nil {
			t.Fatal("no error")
		}
	}
	if err := os.WriteFile(r.at("good"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.onMachine(t.Context(), pack); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.at("good")); err != nil {
		t.Fatal(err)
	}
	if err := r.onMachine(t.Context(), pack); err != nil {
		t.Errorf("installed already: %v", err)
	}
}

// TestEndedInstaller: a pod that is deleted meanwhile has dpkg come to its end; a migration
// that has begun is told, and one that has not does not.
func TestEndedInstaller(t *testing.T) {
	const counts = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done\n"
	waits := func(name string) string { return "echo " + name + "\nread -r line <fifo\n" + counts + "echo ended\n" }
	for name, tt := range map[string]struct {
		scripts map[string]string
		want    string
	}{
		"dpkg":      {map[string]string{"usr/bin/dpkg": unpacks + waits("dpkg"), "usr/bin/sextant": "echo migrate\n"}, "dpkg\nended\n"},
		"migration": {map[string]string{"usr/bin/dpkg": unpacks, "usr/bin/sextant": "trap 'echo back; exit 1' TERM\n" + waits("migrate")}, "migrate\nback\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, pack := machine(t, tt.scripts)
			r.Migrate = true
			if err := syscall.Mkfifo(r.at("fifo"), 0o600); err != nil {
				t.Fatal(err)
			}
			way, err := os.OpenFile(r.at("fifo"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer way.Close() //nolint:errcheck // nothing is kept in it
			ctx, end := context.WithCancel(t.Context())
			said := &listener{heard: func() {
				end()
				_, _ = way.WriteString("go on\n") // it is read or not
			}}
			r.Out = said
			if err := r.onMachine(ctx, pack); err == nil || !strings.HasPrefix(said.said.String(), tt.want) || strings.HasSuffix(said.said.String(), "migrate\n") {
				t.Errorf("%v; it said %q", err, said.said.String())
			}
		})
	}
}

// listener keeps what is written, and says so the first time.
type listener struct {
	said  strings.Builder
	heard func()
}

func (l *listener) Write(p []byte) (int, error) {
	if l.said.Len() == 0 {
		l.heard()
	}
	return l.said.Write(p)
}
