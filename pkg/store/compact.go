// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"

	"go.etcd.io/bbolt"

	"github.com/sextant-node/sextant/pkg/file"
)

// Compact rewrites the file with its current records and nothing of those that were
// deleted or replaced: bbolt leaves them in pages that it may use again. A disk keeps
// the blocks of the former file until it writes over them. While the disk takes no
// writes nothing is done. Without room for a second file it returns an error, and the
// file stays as it is.
func (s *Store) Compact() error {
	return s.alone(func(db *database) error {
		var o opened
		records, err := db.records()
		if err == nil {
			o = s.cfg.fresh(records, nil)
		} else {
			o.err = err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case o.err == nil:
			s.db = o.db
			return db.close()
		case db.named(s.cfg.Path):
			return o.err
		}
		// Whichever file has the name now is opened again.
		if closeErr := db.abandon(); closeErr != nil {
			s.cfg.Log.Warn("close", "path", s.cfg.Path, "error", closeErr.Error())
		}
		s.troubled(o.err)
		return o.err
	})
}

// CopyAside keeps a copy of the file beside it, as of a damaged one: the service is
// about to remove records that it has no use for. cause is why, and kept how many stay;
// State reports both. While the disk takes no writes nothing is done.
func (s *Store) CopyAside(cause error, kept int) error {
	return s.alone(func(*database) error {
		aside, err := file.CopyAside(s.cfg.Path, s.cfg.Now())
		if err != nil {
			return err
		}
		d := &Damage{Path: s.cfg.Path, Aside: aside, Cause: cause, Kept: kept}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.damaged(d)
		s.cfg.Changed(s.stateNow())
		return nil
	})
}

// alone does what no transaction may come in between of; there is none under way.
func (s *Store) alone(do func(*database) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing {
		s.idle.Wait()
	}
	if s.closed {
		return errClosed
	}
	if s.db == nil || s.state.Trouble != nil {
		return nil
	}
	s.writing = true // only the one who writes changes db
	db := s.db
	s.mu.Unlock()
	err := do(db)
	s.mu.Lock()
	s.writing = false
	s.idle.Broadcast()
	if len(s.queue) > 0 {
		s.kick()
	}
	return err
}

// named reports whether the file that is open has that name.
func (d *database) named(path string) bool {
	mine, err := d.file.Stat()
	there, thereErr := os.Stat(path)
	return errors.Join(err, thereErr) == nil && !d.broken.Load() && os.SameFile(mine, there)
}

// records are those of a service, and the schema.
func (d *database) records() (map[string]map[string][]byte, error) {
	all := map[string]map[string][]byte{}
	err := d.view(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(table []byte, b *bbolt.Bucket) error {
			if string(table) == sumTable {
				return nil
			}
			records := map[string][]byte{}
			all[string(table)] = records
			return b.ForEach(func(name, data []byte) error {
				records[string(name)] = append([]byte(nil), data...)
				return nil
			})
		})
	})
	return all, err
}
