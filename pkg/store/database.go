// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

var errBroken = errors.New("the state file is being reopened")

// database is an open file. bbolt reads it as memory, so that a page that cannot be
// read is a fault in the middle of its work, with its locks taken: after one, nothing
// is asked of it any more, and its file, with the lock on it, is let go.
type database struct {
	bolt   *bbolt.DB
	file   *os.File
	broken atomic.Bool
}

// openDatabase makes a database of an open file, which is closed if that fails.
func openDatabase(path string, f *os.File) (*database, error) {
	d := &database{file: f}
	err := d.use(func(*bbolt.DB) (err error) {
		d.bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *database) update(change func(*bbolt.Tx) error) error {
	return d.use(func(db *bbolt.DB) error { return db.Update(change) })
}

func (d *database) view(read func(*bbolt.Tx) error) error {
	return d.use(func(db *bbolt.DB) error { return db.View(read) })
}

func (d *database) close() error {
	if d.broken.Load() {
		return nil // as far as that is possible
	}
	return d.use((*bbolt.DB).Close)
}

// abandon closes the file; what is asked of it from then on is an error.
func (d *database) abandon() error {
	defer d.broken.Store(true)
	return d.close()
}

// use does what touches the file, unless that failed in a panic before.
func (d *database) use(f func(*bbolt.DB) error) error {
	if d.broken.Load() {
		return errBroken
	}
	err, panicked := guarded(func() error { return f(d.bolt) })
	if panicked && d.broken.CompareAndSwap(false, true) {
		// The mapping stays, and would keep the lock.
		err = errors.Join(err, unix.Flock(int(d.file.Fd()), unix.LOCK_UN), d.file.Close())
	}
	return err
}

// guarded runs what touches the file: a page that cannot be read, or that bbolt
// stumbles over, is an error and not the end of the process.
func guarded(f func() error) (err error, panicked bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err, panicked = fmt.Errorf("state file: %v", p), true
		}
	}()
	return f(), false
}
