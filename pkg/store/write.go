// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sextant-node/sextant/pkg/fault"
)

// write changes a record. When it returns nil the change is on the disk, or the disk
// takes no writes and State reports it.
func (s *Store) write(k key, c change) error {
	if k.key == "" || len(k.key) > bbolt.MaxKeySize-len(k.table)-1 {
		return fmt.Errorf("a key of %d bytes", len(k.key))
	}
	done := make(chan struct{})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.queue = append(s.queue, write{k, c, done})
	s.kick()
	s.mu.Unlock()
	<-done
	return nil
}

// kick has the queue seen to; callers hold Store.mu.
func (s *Store) kick() {
	if !s.writing && !s.closed {
		s.writing = true
		go s.drain()
	}
}

// drain writes what waits, as long as something does: those who come while the
// disk is busy share the next transaction.
func (s *Store) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		queue := s.queue
		s.queue = nil
		changes := make(map[key]change, len(queue))
		for _, w := range queue {
			changes[w.key] = w.change
		}
		switch {
		case s.state.Trouble != nil:
			maps.Copy(s.pending, changes)
			if !s.cfg.Now().Before(s.retryAt) {
				s.retry()
			}
		case len(changes) > 0:
			db := s.db
			s.mu.Unlock()
			err := commit(db, changes)
			s.mu.Lock()
			if err != nil {
				maps.Copy(s.pending, changes)
				s.troubled(err)
			}
		}
		for _, w := range queue {
			close(w.done)
		}
		if len(s.queue) == 0 {
			s.writing = false
			s.idle.Broadcast()
			return
		}
	}
}

// retry tries the disk again; callers hold Store.mu, which is released meanwhile. No
// other goroutine changes db and pending.
func (s *Store) retry() {
	err := error(nil)
	if s.db == nil || s.db.broken.Load() {
		late := s.late
		s.mu.Unlock()
		var o opened
		if late != nil {
			o = s.cfg.openLate(late)
		} else {
			o = s.cfg.open()
		}
		s.mu.Lock()
		if o.err == nil {
			s.late = nil
		}
		if told := s.state.Damage; told != nil && told.Aside == "" && o.damage != nil && o.damage.Aside == "" {
			o.damage = nil // it is where it was
		}
		s.take(o)
		err = o.err
	}
	if err == nil {
		db, pending := s.db, maps.Clone(s.pending)
		s.mu.Unlock()
		err = commit(db, pending)
		s.mu.Lock()
	}
	if err != nil {
		s.troubled(err)
		return
	}
	s.cfg.Log.Info("state file is written again", "path", s.cfg.Path, "records", len(s.pending), "after", s.cfg.Now().Sub(s.state.Since).String())
	clear(s.pending)
	s.state.Trouble, s.state.Since = nil, time.Time{}
	s.cfg.Changed(s.stateNow())
}

// troubled notes that the disk takes no writes, and when to try again; callers
// hold Store.mu.
func (s *Store) troubled(err error) {
	first := s.state.Trouble == nil
	s.state.Trouble = err
	s.retryAt = s.cfg.Now().Add(s.cfg.Retry)
	if first {
		s.state.Since = s.cfg.Now()
		s.cfg.Log.Error("state file cannot be written: going on in memory", "path", s.cfg.Path, "error", err.Error())
		s.cfg.Changed(s.stateNow())
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.cfg.Retry, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.retryAt = time.Time{}
			s.kick()
		})
		return
	}
	s.timer.Reset(s.cfg.Retry)
}

// commits counts the transactions of the process.
var commits atomic.Uint64

// Commits is how many transactions the process has written, each of which waited for
// the disk.
func Commits() uint64 { return commits.Load() }

// commit writes changes in one transaction.
func commit(db *database, changes map[key]change) error {
	if err := fault.Hit(context.Background(), "store.write"); err != nil {
		return err
	}
	commits.Add(1)
	err := db.update(func(tx *bbolt.Tx) error {
		sums, err := openSums(tx)
		if err != nil {
			return err
		}
		for k, c := range changes {
			if c.gone {
				err = remove(tx, sums, k)
			} else {
				err = put(tx, k.table, k.key, c.data)
				if err == nil {
					err = sums.set(sumKey(k.table, k.key), checksum(c.data))
				}
			}
			if err != nil {
				return fmt.Errorf("table %s: %s: %w", k.table, k.key, err)
			}
		}
		return sums.stamp(tx)
	})
	if err != nil {
		return err
	}
	return fault.Hit(context.Background(), "store.written")
}

func put(tx *bbolt.Tx, table, name string, data []byte) error {
	b, err := tx.CreateBucketIfNotExists([]byte(table))
	if err != nil {
		return err
	}
	return b.Put([]byte(name), data)
}

func remove(tx *bbolt.Tx, sums *sums, k key) error {
	if b := tx.Bucket([]byte(k.table)); b != nil {
		if err := b.Delete([]byte(k.key)); err != nil {
			return err
		}
	}
	return sums.remove(sumKey(k.table, k.key))
}
