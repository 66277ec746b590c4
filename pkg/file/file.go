// Package file writes small files that must be whole after kill -9 and a power
// cut, and sets damaged ones aside.
//
// It owns no state. Every write passes two fault points: file.write before the
// disk is touched, file.written when the new content is in place.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
)

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

func write(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
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

// Aside gives a file or folder a name that says that it is damaged, and since
// when, and returns that name. Nothing is ever overwritten.
func Aside(path string, now time.Time) (string, error) { return aside(path, now, os.Rename) }

// KeepAside gives a damaged file such a name in addition, so that the file that
// replaces it can take the old one in a single step. What can have one name only
// loses the old one: a folder, and another user's file.
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
		return Aside(path, now)
	}
	return kept, nil
}

func aside(path string, now time.Time, name func(from, to string) error) (string, error) {
	first := fmt.Sprintf("%s.damaged-%s", path, now.UTC().Format("20060102-150405"))
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
