// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// TestOnlyTheStampIsNew cuts the power when a disk that lies has written of a transaction
// the heads and the sector with its number, and nothing else: the tree then begins with a
// page of an earlier transaction, whole in itself, wherever pages have come to the same
// places.
func TestOnlyTheStampIsNew(t *testing.T) {
	cuts, told := 0, 0
	for seed := range uint64(30) {
		h := writes(t, rand.New(rand.NewPCG(seed, 4)), 250)
		for i := 1; i < len(h.files); i++ {
			before, after := h.files[i-1], h.files[i]
			m := newImage(after)
			if !m.readHeads() {
				t.Fatal(m.cause())
			}
			number := append([]byte(stampKey), binary.BigEndian.AppendUint64(nil, m.head.tx)...)
			for at := 0; at+sector <= len(after); at += sector {
				if !bytes.Contains(after[at:at+sector], number) {
					continue
				}
				data := make([]byte, max(len(before), len(after)))
				copy(data, before)
				copy(data, after[:2*os.Getpagesize()])
				copy(data[at:], after[at:at+sector])
				cuts++
				got := readImage(data)
				if len(got.damage) > 0 {
					told++
				} else if !maps.Equal(got.all(), h.truths[i]) && !maps.Equal(got.all(), h.truths[i-1]) {
					t.Fatalf("seed %d, transaction %d: records lost, and nobody says so", seed, i)
				}
			}
		}
	}
	if cuts < 6000 || told < 5000 {
		t.Errorf("%d cuts, %d of them told", cuts, told)
	}
}

// TestDigestOfOtherVersions: a file without a digest is whole, and has one with the next
// write; one whose digest is of before an older version wrote keeps every record.
func TestDigestOfOtherVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	// write is what a version before the digest does.
	write := func(tx *bbolt.Tx, name string) error {
		sums, err := tx.CreateBucketIfNotExists([]byte(sumTable))
		if err != nil {
			return err
		}
		if err := put(tx, "pods", name, []byte(name)); err != nil {
			return err
		}
		if err := sums.Put([]byte(sumKey("pods", name)), checksum([]byte(name))); err != nil {
			return err
		}
		return sums.Put([]byte(stampKey), binary.BigEndian.AppendUint64(nil, uint64(tx.ID())))
	}
	now := func(name string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			s, err := openSums(tx)
			if err != nil {
				return err
			}
			if err := put(tx, "pods", name, []byte(name)); err != nil {
				return err
			}
			if err := s.set(sumKey("pods", name), checksum([]byte(name))); err != nil {
				return err
			}
			return s.stamp(tx)
		}
	}
	look := func(step string, records, damage int) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if m := readImage(data); len(m.records["pods"]) != records || len(m.damage) != damage {
			t.Errorf("%s: %d records, %v", step, len(m.records["pods"]), m.cause())
		}
	}
	update := func(do func(*bbolt.Tx) error) {
		t.Helper()
		if err := db.Update(do); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *bbolt.Tx) error { return write(tx, "a") })
	look("without a digest", 1, 0)
	update(now("b"))
	look("with one", 2, 0)
	update(now("b"))
	look("the same record again", 2, 0)
	update(func(tx *bbolt.Tx) error {
		s, err := openSums(tx)
		if err != nil {
			return err
		}
		if err := remove(tx, s, key{"pods", "a"}); err != nil {
			return err
		}
		return s.stamp(tx)
	})
	look("a record removed", 1, 0)
	update(func(tx *bbolt.Tx) error { return write(tx, "c") })
	look("with an old one", 2, 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
