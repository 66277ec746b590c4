// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFetchIsBounded: a profile is written whole, and a service that sends without end, or
// breaks off, leaves nothing on the disk. A device that it is written to stays.
func TestFetchIsBounded(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "debug.sock"), filepath.Join(dir, "profile")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/whole":
			_, _ = w.Write(make([]byte, 100))
		case "/endless":
			for _, err := w.Write(make([]byte, 1<<10)); err == nil; _, err = w.Write(make([]byte, 1<<10)) {
				continue
			}
		case "/broken":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write(make([]byte, 50))
		default:
			http.Error(w, "no such profile", http.StatusNotFound)
		}
	})}
	go server.Serve(l)                       //nolint:errcheck // ends with the test
	t.Cleanup(func() { _ = server.Close() }) // with its socket
	null := filepath.Join(dir, "null")
	if err := os.Symlink(os.DevNull, null); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, wrong string }{
		{"/whole", ""},
		{"/endless", "larger than 100 bytes"},
		{"/broken", "unexpected EOF"},
		{"/other", "no such profile"},
	} {
		size, err := fetch(t.Context(), socket, c.path, file, 100)
		if c.wrong == "" {
			if err != nil || size != 100 {
				t.Errorf("%s: %d bytes, %v", c.path, size, err)
			}
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %s", c.path, err, c.wrong)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s leaves a file: %v", c.path, err)
		}
		if _, err := fetch(t.Context(), socket, c.path, null, 100); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s into %s: %v, want %s", c.path, os.DevNull, err, c.wrong)
		}
		if _, err := os.Lstat(null); err != nil {
			t.Errorf("%s removes a device: %v", c.path, err)
		}
	}
}
