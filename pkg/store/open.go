// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
)

var (
	errLocked = errors.New("another process has it")
	errClosed = errors.New("the store is closed")
	errNoFile = errors.New("something else has the name")
)

// lockWait is how long a former process may take to let go of the file, and openWait
// how long a disk that does not let it be opened is waited for.
const (
	lockWait = 2 * time.Second
	openWait = 2 * time.Second
)

// openPatiently opens the file, and waits a moment for a disk that does not let it be
// read: what a service does without its file cannot be undone.
func (c Config) openPatiently() opened {
	for limit := time.Now().Add(openWait); ; time.Sleep(50 * time.Millisecond) {
		o := c.open()
		if !o.unread || errors.Is(o.err, errLocked) || time.Now().After(limit) {
			return o
		}
	}
}

// opened is what came of opening a file: a database, or records for the memory and
// why there is no database.
type opened struct {
	db      *database
	records map[string]map[string][]byte
	damage  *Damage
	err     error
	// unread: there may be a file, and what it holds is not known.
	unread bool
}

// open opens the file, makes it where there is none, and replaces it where it is
// damaged.
func (c Config) open() opened {
	dirErr := os.MkdirAll(filepath.Dir(c.Path), 0o700)
	f, err := c.openFile()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.first()
	case errors.Is(err, syscall.EROFS):
		return c.readOnly(err)
	case dirErr != nil:
		return opened{err: dirErr, unread: true}
	case errors.Is(err, errNoFile), errors.Is(err, fs.ErrPermission):
		return c.replace(nil, err)
	case err != nil: // says nothing of the file
		return opened{err: err, unread: true}
	}
	o, keep := c.use(f)
	if !keep {
		err = errors.Join(o.err, f.Close())
		if o.err == nil && err != nil {
			o.err = err
		}
	}
	return o
}

// openLate replaces a file that could not be opened when the process began, which
// went on without it: the file is set aside, or it would say later what the process
// no longer held to.
func (c Config) openLate(cause error) opened {
	f, err := c.openFile()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.first()
	case err != nil:
		return opened{err: err, unread: true}
	}
	defer f.Close() //nolint:errcheck // only locked
	if err := lock(f); err != nil {
		return opened{err: err, unread: true}
	}
	return c.replace(nil, fmt.Errorf("could not be opened at the start: %w", cause))
}

