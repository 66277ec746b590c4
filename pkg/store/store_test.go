package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sextant-node/sextant/pkg/store"
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
	table, err := store.NewTable(s, "records", store.JSON[record]())
	if err != nil {
		t.Fatal(err)
	}
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

func TestSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	cfg := config(path)
	cfg.Schema = 1
	s, table, _ := open(t, cfg)
	if err := table.Put("a", record{1}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)

	cfg = config(path)
	from := uint64(0)
	cfg.Migrate = func(_ *bbolt.Tx, was uint64) error { from = was; return nil }
	s, table, damage := open(t, cfg)
	if _, ok, _ := table.Get("a"); damage != nil || from != 1 || !ok {
		t.Errorf("migration from %d, damage %v, record kept %v", from, damage, ok)
	}
	closeStore(t, s)

	cfg.Schema = 1 // rolled back: the newer file is set aside, not misread
	s, _, damage = open(t, cfg)
	defer closeStore(t, s)
	if damage == nil || !strings.Contains(damage.String(), "newer") {
		t.Errorf("a newer file: %v", damage)
	}
}

func TestOneBadRecordIsSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, _, _ := open(t, config(path))
	words, err := store.NewTable(s, "records", store.JSON[string]())
	if err != nil {
		t.Fatal(err)
	}
	if err := words.Put("bad", "not a record"); err != nil {
		t.Fatal(err)
	}
	table, err := store.NewTable(s, "records", store.JSON[record]())
	if err != nil {
		t.Fatal(err)
	}
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
