// SPDX-License-Identifier: Apache-2.0

package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/deb"
)

// archive is a compressed tar of files: a body that begins with "-> " is a link, and a name
// that ends with "/" a folder.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(files[i+1]))}
		link, linked := strings.CutPrefix(files[i+1], "-> ")
		switch {
		case linked:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		case strings.HasSuffix(files[i], "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// debian is a Debian package with members.
func debian(members ...any) *bytes.Reader {
	out := bytes.NewBufferString("!<arch>\n")
	for i := 0; i < len(members); i += 2 {
		body := members[i+1].([]byte)
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", members[i], 0, 0, 0, "100644", len(body))
		out.Write(body)
		if len(body)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return bytes.NewReader(out.Bytes())
}

// TestUnpack: files, folders and links come where the package has them, over older ones; the
// administrator's stay.
func TestUnpack(t *testing.T) {
	pack := debian("debian-binary", []byte("2.0\n"), "control.tar.gz", archive(t, "./control", "", "./postinst", "#!/bin/sh\n"),
		"data.tar.gz", archive(t, "./usr/lib/sextant/", "", "./usr/lib/sextant/sextant", "new", "./usr/bin/sextant", "-> /usr/lib/sextant/sextant", "./etc/default/sextant", "theirs"))
	root := t.TempDir()
	for path, text := range map[string]string{"usr/bin/sextant": "old", "etc/default/sextant": "mine"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // again is the same
		if err := unpack(pack, root, func(path string) bool { return path == defaults }); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"usr/lib/sextant/sextant": "new", "etc/default/sextant": "mine"} {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "usr/bin/sextant")); err != nil || to != "/usr/lib/sextant/sextant" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if text, err := deb.File(pack, deb.Control, "/postinst"); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("postinst: %q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "*/*/*.sextant-new")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestNotWhole: a file that the package does not hold whole leaves the former one.
func TestNotWhole(t *testing.T) {
	body := make([]byte, 1<<16)
	rand.NewChaCha8([32]byte{}).Read(body) //nolint:errcheck // it cannot fail
	data := archive(t, "./usr/lib/sextant/sextant", string(body))
	root := t.TempDir()
	to := filepath.Join(root, "usr/lib/sextant/sextant")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unpack(debian("data.tar.gz", data[:len(data)/2]), root, func(string) bool { return false }); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if all, _ := os.ReadDir(filepath.Dir(to)); len(all) != 1 {
		t.Errorf("left over: %v", all)
	}
}

// TestNoPackage: what is no package is an error, and nothing is written.
func TestNoPackage(t *testing.T) {
	for name, pack := range map[string]*bytes.Reader{
		"empty": bytes.NewReader(nil), "text": bytes.NewReader([]byte("hello, this is no package")),
		"without files": debian("debian-binary", []byte("2.0\n")), "cut": bytes.NewReader([]byte("!<arch>\ndata.tar.gz     ")),
	} {
		root := t.TempDir()
		if err := unpack(pack, root, func(string) bool { return false }); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, _ := os.ReadDir(root); len(left) > 0 {
			t.Errorf("%s: wrote %v", name, left)
		}
	}
	if _, err := deb.File(debian("control.tar.gz", archive(t, "./control", "")), deb.Control, "/postinst"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a script that is not there: %v", err)
	}
}
