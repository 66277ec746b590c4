// SPDX-License-Identifier: Apache-2.0

// Package atomic replaces the files of a folder in one step, in the layout that
// the kubelet's users know: a data folder named after the time, a symlink
// "..data" to it that is swapped by rename, and for each top-level name a
// symlink into "..data". A reader that opened a file goes on reading the old
// one; a new reader sees all of the new ones.
//
// It comes back from any crash: a data folder that "..data" does not name is
// left over and removed by the next write, and one that "..data" names but that
// does not hold what it should (a power cut) is replaced.
package atomic

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/mounts"
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

// Folder is where files are kept, and whose it is. The folders in it have the same owner,
// and its links; but the link to a file belongs to the file's user, as a kubelet's.
type Folder struct {
	Path     string
	UID, GID int
	// Root is the mode of the folder itself, Mode that of the folders in it.
	Root, Mode fs.FileMode
}

// Written reports whether a folder was written whole at least once.
func Written(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, dataLink))
	return err == nil && info.IsDir()
}

// Write makes the folder, which exists, hold exactly these files, by relative
// path. It reports whether anything changed.
func (f Folder) Write(files map[string]File, now time.Time) (changed bool, err error) {
	if err := checkNames(files); err != nil {
		return false, err
	}
	current, err := os.Readlink(filepath.Join(f.Path, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if current != "" && same(filepath.Join(f.Path, current), files) {
		return false, errors.Join(f.show(files), f.sweep(current, files))
	}
	if current, err = f.swap(files, now); err != nil {
		return false, err
	}
	return true, f.sweep(current, files)
}

// show makes the names a user sees, in a folder that the user may enter.
func (f Folder) show(files map[string]File) error {
	return errors.Join(f.own(f.Path, f.Root), f.link(files))
}

// swap writes a new data folder and makes it the current one. The names come before that:
// what has a current one counts as written, whenever the process ends.
func (f Folder) swap(files map[string]File, now time.Time) (name string, err error) {
	fresh, err := os.MkdirTemp(f.Path, now.UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	if err = f.fill(fresh, files); err == nil {
		err = f.show(files)
	}
	if err != nil {
		return "", errors.Join(err, mounts.RemoveTree(fresh))
	}
	link := filepath.Join(f.Path, newLink)
	if err := mounts.RemoveTree(link); err != nil {
		return "", err
	}
	name = filepath.Base(fresh)
	if err := f.symlink(name, link, f.UID); err != nil {
		return "", err
	}
	return name, os.Rename(link, filepath.Join(f.Path, dataLink))
}

// checkNames refuses what would leave the folder, hide its own entries, or be a
// file and a folder at once.
func checkNames(files map[string]File) error {
	for name := range files {
		switch {
		case name == "" || path.IsAbs(name):
			return fmt.Errorf("path %q: want a relative path", name)
		case path.Clean(name) != name || name == ".":
			return fmt.Errorf("path %q: want it clean", name)
		case strings.HasPrefix(name, ".."):
			return fmt.Errorf("path %q: two dots at its beginning are not allowed", name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, both := files[dir]; both {
				return fmt.Errorf("path %q: %q is a file", name, dir)
			}
		}
	}
	return nil
}

func (f Folder) own(dir string, mode fs.FileMode) error {
	// Chown first: it clears bits that chmod sets.
	return errors.Join(os.Lchown(dir, f.UID, f.GID), os.Chmod(dir, mode))
}

func (f Folder) symlink(target, name string, uid int) error {
	if err := os.Symlink(target, name); err != nil {
		return err
	}
	return os.Lchown(name, uid, f.GID)
}

func (f Folder) fill(dir string, files map[string]File) error {
	if err := f.own(dir, f.Mode); err != nil {
		return err
	}
	for _, sub := range folders(files) {
		full := filepath.Join(dir, filepath.FromSlash(sub))
		if err := os.Mkdir(full, 0o755); err != nil {
			return err
		}
		if err := f.own(full, f.Mode); err != nil {
			return err
		}
	}
	for name, file := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.WriteFile(full, file.Data, 0o600); err != nil {
			return err
		}
		if err := errors.Join(os.Lchown(full, file.UID, file.GID), os.Chmod(full, file.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// folders that files are in, parents first.
func folders(files map[string]File) []string {
	seen := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// link makes a link of each top-level name.
func (f Folder) link(files map[string]File) error {
	for top := range tops(files) {
		name, target := filepath.Join(f.Path, top), path.Join(dataLink, top)
		if have, err := os.Readlink(name); err == nil && have == target {
			continue
		}
		// Whatever else has the name is removed: only this package writes here.
		if err := mounts.RemoveTree(name); err != nil {
			return err
		}
		uid := f.UID
		if file, ok := files[top]; ok {
			uid = file.UID
		}
		if err := f.symlink(target, name, uid); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes names that no file has any more and data folders left over.
func (f Folder) sweep(current string, files map[string]File) error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return err
	}
	wanted := tops(files)
	var all []error
	for _, e := range entries {
		switch name := e.Name(); {
		case name == dataLink || name == current || wanted[name]:
		case strings.HasPrefix(name, ".."), e.Type()&fs.ModeSymlink != 0:
			all = append(all, mounts.RemoveTree(filepath.Join(f.Path, name)))
		}
	}
	return errors.Join(all...)
}

func tops(files map[string]File) map[string]bool {
	all := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		all[top] = true
	}
	return all
}
