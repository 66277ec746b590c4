// SPDX-License-Identifier: Apache-2.0

// Package file writes small files that must be whole after kill -9 and a power
// cut, sets damaged ones aside, and reads what must not be long.
//
// It owns no state. Every write passes two fault points: file.write before the
// disk is touched, file.written when the new content is in place.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
)

// damaged comes between the name of a file and since when it is damaged.
const damaged = ".damaged-"

// Half is what follows the name of a file that is being written. The kubelet passes
// over such names in the folders that both use.
const Half = ".tmp"

// Replace writes a file: afterwards, whatever happens meanwhile, there is the
// former content or the new one, which is on the disk when Replace returns nil.
// What has the name and is no file, such as a folder, is set aside.
func Replace(path string, data []byte, mode fs.FileMode) error {
	if err := fault.Hit(context.Background(), "file.write"); err != nil {
		return err
	}
	fresh := path + Half
	err := write(fresh, data, mode)
	if err != nil { // what an earlier life left may be in the way
		if err = os.RemoveAll(fresh); err == nil {
			err = write(fresh, data, mode)
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		info, statErr := os.Lstat(path)
		if statErr != nil || !info.IsDir() {
			return errors.Join(err, os.Remove(fresh))
		}
		if _, err := Aside(path, time.Now()); err != nil {
			return errors.Join(err, os.Remove(fresh))
		}
		if err := os.Rename(fresh, path); err != nil {
			return errors.Join(err, os.Remove(fresh))
		}
	}
	if err := Sync(filepath.Dir(path)); err != nil {
		return err
	}
	return fault.Hit(context.Background(), "file.written")
}

// Link has a symbolic link lead to another place, or makes it: afterwards, whatever
// happens meanwhile, it leads to the former place or to the new one, which is on the disk
// when Link returns nil.
func Link(path, to string) error {
	if err := fault.Hit(context.Background(), "file.write"); err != nil {
		return err
	}
	fresh := path + Half
	if err := os.RemoveAll(fresh); err != nil { // of an earlier life
		return err
	}
	if err := os.Symlink(to, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := Sync(filepath.Dir(path)); err != nil {
		return err
	}
	return fault.Hit(context.Background(), "file.written")
}

// write writes a file that must not exist yet: an existing name could be a link to
// another place, or a file of another user, who could read what is written.
func write(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask says
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Sync makes the names in a folder durable.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil // may be written to, and not read
		}
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// copies is how many damaged files of one name are kept: they may hold secrets, and
// fill a disk.
const copies = 3

// Aside gives a file or folder a name that says that it is damaged, and since
// when, and returns that name. Nothing is ever overwritten.
func Aside(path string, now time.Time) (string, error) { return aside(path, now, os.Rename) }

// KeepAside gives a damaged file such a name in addition, so that the file that
// replaces it can take the old one in a single step. What can have one name only
// loses the old one: a folder, and another user's file. The newest three damaged files
// of a name are kept.
func KeepAside(path string, now time.Time) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return Aside(path, now)
	}
	kept, err := aside(path, now, os.Link)
	if err != nil {
		kept, err = Aside(path, now)
	}
	if err != nil {
		return "", err
	}
	prune(path, kept)
	return kept, nil
}

// CopyAside copies a file that goes on under its own name to such a name, mode 0600. The
// newest three damaged files of a name are kept.
func CopyAside(path string, now time.Time) (string, error) {
	kept, err := aside(path, now, func(from, to string) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return Replace(to, data, 0o600)
	})
	if err != nil {
		return "", err
	}
	prune(path, kept)
	return kept, nil
}

func aside(path string, now time.Time, name func(from, to string) error) (string, error) {
	first := path + damaged + now.UTC().Format("20060102-150405")
	to := first
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", err
		}
		to = fmt.Sprintf("%s.%d", first, n)
	}
	if err := name(path, to); err != nil {
		return "", err
	}
	return to, nil
}

// prune removes damaged files of a name, as far as it can, but for the newest ones and
// for the last one, whatever the clock says. Folders stay.
func prune(path, last string) {
	entries, err := os.ReadDir(filepath.Dir(path)) // by name, and so by time
	if err != nil {
		return // may be written to, and not read
	}
	var all []string
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if strings.HasPrefix(e.Name(), filepath.Base(path)+damaged) && e.Type().IsRegular() && name != last {
			all = append(all, name)
		}
	}
	for len(all) > copies-1 {
		_ = os.Remove(all[0]) // the next one tries again
		all = all[1:]
	}
}

// Bounded reads all that r has, up to a number of bytes; where it has more, the error is that
// of the caller.
func Bounded(r io.Reader, most int64, more error) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, more
	}
	return data, nil
}

// Cause is an error of a file without operation and path, for a caller who names the path.
func Cause(err error) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Exists reports whether there is something at a path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Remove removes a file or an empty folder, if it is there. A disk that takes no writes
// refuses the removal also of what is not.
func Remove(path string) error {
	err := os.Remove(path)
	if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	return err
}
