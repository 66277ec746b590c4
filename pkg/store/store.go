// Package store keeps what a service cannot re-derive: one bbolt file per
// service, with a schema version.
//
// What it promises. A write that returned survives kill -9 and a power cut. A
// file that cannot be read, fails its check or was written by a newer schema is
// set aside under a name that says so, never deleted, and the service starts
// with an empty one; Open tells. One record that does not decode is skipped and
// reported, the others stay.
package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

var (
	metaBucket = []byte("meta")
	schemaKey  = []byte("schema")
)

// Config is one service's file.
type Config struct {
	// Path of the file; its folder is made.
	Path string
	// Schema is the version this code writes. An older file is handed to
	// Migrate, a newer one is set aside.
	Schema uint64
	// Migrate brings the file from a former schema to Schema, in one
	// transaction. Nil sets older files aside.
	Migrate func(tx *bbolt.Tx, from uint64) error
	Log     *slog.Logger
	// Now names a file that is set aside.
	Now func() time.Time
}

// Store is an open file.
type Store struct {
	db  *bbolt.DB
	log *slog.Logger
}

// Damage says that a former file was set aside.
type Damage struct {
	// Aside is where it is now.
	Aside string
	// Cause is what was wrong with it.
	Cause error
}

func (d *Damage) String() string {
	return fmt.Sprintf("state file set aside as %s: %v", d.Aside, d.Cause)
}

// Open opens or makes the file. damage is not nil when a former one had to be
// set aside; the error is for what cannot be helped, such as a full disk: the file
// stays then.
func Open(cfg Config) (s *Store, damage *Damage, err error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("state folder: %w", err)
	}
	db, err := open(cfg)
	if err == nil {
		return &Store{db, cfg.Log}, nil, nil
	}
	if !damaged(err) {
		return nil, nil, fmt.Errorf("state file %s: %w", cfg.Path, err)
	}
	aside := fmt.Sprintf("%s.damaged-%s", cfg.Path, cfg.Now().UTC().Format("20060102-150405"))
	if renameErr := os.Rename(cfg.Path, aside); renameErr != nil {
		return nil, nil, fmt.Errorf("state file %s: %w", cfg.Path, errors.Join(err, renameErr))
	}
	damage = &Damage{Aside: aside, Cause: err}
	cfg.Log.Error("state file set aside", "path", cfg.Path, "aside", aside, "error", err.Error())
	if db, err = open(cfg); err != nil {
		return nil, damage, fmt.Errorf("state file %s: %w", cfg.Path, err)
	}
	return &Store{db, cfg.Log}, damage, nil
}

// damaged tells whether an error is about the file itself. That there is no room
// to write, no descriptor left or no permission says nothing about what is in it.
func damaged(err error) bool {
	for _, other := range []error{
		bolterrors.ErrTimeout, os.ErrPermission, unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EROFS, unix.EMFILE, unix.ENFILE, unix.ENOMEM,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// open opens, checks and migrates; a damaged page makes bbolt panic or fault,
// which is an error here.
func open(cfg Config) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
		if err != nil && db != nil {
			err = errors.Join(err, closeQuietly(db))
			db = nil
		}
	}()
	db, err = bbolt.Open(cfg.Path, 0o600, &bbolt.Options{Timeout: 2 * time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	if err := db.View(check); err != nil {
		return db, err
	}
	// Nothing is written when nothing has to be: a start needs no room then.
	current := false
	if err := db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		current = meta != nil && bytes.Equal(meta.Get(schemaKey), schema(cfg.Schema))
		return nil
	}); err != nil || current {
		return db, err
	}
	return db, db.Update(func(tx *bbolt.Tx) error { return migrate(tx, cfg) })
}

func closeQuietly(db *bbolt.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close: %v", p)
		}
	}()
	return db.Close()
}

func check(tx *bbolt.Tx) error {
	var all []error
	for err := range tx.Check() {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func migrate(tx *bbolt.Tx, cfg Config) error {
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	if was := meta.Get(schemaKey); was != nil {
		if len(was) != 8 {
			return fmt.Errorf("schema version has %d bytes", len(was))
		}
		from := binary.BigEndian.Uint64(was)
		switch {
		case from > cfg.Schema:
			return fmt.Errorf("schema %d is newer than %d", from, cfg.Schema)
		case from < cfg.Schema && cfg.Migrate == nil:
			return fmt.Errorf("schema %d is older than %d and cannot be migrated", from, cfg.Schema)
		case from < cfg.Schema:
			if err := cfg.Migrate(tx, from); err != nil {
				return fmt.Errorf("migrate from schema %d: %w", from, err)
			}
		}
	}
	return meta.Put(schemaKey, schema(cfg.Schema))
}

// schema is a schema's version as it is written.
func schema(version uint64) []byte { return binary.BigEndian.AppendUint64(nil, version) }

// Close closes the file; kill -9 does as well.
func (s *Store) Close() error { return s.db.Close() }
