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
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/file"
)

var (
	errLocked = errors.New("another process has it")
	errClosed = errors.New("the store is closed")
	errNoFile = errors.New("something else has the name")
)

// lockWait is how long a former process may take to let go of the file.
const lockWait = 2 * time.Second

// opened is what came of opening a file: a database, or records for the memory and
// why there is no database.
type opened struct {
	db      *bbolt.DB
	records map[string]map[string][]byte
	damage  *Damage
	err     error
}

// open opens the file, makes it where there is none, and replaces it where it is
// damaged.
func (c Config) open() opened {
	dirErr := os.MkdirAll(filepath.Dir(c.Path), 0o700)
	f, err := c.openFile()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.fresh(nil, nil)
	case errors.Is(err, syscall.EROFS):
		return c.readOnly(err)
	case dirErr != nil:
		return opened{err: dirErr}
	case errors.Is(err, errNoFile), errors.Is(err, fs.ErrPermission):
		return c.replace(nil, err)
	case err != nil: // says nothing of the file
		return opened{err: err}
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
		return opened{err: err}, false
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return c.replace(nil, err), false
	}
	m := readImage(data)
	from, err := c.schemaOf(m)
	if err != nil {
		return c.replace(nil, err), false
	}
	if len(m.damage) > 0 {
		if from != c.Schema {
			m.records = nil // of another schema
		}
		return c.replace(m.records, m.cause()), false
	}
	if o.db, err = bolt(c.Path, f); err != nil {
		if from != c.Schema {
			m.records = nil
		}
		return opened{records: m.records, err: err}, true
	}
	if from == c.Schema && !m.unsummed {
		return o, true
	}
	if err := c.migrate(o.db, from); err != nil {
		if err := guarded(o.db.Close); err != nil {
			c.Log.Error("close", "path", c.Path, "error", err.Error())
		}
		if diskError(err) { // the file stays, and is migrated when there is room
			return opened{err: err}, true
		}
		return c.replace(nil, err), true
	}
	return o, true
}

// diskError tells whether a disk was at fault, rather than what was asked of it.
func diskError(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}

// schemaOf is the schema of a file; an error says that it is of no use.
func (c Config) schemaOf(m *image) (uint64, error) {
	was, ok := m.records[metaTable][schemaKey]
	if !ok {
		return c.Schema, nil // damaged, or not written yet
	}
	if len(was) != 8 {
		return 0, fmt.Errorf("schema version has %d bytes", len(was))
	}
	from := binary.BigEndian.Uint64(was)
	switch {
	case from > c.Schema:
		return 0, fmt.Errorf("schema %d is newer than %d", from, c.Schema)
	case from < c.Schema && c.Migrate == nil:
		return 0, fmt.Errorf("schema %d is older than %d and cannot be migrated", from, c.Schema)
	}
	return from, nil
}

// migrate brings a file to the schema, and gives every record its checksum.
func (c Config) migrate(db *bbolt.DB, from uint64) error {
	return guarded(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			if from != c.Schema {
				if err := c.Migrate(tx, from); err != nil {
					return fmt.Errorf("migrate from schema %d: %w", from, err)
				}
			}
			if err := tx.DeleteBucket([]byte(sumTable)); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
			if err := put(tx, metaTable, schemaKey, schemaBytes(c.Schema)); err != nil {
				return err
			}
			return sumAll(tx)
		})
	})
}

func sumAll(tx *bbolt.Tx) error {
	sums, err := tx.CreateBucketIfNotExists([]byte(sumTable))
	if err != nil {
		return err
	}
	err = tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
		if string(table) == sumTable {
			return nil
		}
		return b.ForEach(func(name, data []byte) error {
			return sums.Put([]byte(sumKey(string(table), string(name))), checksum(data))
		})
	})
	if err != nil {
		return err
	}
	return stamp(tx, sums)
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
	from, err := c.schemaOf(m)
	if err == nil && from != c.Schema {
		err = fmt.Errorf("schema %d cannot be migrated where nothing can be written", from)
	}
	if err == nil && len(m.damage) > 0 {
		err = m.cause()
	} else if err != nil {
		m.records = nil
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

// fresh makes a file with records. It takes its name in one step, when it is whole:
// a power cut leaves what was there before, or the new file.
func (c Config) fresh(records map[string]map[string][]byte, damage *Damage) opened {
	path := c.Path + ".new"
	err := fault.Hit(context.Background(), "store.write")
	var db *bbolt.DB
	if err == nil {
		db, err = c.build(path, records)
	}
	if err == nil {
		err = os.Rename(path, c.Path)
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
		err = errors.Join(err, guarded(db.Close))
	}
	return opened{records: records, damage: damage, err: errors.Join(err, os.RemoveAll(path))}
}

func (c Config) build(path string, records map[string]map[string][]byte) (*bbolt.DB, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	db, err := bolt(path, f)
	if err != nil {
		return nil, err
	}
	return db, guarded(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
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
	})
}

// bolt makes a database of an open file, which is closed if that fails.
func bolt(path string, f *os.File) (db *bbolt.DB, err error) {
	err = guarded(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
		})
		return err
	})
	return db, err
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

// guarded runs what touches the file: a page that cannot be read, or that bbolt
// stumbles over, is an error and not the end of the process.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("state file: %v", p)
		}
	}()
	return f()
}
