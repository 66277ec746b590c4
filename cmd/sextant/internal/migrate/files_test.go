// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files of a machine with the package's, and one of the administrator's.
func files(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{Etc: filepath.Join(dir, "etc"), Package: filepath.Join(dir, "package"), Mark: filepath.Join(dir, "mark")}
	for _, folder := range []string{f.Etc + "/kubelet.service.d", f.Package} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	source := "../../../../deploy/kubelet"
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		copyTo(t, filepath.Join(source, e.Name()), filepath.Join(f.Package, e.Name()))
	}
	copyTo(t, filepath.Join(source, "part.conf"), f.Etc+"/kubelet.service.d/20-own.conf")
	return f
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree are the files below Etc; each link leads to a file.
func tree(t *testing.T, f Files) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(f.Etc, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = os.Stat(path)
			all = append(all, strings.TrimPrefix(path, f.Etc+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFiles: what is written can be written again, is removed whole, and nothing of others
// with it.
func TestFiles(t *testing.T) {
	const own = "kubelet.service.d/20-own.conf"
	common := []string{own, "kubelet.service.d/99-sextant.conf", "sextant-.service.d/10-kubelet.conf", "sextant-.socket.d/10-kubelet.conf", "sextant.slice.d/10-kubelet.conf"}
	for _, tt := range []struct {
		name  string
		alone bool
		args  []string
		want  []string
	}{
		{"a node that kubeadm joined", false, nil, common},
		{"no kubelet is installed", true, nil, append([]string{"kubelet.service"}, common...)},
		{"flags of its own", false, []string{"--v=2"}, append(slices.Clone(common), "sextant-prepare.service.d/50-kubelet-flags.conf")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := files(t)
			if !f.Installed() || f.Sextant() {
				t.Fatalf("installed %t, Sextant %t", f.Installed(), f.Sextant())
			}
			for range 2 {
				if err := f.Write(tt.alone, tt.args); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(tt.want)
			if got := tree(t, f); !slices.Equal(got, tt.want) || !f.Sextant() {
				t.Errorf("there are %q, want %q", got, tt.want)
			}
			for range 2 {
				if err := f.Remove(); err != nil {
					t.Fatal(err)
				}
			}
			if got := tree(t, f); !slices.Equal(got, []string{own}) || f.Sextant() {
				t.Errorf("left: %q", got)
			}
		})
	}
}

// TestFilesOfOthers: a file that somebody else put in the place of a link is not replaced.
func TestFilesOfOthers(t *testing.T) {
	f := files(t)
	path := filepath.Join(f.Etc, handle)
	copyTo(t, filepath.Join(f.Package, "part.conf"), path)
	if err := f.Write(false, nil); err == nil {
		t.Error("a file of somebody else's was replaced")
	}
	if err := f.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestQuote: a word of a command line as systemd reads it.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"--v=2":                       `"--v=2"`,
		`--node-labels=a="b c",d=\e`:  `"--node-labels=a=\"b c\",d=\\e"`,
		"--hostname-override=$HOME%h": `"--hostname-override=$$HOME%%h"`,
	} {
		if got := quote(word); got != want {
			t.Errorf("%s becomes %s, want %s", word, got, want)
		}
	}
}