// openFile opens the file to be written. Where its rights are in the way, they are
// set as they should be, if the file is ours.
func (c Config) openFile() (*os.File, error) {
	const flags = os.O_RDWR | syscall.O_NONBLOCK
	f, err := os.OpenFile(c.Path, flags, 0)
	if errors.Is(err, fs.ErrPermission) {
		if os.Chmod(c.Path, 0o600) == nil {
			f, err = os.OpenFile(c.Path, flags, 0)
		}
	}
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ELOOP) {
		err = fmt.Errorf("%w: %w", errNoFile, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: %s", errNoFile, info.Mode())
	case info.Mode().Perm()&0o077 != 0: // it may hold secrets
		err = f.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// use opens a file that is there. keep: the database has taken f over.
func (c Config) use(f *os.File) (o opened, keep bool) {
	if err := lock(f); err != nil {
		return opened{err: err, unread: true}, false
	}
	info, err := f.Stat()
	if err != nil {
		return opened{err: err, unread: true}, false
	}
	data, bad := readPages(f, info.Size())
	m := readImage(data)
	if bad != nil {
		m.damaged("%w", bad)
	}
	if err := c.checkSchema(m); err != nil {
		return c.replace(nil, err), false
	}
	if len(m.damage) > 0 {
		return c.replace(m.records, m.cause()), false
	}
	if o.db, err = openDatabase(c.Path, f); err != nil {
		return opened{records: m.records, err: err}, true
	}
	_ = os.RemoveAll(c.unfinished()) // of a process that was killed while it made a file; else the next one tries
	return o, true
}

// unfinished is where a file is made before it takes its name.
func (c Config) unfinished() string { return c.Path + ".new" }

// page is how much of a file is read at a time where the disk fails, in bytes.
const page = 4 << 10

// readPages reads a file. Where the disk fails there are zeros, and bad tells.
func readPages(f io.ReaderAt, size int64) (data []byte, bad error) {
	data = make([]byte, size)
	if n, err := f.ReadAt(data, 0); int64(n) == size || errors.Is(err, io.EOF) {
		return data[:n], nil
	}
	for at := int64(0); at < size; at += page {
		part := data[at:min(at+page, size)]
		if _, err := f.ReadAt(part, at); err != nil && !errors.Is(err, io.EOF) {
			clear(part)
			bad = fmt.Errorf("at byte %d: %w", at, err)
		}
	}
	return data, bad
}

// checkSchema says why a file is of no use to this code.
func (c Config) checkSchema(m *image) error {
	was, ok := m.records[metaTable][schemaKey]
	switch {
	case !ok: // damaged, or not written yet
		return nil
	case len(was) != 8:
		return fmt.Errorf("schema version has %d bytes", len(was))
	case binary.BigEndian.Uint64(was) != c.Schema:
		return fmt.Errorf("schema %d, and this version knows %d", binary.BigEndian.Uint64(was), c.Schema)
	}
	return nil
}

// readOnly reads a file that cannot be written. What is damaged stays where it is.
func (c Config) readOnly(cause error) opened {
	o := opened{err: cause}
	data, err := os.ReadFile(c.Path)
	if err != nil {
		o.damage = &Damage{Path: c.Path, Cause: err}
		return o
	}
	m := readImage(data)
	if err = c.checkSchema(m); err != nil {
		m.records = nil
	} else if len(m.damage) > 0 {
		err = m.cause()
	}
	o.records = m.records
	if err != nil {
		o.damage = &Damage{Path: c.Path, Cause: err, Kept: kept(m.records)}
	}
	return o
}

// kept counts the records of a service.
func kept(records map[string]map[string][]byte) (n int) {
	for table, all := range records {
		if table != metaTable {
			n += len(all)
		}
	}
	return n
}

// replace sets a damaged file aside and makes a new one with what is left of it.
func (c Config) replace(records map[string]map[string][]byte, cause error) opened {
	d := &Damage{Path: c.Path, Cause: cause, Kept: kept(records)}
	aside, err := file.KeepAside(c.Path, c.Now())
	if err != nil {
		return opened{records: records, damage: d, err: err}
	}
	d.Aside = aside
	return c.fresh(records, d)
}

// first makes a file where there was none. One that has come since, with a file system
// that was mounted late, is left as it is: what it holds is not known.
func (c Config) first() opened {
	o := c.named(nil, nil, func(from, to string) error {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		if info, statErr := os.Lstat(to); errors.Is(err, fs.ErrExist) && statErr == nil && info.Mode().Type() == fs.ModeSymlink {
			return os.Rename(from, to) // a link to nowhere
		}
		if errors.Is(err, unix.EINVAL) { // the file system has no such call
			return os.Rename(from, to)
		}
		return err
	})
	o.unread = errors.Is(o.err, fs.ErrExist)
	return o
}

// fresh makes a file with records. It takes its name in one step, when it is whole:
// a power cut leaves what was there before, or the new file.
func (c Config) fresh(records map[string]map[string][]byte, damage *Damage) opened {
	return c.named(records, damage, os.Rename)
}

// named makes a file with records and gives it its name when it is whole.
func (c Config) named(records map[string]map[string][]byte, damage *Damage, rename func(from, to string) error) opened {
	path := c.unfinished()
	err := fault.Hit(context.Background(), "store.write")
	var db *database
	if err == nil {
		db, err = c.build(path, records)
	}
	if err == nil {
		err = rename(path, c.Path)
	}
	if err == nil {
		err = file.Sync(filepath.Dir(c.Path))
	}
	if err == nil {
		err = fault.Hit(context.Background(), "store.written")
	}
	if err == nil {
		return opened{db: db, damage: damage}
	}
	if db != nil {
		err = errors.Join(err, db.close())
	}
	return opened{records: records, damage: damage, err: errors.Join(err, os.RemoveAll(path))}
}

func (c Config) build(path string, records map[string]map[string][]byte) (*database, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(path, f)
	if err != nil {
		return nil, err
	}
	return db, db.update(func(tx *bbolt.Tx) error {
		for table, all := range records {
			for name, data := range all {
				if err := put(tx, table, name, data); err != nil {
					return err
				}
			}
		}
		if err := put(tx, metaTable, schemaKey, schemaBytes(c.Schema)); err != nil {
			return err
		}
		return sumAll(tx)
	})
}

// lock waits for the file; it is the process's as long as the file is open.
func lock(f *os.File) error {
	for limit := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case time.Now().After(limit):
			return errLocked
		}
	}
}
