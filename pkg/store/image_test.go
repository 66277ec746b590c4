// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// history is a store's file after each of a number of transactions, with what was
// in it then.
type history struct {
	files  [][]byte
	truths []map[string]string
}

// wrote reports whether a record had that value after some transaction up to i.
func (h history) wrote(i int, name, value string) bool {
	return slices.ContainsFunc(h.truths[:i+1], func(truth map[string]string) bool {
		was, had := truth[name]
		return had && was == value
	})
}

// writes makes a history of random changes, small and large, one a transaction.
func writes(t testing.TB, random *rand.Rand, n int) (h history) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, damage, err := Open(Config{Path: path, Schema: 1})
	if err != nil || damage != nil {
		t.Fatal(damage, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.db.bolt.NoSync = true // the power is cut by the tests
	truth := map[string]string{}
	for range n {
		k := key{[]string{"pods", "nodes"}[random.IntN(2)], fmt.Sprint(random.IntN(40))}
		c := change{gone: random.IntN(4) == 0}
		if c.gone {
			delete(truth, sumKey(k.table, k.key))
		} else {
			c.data = bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(1+random.IntN(9000)))
			truth[sumKey(k.table, k.key)] = string(c.data)
		}
		if err := s.write(k, c); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h.files, h.truths = append(h.files, data), append(h.truths, maps.Clone(truth))
	}
	return h
}

func (m *image) all() map[string]string {
	all := map[string]string{}
	for table, records := range m.records {
		for name, data := range records {
			if table != metaTable {
				all[sumKey(table, name)] = string(data)
			}
		}
	}
	return all
}

// TestImageReadsWhatBoltWrites: no file that bbolt wrote is called damaged, and
// every record is found.
func TestImageReadsWhatBoltWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h := writes(t, random, 200)
	for i, data := range h.files {
		m := readImage(data)
		if len(m.damage) > 0 || !maps.Equal(m.all(), h.truths[i]) {
			t.Fatalf("transaction %d: %v, %d records of %d", i, m.cause(), len(m.all()), len(h.truths[i]))
		}
	}
}

// bad is a file with a sector that cannot be read.
type bad struct {
	data []byte
	at   int64
}

func (b bad) ReadAt(p []byte, off int64) (int, error) {
	if n := b.at - off; n >= 0 && n < int64(len(p)) {
		return copy(p[:n], b.data[off:]), syscall.EIO
	}
	if n := copy(p, b.data[off:]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

// TestBadSectors: of a file with a sector that cannot be read, the records elsewhere
// are found, and none that is wrong.
func TestBadSectors(t *testing.T) {
	h := writes(t, rand.New(rand.NewPCG(7, 8)), 60)
	whole, truth := h.files[len(h.files)-1], h.truths[len(h.truths)-1]
	found := 0
	for at := int64(0); at < int64(len(whole)); at += page {
		data, err := readPages(bad{whole, at + 100}, int64(len(whole)))
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("at %d: %v", at, err)
		}
		m := readImage(data)
		for name, value := range m.all() {
			found++
			if truth[name] != value {
				t.Fatalf("at %d: %s is not what was written", at, name)
			}
		}
	}
	if least := len(truth) * len(whole) / page / 4; found < least {
		t.Errorf("%d records found in all, want %d at least", found, least)
	}
	if data, err := readPages(bad{whole, -1}, int64(len(whole))); err != nil || !bytes.Equal(data, whole) {
		t.Errorf("a good disk: %v", err)
	}
}

// TestImageReadsLargeTrees: branches, overflow pages, and a list of free pages that
// takes several.
func TestImageReadsLargeTrees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true})
	if err != nil {
		t.Fatal(err)
	}
	const n = 12000
	fill := func(from, to int) error {
		return db.Update(func(tx *bbolt.Tx) error {
			for i := from; i < to; i++ {
				if err := put(tx, "pods", fmt.Sprintf("%08d", i*7919%n), bytes.Repeat([]byte{'v'}, i%300)); err != nil {
					return err
				}
			}
			return sumAll(tx)
		})
	}
	if err := fill(0, n); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("pods")) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte(sumTable)); err != nil {
			return err
		}
		return put(tx, "pods", "one", []byte("record"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := fill(0, 3000); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := readImage(data)
	if len(m.damage) > 0 || len(m.records["pods"]) != 3001 {
		t.Errorf("%v, %d records", m.cause(), len(m.records["pods"]))
	}
}

// sector is what a disk writes whole or not at all.
const sector = 512

// TestThousandPowerCuts cuts the power while a transaction is written. bbolt writes
// pages, waits for the disk, then writes the head: a disk that keeps to that leaves
// the records of before or of after, and nobody calls the file damaged for it. A
// disk that lies, and writes the head before the pages, or loses the end of the
// file, leaves records that were written once, perhaps some transactions ago, for a page
// it did not write holds what was there before; or it is said that some are lost.
func TestThousandPowerCuts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	h := writes(t, random, 250)
	cuts, noticed := 0, 0
	for i := 1; i < len(h.files); i++ {
		before, after := h.files[i-1], h.files[i]
		for range 2 { // an honest disk
			cuts++
			m := readImage(torn(random, before, after, false))
			if len(m.damage) > 0 || !maps.Equal(m.all(), h.truths[i-1]) {
				t.Fatalf("cut in transaction %d: %v", i, m.cause())
			}
		}
		lying := [][]byte{torn(random, before, after, true), after[:random.IntN(len(after))]}
		for _, data := range lying {
			cuts++
			m := readImage(data)
			if len(m.damage) > 0 {
				noticed++
			}
			for name, value := range m.all() {
				if !h.wrote(i, name, value) {
					t.Fatalf("cut in transaction %d: %s has %d bytes that nobody wrote", i, name, len(value))
				}
			}
			if got := m.all(); len(m.damage) == 0 && !maps.Equal(got, h.truths[i]) && !maps.Equal(got, h.truths[i-1]) {
				t.Fatalf("cut in transaction %d: records lost, and nobody says so", i)
			}
		}
	}
	if cuts < 996 || noticed < 100 {
		t.Errorf("%d cuts, %d of them with damage", cuts, noticed)
	}
}

