// SPDX-License-Identifier: Apache-2.0

// Package store keeps what a service cannot re-derive: one bbolt file per
// service, with a schema version and a checksum for every record.
//
// What it promises. A write that returned survives kill -9 and a power cut, as long as
// the disk takes writes. A file that is damaged or was written by another schema is set
// aside as <file>.damaged-<time>, never deleted, and the service starts with those of
// its records that are proven whole; Open reports it. While the disk takes no writes
// (full, read-only, failing) records are kept in memory, the disk is tried again every
// few seconds, and State reports it. A page that cannot be read while the file is open
// is such a failure: the file is reopened. A file that cannot be opened when the
// service starts is set aside when it can be: a service never finds records again that
// it has gone on without. One record that does not decode is skipped and reported, the
// others stay.
//
// Two fault points: store.write before a file is made and before each transaction,
// store.written after it.
package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// Names of what every file has.
const (
	metaTable = "meta"
	schemaKey = "schema"
)

// Config is one service's file.
type Config struct {
	// Path of the file; its folder is made.
	Path string
	// Schema is the version this code writes. A file of another one is set aside.
	Schema uint64
	Log    *slog.Logger
	// Now names a file that is set aside.
	Now func() time.Time
	// Changed is called when State has changed; it must not call the store.
	Changed func(State)
	// Retry is how soon a disk that took no write is tried again; 5 s when zero.
	Retry time.Duration
}

// Store is an open file. Safe for concurrent use.
type Store struct {
	cfg Config

	mu     sync.Mutex
	db     *database // nil while there is no file
	closed bool
	// late is why the file could not be read when the process began; nil when it was.
	late error
	// queue is what waits for the next transaction; writing is set while a goroutine
	// writes it. Only that goroutine changes db.
	queue   []write
	writing bool
	// pending is what the disk did not take, by table and key.
	pending map[key]change
	state   State
	retryAt time.Time
	timer   *time.Timer
	idle    *sync.Cond // writing became false
}

type key struct{ table, key string }

// change is the new content of a record, or that it is gone.
type change struct {
	data []byte
	gone bool
}

type write struct {
	key
	change
	done chan struct{}
}

// State is how a file fares.
type State struct {
	Path string
	// Damage is the last that was found, nil for none.
	Damage *Damage
	// Trouble is why the disk takes no writes, nil while it does; Since when, and
	// Unwritten how many records are in memory only.
	Trouble   error
	Since     time.Time
	Unwritten int
}

// Damage says that a former file was set aside.
type Damage struct {
	Path string
	// Aside is where it is now; empty if it could not be moved, and is where it was.
	Aside string
	// Cause is what was wrong with it.
	Cause error
	// Kept is how many of its records were proven whole, and taken over.
	Kept int
}

func (d *Damage) String() string {
	at := "set aside as " + d.Aside
	if d.Aside == "" {
		at = "damaged, and not to be moved"
	}
	return fmt.Sprintf("state file %s %s, %d records kept: %v", d.Path, at, d.Kept, d.Cause)
}

// Open opens or makes the file. damage is not nil when a former one had to be
// set aside. The error is that another process has the file; a disk that cannot be
// used is no error, but State tells.
func Open(cfg Config) (s *Store, damage *Damage, err error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func(State) {}
	}
	cfg.Retry = cmp.Or(cfg.Retry, 5*time.Second)
	s = &Store{cfg: cfg, pending: map[key]change{}, state: State{Path: cfg.Path}}
	s.idle = sync.NewCond(&s.mu)
	o := cfg.openPatiently()
	if errors.Is(o.err, errLocked) {
		return nil, nil, fmt.Errorf("state file %s: %w", cfg.Path, o.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.unread {
		s.late = o.err
	}
	s.take(o)
	if o.err != nil {
		s.troubled(o.err)
	} else if o.damage != nil {
		s.cfg.Changed(s.stateNow())
	}
	return s, o.damage, nil
}

// take takes over what was opened; callers hold Store.mu.
func (s *Store) take(o opened) {
	if !o.unread {
		s.db = o.db
	}
	for table, records := range o.records {
		for name, data := range records {
			k := key{table, name}
			if _, newer := s.pending[k]; !newer {
				s.pending[k] = change{data: data}
			}
		}
	}
	if o.damage != nil {
		s.damaged(o.damage)
	}
}

// damaged notes what was found; callers hold Store.mu.
func (s *Store) damaged(d *Damage) {
	s.state.Damage = d
	s.cfg.Log.Error("state file damaged", "path", s.cfg.Path, "aside", d.Aside, "kept", d.Kept, "error", d.Cause.Error())
}

// State is the state of the file.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateNow()
}

func (s *Store) stateNow() State {
	state := s.state
	state.Unwritten = len(s.pending)
	return state
}

// get reads a record.
func (s *Store) get(table, name string) (data []byte, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.pending[key{table, name}]; ok {
		return c.data, !c.gone, nil
	}
	err = s.view(func(tx *bbolt.Tx) error {
		if bucket := tx.Bucket([]byte(table)); bucket != nil {
			found := bucket.Get([]byte(name))
			data, ok = append(data, found...), found != nil
		}
		return nil
	})
	return data, ok, err
}

// all reads a table.
func (s *Store) all(table string) (records map[string][]byte, err error) {
	records = map[string][]byte{}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(table))
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(name, data []byte) error {
			records[string(name)] = append([]byte(nil), data...)
			return nil
		})
	})
	for k, c := range s.pending {
		if k.table == table {
			records[k.key] = c.data
		}
	}
	maps.DeleteFunc(records, func(name string, _ []byte) bool { return s.pending[key{table, name}].gone })
	return records, err
}

// view reads the file, if there is one; callers hold Store.mu.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	if s.closed {
		return errClosed
	}
	if s.db == nil {
		return nil
	}
	err := s.db.view(read)
	if err != nil && s.state.Trouble == nil && s.db.broken.Load() {
		s.troubled(err)
	}
	return err
}

// Close closes the file; kill -9 does as well. What the disk did not take is tried
// once more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing {
		s.idle.Wait()
	}
	if s.closed {
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.db == nil {
		return nil
	}
	if s.state.Trouble != nil {
		if err := commit(s.db, s.pending); err != nil {
			s.cfg.Log.Error("records lost: the disk takes no writes", "path", s.cfg.Path, "records", len(s.pending), "error", err.Error())
		}
	}
	return s.db.close()
}

func schemaBytes(version uint64) []byte { return binary.BigEndian.AppendUint64(nil, version) }
