// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deepest is how many folders are open at a time, one in the other.
const deepest = 64

// RemoveTree removes a file, or a folder and everything below it. It goes from an open
// folder to a name in it, never by a path, and enters no mount point: what is mounted
// below stays as it is, with the folders above it, and is an error. What cannot be removed
// does not keep the rest; the error names the first.
// A path that does not exist is no error. Folders may be nested to any depth, and may
// hold any number of names: memory and open files are bounded.
func RemoveTree(path string) error {
	parent, name := filepath.Split(filepath.Clean(path))
	at, err := unix.Open(filepath.Clean(parent), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	defer unix.Close(at) //nolint:errcheck // opened by path only
	r := remover{above: filepath.Clean(parent)}
	r.remove(at, name)
	if r.failed > 1 {
		return fmt.Errorf("%w (and others)", r.first)
	}
	return r.first
}

// remover is one removal.
type remover struct {
	above string
	open  []folder // from the top to where it is
	// first is the error of the first name that could not be removed; failed counts tries
	// that failed.
	first  error
	failed int
}

type folder struct {
	fd   int
	name string
	// lifted: folders from far below were moved here since the last look.
	lifted bool
}

// remove removes a name of an open folder and reports whether it is gone.
func (r *remover) remove(at int, name string) bool {
	err := unix.Unlinkat(at, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return r.gone(name, err)
	}
	if len(r.open) == deepest {
		return r.lift(at, name)
	}
	fd, err := enter(at, name)
	if err != nil {
		if errors.Is(err, unix.EXDEV) {
			err = errMounted
		}
		return r.gone(name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	level := len(r.open)
	r.open = append(r.open, folder{fd: fd, name: name})
	defer func() { r.open = r.open[:level] }()
	for failed := r.failed; ; {
		r.open[level].lifted = false
		some := r.clear(fd)
		if r.open[level].lifted {
			continue
		}
		err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		switch {
		case errors.Is(err, unix.ENOTEMPTY) && r.failed > failed:
			return false // what is left in it was noted
		case errors.Is(err, unix.ENOTEMPTY) && some:
			// A file system may pass over names while others go: look again.
		default:
			r.open = r.open[:level]
			return r.gone(name, err)
		}
	}
}

var errMounted = errors.New("something is mounted there")

// gone notes the outcome of removing a name.
func (r *remover) gone(name string, err error) bool {
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true
	}
	if r.failed++; r.failed == 1 {
		r.first = &fs.PathError{Op: "remove", Path: r.path(name), Err: err}
	}
	return false
}

// path names what could not be removed. Names below the top come from containers: they
// are quoted, and only the ends of a long path are kept.
func (r *remover) path(name string) string {
	const most = 200
	if len(r.open) == 0 {
		return filepath.Join(r.above, name)
	}
	below := ""
	for _, f := range r.open[1:] {
		below = filepath.Join(below, f.name)
	}
	if below = filepath.Join(below, name); len(below) > most {
		below = below[:most/2] + "…" + below[len(below)-most/2:]
	}
	below = fmt.Sprintf("%q", below)
	return filepath.Join(r.above, r.open[0].name, below[1:len(below)-1])
}

// clear removes what is in a folder and reports whether anything went.
func (r *remover) clear(fd int) (some bool) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return false
	}
	buffer := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if err != nil || n <= 0 {
			return some // rmdir tells the rest
		}
		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		for _, name := range names {
			some = r.remove(fd, name) || some
		}
	}
}

// lift moves a folder that is nested too deeply to one above, which removes it later. A
// mount point cannot be moved (EBUSY). The new name is one that no container can guess.
func (r *remover) lift(at int, name string) bool {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		to := &r.open[deepest/2]
		err = unix.Renameat(at, name, to.fd, rand.Text())
		to.lifted = err == nil || to.lifted
	}
	return r.gone(name, err)
}