// torn is a file of which only some sectors of a transaction have reached the disk;
// those of the heads only if the disk lies.
func torn(random *rand.Rand, before, after []byte, lies bool) []byte {
	data := make([]byte, max(len(before), len(after)))
	copy(data, before)
	size := os.Getpagesize()
	for at := 0; at+sector <= len(after); at += sector {
		if head := at < 2*size; head && !lies || random.IntN(2) == 0 {
			continue
		}
		copy(data[at:], after[at:at+sector])
	}
	return data
}

// TestNoBitFlipGoesUnnoticed flips one bit at a time, everywhere: every record that
// is read is the one that was written, and where one is missing the file is called
// damaged.
func TestNoBitFlipGoesUnnoticed(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	h := writes(t, random, 60)
	whole, truth := h.files[len(h.files)-1], h.truths[len(h.truths)-1]
	flips, noticed := 0, 0
	names := bytes.Clone(whole) // the name under which the checksums are found
	for at := bytes.Index(names, []byte(sumTable)); at >= 0; at = bytes.Index(names, []byte(sumTable)) {
		names[at] ^= 1
	}
	if m := readImage(names); len(m.damage) == 0 || len(m.all()) > 0 {
		t.Errorf("without its checksums the file has %d records, %v", len(m.all()), m.cause())
	}
	for at := random.IntN(5); at < len(whole); at += 1 + random.IntN(99) {
		data := bytes.Clone(whole)
		data[at] ^= 1 << random.IntN(8)
		flips++
		m := readImage(data)
		if len(m.damage) > 0 {
			noticed++
		} else if !maps.Equal(m.all(), truth) {
			t.Fatalf("byte %d: records differ, and nobody says so", at)
		}
		for name, value := range m.all() {
			if truth[name] != value {
				t.Fatalf("byte %d: %s is not what was written", at, name)
			}
		}
	}
	if flips < 1000 || noticed < flips/10 {
		t.Errorf("%d flips, %d noticed", flips, noticed)
	}
}

// FuzzReadImage: no file makes reading panic or take much memory, and one that is not
// called damaged has the records that bbolt finds in it.
func FuzzReadImage(f *testing.F) {
	random := rand.New(rand.NewPCG(9, 10))
	h := writes(f, random, 40)
	for _, i := range []int{0, 5, len(h.files) - 1} {
		f.Add(h.files[i])
	}
	f.Add([]byte("not a state file"))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		size := os.Getpagesize()
		for at := pageHeader; at+headSize <= len(data) && at < 2*size; at += size { // as valid as heads can be
			head := data[at : at+headSize]
			order.PutUint32(head, headMagic)
			order.PutUint32(head[4:], headVersion)
			order.PutUint32(head[8:], uint32(size))
			sum := fnv.New64a()
			sum.Write(head[:56])
			order.PutUint64(head[56:], sum.Sum64())
		}
		var m *image
		fuzzing.Allocates(t, 1<<20+64*uint64(len(data)), func() {
			m = newImage(data)
			m.read()
		})
		if len(m.damage) > 0 {
			return
		}
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, damage, err := Open(Config{Path: path, Schema: 1})
		if err != nil {
			t.Fatal(err)
		}
		if damage != nil {
			return // of another schema
		}
		for table, records := range m.records {
			if all, err := s.all(table); err != nil || !maps.EqualFunc(all, records, bytes.Equal) {
				t.Errorf("table %q: bbolt finds %d records, %v; the image %d", table, len(all), err, len(records))
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
