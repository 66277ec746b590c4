// Package atomic replaces the files of a folder in one step, in the layout that
// the kubelet's users know: a data folder named after the time, a symlink
// "..data" to it that is swapped by rename, and for each top-level name a
// symlink into "..data". A reader that opened a file goes on reading the old
// one; a new reader sees all of the new ones.
//
// It comes back from any crash: a data folder that "..data" does not name is
// left over and removed by the next write.
package atomic

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	dataLink = "..data"
	newLink  = "..data_tmp"
)

// File is one file of a folder.
type File struct {
	Data []byte
	Mode fs.FileMode
	// UID and GID own the file.
	UID, GID int
}

// Write makes dir hold exactly these files, by relative path. It reports whether
// anything changed.
func Write(dir string, files map[string]File, now time.Time) (changed bool, err error) {
	for name := range files {
		if err := checkName(name); err != nil {
			return false, err
		}
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if current != "" && same(filepath.Join(dir, current), files) {
		return false, errors.Join(link(dir, files), sweep(dir, current, files))
	}
	fresh, err := os.MkdirTemp(dir, now.UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return false, err
	}
	if err := fill(fresh, files); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	swap := filepath.Join(dir, newLink)
	if err := os.Remove(swap); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.Symlink(filepath.Base(fresh), swap); err != nil {
		return false, err
	}
	if err := os.Rename(swap, filepath.Join(dir, dataLink)); err != nil {
		return false, err
	}
	return true, errors.Join(link(dir, files), sweep(dir, filepath.Base(fresh), files))
}

// checkName refuses what would leave the folder or hide its own entries.
func checkName(name string) error {
	switch {
	case name == "" || path.IsAbs(name):
		return fmt.Errorf("path %q: want a relative path", name)
	case path.Clean(name) != name:
		return fmt.Errorf("path %q: want it clean", name)
	case strings.HasPrefix(name, ".."):
		return fmt.Errorf("path %q: must not begin with ..", name)
	}
	return nil
}

func fill(dir string, files map[string]File) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.Data, f.Mode); err != nil {
			return err
		}
		// Chown first: it clears bits that chmod sets.
		if err := errors.Join(os.Lchown(full, f.UID, f.GID), os.Chmod(full, f.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// same tells whether a data folder holds exactly these files.
func same(dir string, files map[string]File) bool {
	seen := 0
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		f, ok := files[filepath.ToSlash(rel)]
		if !ok {
			return fs.ErrExist
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !bytes.Equal(data, f.Data) || info.Mode().Perm() != f.Mode.Perm() {
			return fs.ErrExist
		}
		seen++
		return nil
	})
	return err == nil && seen == len(files)
}

func tops(files map[string]File) map[string]bool {
	all := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		all[top] = true
	}
	return all
}

// link makes the names a user sees.
func link(dir string, files map[string]File) error {
	for top := range tops(files) {
		name, target := filepath.Join(dir, top), path.Join(dataLink, top)
		if have, err := os.Readlink(name); err == nil && have == target {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(target, name); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes names that no file has any more and data folders left over.
func sweep(dir, current string, files map[string]File) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	wanted := tops(files)
	var all []error
	for _, e := range entries {
		switch name := e.Name(); {
		case name == dataLink || name == current || wanted[name]:
		case strings.HasPrefix(name, ".."), e.Type()&fs.ModeSymlink != 0:
			all = append(all, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	return errors.Join(all...)
}
