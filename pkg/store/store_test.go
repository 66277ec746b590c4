// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sextant-node/sextant/pkg/store"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

type record struct{ N int }

func config(path string) store.Config {
	return store.Config{Path: path, Schema: 2, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
}

func open(t *testing.T, cfg store.Config) (*store.Store, *store.Table[record], *store.Damage) {
	t.Helper()
	s, damage, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	table := store.NewTable(s, "records", store.JSON[record]())
	return s, table, damage
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRecordsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "state.db")
	s, table, damage := open(t, config(path))
	if damage != nil {
		t.Fatal(damage)
	}
	for i, key := range []string{"a", "b", "c"} {
		if err := table.Put(key, record{i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(table.Delete("b"), table.Delete("never")); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s, table, damage = open(t, config(path))
	defer closeStore(t, s)
	all, err := table.All()
	if err != nil || damage != nil || len(all) != 2 || all["c"].N != 2 {
		t.Errorf("records %v, damage %v, error %v", all, damage, err)
	}
	if _, ok, err := table.Get("b"); ok || err != nil {
		t.Errorf("deleted record: %v %v", ok, err)
	}
}

func TestWritersShareAFlush(t *testing.T) {
	s, table, _ := open(t, config(filepath.Join(t.TempDir(), "state.db")))
	defer closeStore(t, s)
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := table.Put(string(rune('A'+i)), record{i}); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
	if all, err := table.All(); err != nil || len(all) != 100 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// TestDamage: whatever is in the file, the store opens, and the file is kept.
func TestDamage(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.db")
	s, table, _ := open(t, config(whole))
	for i := range 80 {
		if err := table.Put(strings.Repeat("k", 40*i+1), record{i}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	good, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	middle := bytes.Clone(good)
	for i := 3 * 4096; i < len(middle)-4096; i++ {
		middle[i] ^= 0x5a
	}
	freelist := bytes.Clone(good)
	clear(freelist[freelistPage(good)*4096:][:4096])
	for name, data := range map[string][]byte{
		"garbage":              bytes.Repeat([]byte("garbage "), 4096),
		"short":                []byte("x"),
		"zeroes":               make([]byte, len(good)),
		"cut in half":          good[:len(good)/2],
		"cut to its head":      good[:2*4096],
		"pages overwritten":    middle,
		"head overwritten":     append(make([]byte, 2*4096), good[2*4096:]...),
		"freelist overwritten": freelist,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, table, damage := open(t, config(path))
			defer closeStore(t, s)
			if damage == nil {
				t.Fatal("damage not noticed")
			}
			kept, err := os.ReadFile(damage.Aside)
			if err != nil || !bytes.Equal(kept, data) {
				t.Errorf("the damaged file was not kept as it was: %v", err)
			}
			if err := table.Put("a", record{1}); err != nil {
				t.Errorf("the new file: %v", err)
			}
		})
	}
}

// freelistPage is where the newer of the two heads of a bbolt file says the list
// of free pages is (bbolt's type meta, after a page's header of 16 bytes).
func freelistPage(file []byte) uint64 {
	page, newest := uint64(0), uint64(0)
	for head := range 2 {
		meta := file[head*4096+16:]
		if tx := binary.NativeEndian.Uint64(meta[48:]); tx >= newest {
			page, newest = binary.NativeEndian.Uint64(meta[32:]), tx
		}
	}
	return page
}

// TestCompact: what was deleted or replaced is not in the file any more, what is there
// stays, and writers go on meanwhile.
func TestCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, table, _ := open(t, config(path))
	words := store.NewTable(s, "words", store.JSON[string]())
	for i := range 100 {
		if err := errors.Join(words.Put(fmt.Sprint(i), strings.Repeat("former", 50)), table.Put(fmt.Sprint(i), record{i})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		var err error
		if i%2 == 0 {
			err = words.Delete(fmt.Sprint(i))
		} else {
			err = words.Put(fmt.Sprint(i), "new")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	residue := func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(data, []byte("former"))
	}
	if !residue() {
		t.Fatal("nothing was left behind: the test shows nothing")
	}
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			if err := table.Put(fmt.Sprint("later", i), record{i}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if residue() {
		t.Error("what was deleted is in the file")
	}
	for range 2 {
		kept, err := words.All()
		if err != nil || len(kept) != 50 || kept["1"] != "new" {
			t.Errorf("%d words, %v", len(kept), err)
		}
		all, err := table.All()
		if err != nil || len(all) != 120 || all["later7"].N != 7 {
			t.Errorf("%d records, %v", len(all), err)
		}
		closeStore(t, s)
		var damage *store.Damage
		if s, table, damage = open(t, config(path)); damage != nil {
			t.Fatal(damage)
		}
		words = store.NewTable(s, "words", store.JSON[string]())
	}
	closeStore(t, s)
	if err := s.Compact(); err == nil {
		t.Error("a closed store was compacted")
	}
}

// TestSchema: a file of an older or a newer version is set aside, not misread.
func TestSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	cfg := config(path)
	for i, schema := range []uint64{1, 2, 1} {
		cfg.Schema = schema
		s, table, damage := open(t, cfg)
		if i > 0 {
			want := fmt.Sprintf("schema %d, and this version knows %d", 3-schema, schema)
			if damage == nil || !strings.Contains(damage.String(), want) || damage.Aside == "" {
				t.Errorf("damage %v, want %s", damage, want)
			}
		}
		if _, ok, err := table.Get("a"); ok || err != nil {
			t.Errorf("schema %d: a record of another is there: %v, %v", schema, ok, err)
		}
		if err := table.Put("a", record{1}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	}
}

// TestARecordIsKeptWhateverItsText: text that is not UTF-8 keeps no record from the
// disk.
func TestARecordIsKeptWhateverItsText(t *testing.T) {
	s, _, _ := open(t, config(filepath.Join(t.TempDir(), "state.db")))
	defer closeStore(t, s)
	table := store.NewTable(s, "events", store.Proto[*eventv1.Event]())
	for _, text := range []string{"whole", "caf\xe9"} {
		if err := table.Put("a", &eventv1.Event{Message: text}); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok, err := table.Get("a"); !ok || err != nil || got.GetMessage() != "caf\uFFFD" {
		t.Errorf("record %v, %v, %v", got, ok, err)
	}
}

func TestOneBadRecordIsSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, _, _ := open(t, config(path))
	words := store.NewTable(s, "records", store.JSON[string]())
	if err := words.Put("bad", "not a record"); err != nil {
		t.Fatal(err)
	}
	table := store.NewTable(s, "records", store.JSON[record]())
	if err := table.Put("good", record{7}); err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	if all, err := table.All(); err != nil || len(all) != 1 || all["good"].N != 7 {
		t.Errorf("all: %v %v", all, err)
	}
	if _, _, err := table.Get("bad"); err == nil {
		t.Error("a bad record was read")
	}
}

// withoutSums writes a file as versions did that knew no checksums.
func withoutSums(t *testing.T, path string, records map[string]string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte("records"))
		if err != nil {
			return err
		}
		for key, value := range records {
			if err := b.Put([]byte(key), []byte(value)); err != nil {
				return err
			}
		}
		return meta.Put([]byte("schema"), binary.BigEndian.AppendUint64(nil, 2))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
