// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestTheLaterWriteCounts: of what is written to one record while the disk is busy.
func TestTheLaterWriteCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	opened := func() (*Store, *Table[int]) {
		s, damage, err := Open(Config{Path: path, Schema: 1})
		if err != nil || damage != nil {
			t.Fatal(damage, err)
		}
		table := NewTable(s, "records", JSON[int]())
		return s, table
	}
	s, table := opened()
	s.mu.Lock()
	s.writing = true // a transaction is under way
	s.mu.Unlock()
	queued := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue)
	}
	var writers sync.WaitGroup
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for i := range 3 {
		writers.Go(func() {
			if err := table.Put("a", i); err != nil {
				t.Error(err)
			}
		})
		for limit := time.Now().Add(time.Minute); queued() <= i; <-again.C {
			if time.Now().After(limit) {
				t.Fatalf("%d writes wait, want %d", queued(), i+1)
			}
		}
	}
	go s.drain()
	writers.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, table = opened()
	if got, ok, err := table.Get("a"); got != 2 || !ok || err != nil {
		t.Errorf("record %v, %v, %v: want the last that was written", got, ok, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestOldRecordsDoNotComeBack: what a file is found to hold, when it can be read again,
// counts less than what was written and deleted meanwhile.
func TestOldRecordsDoNotComeBack(t *testing.T) {
	s, _, err := Open(Config{Path: filepath.Join(t.TempDir(), "state.db"), Schema: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is written
	table := NewTable(s, "records", JSON[int]())
	s.mu.Lock()
	s.pending[key{"records", "changed"}] = change{data: []byte("2")}
	s.pending[key{"records", "deleted"}] = change{gone: true}
	old := map[string][]byte{"changed": []byte("1"), "deleted": []byte("1"), "kept": []byte("1")}
	s.take(opened{db: s.db, records: map[string]map[string][]byte{"records": old}})
	s.mu.Unlock()
	all, err := table.All()
	if want := map[string]int{"changed": 2, "kept": 1}; err != nil || !maps.Equal(all, want) {
		t.Errorf("records %v, %v, want %v", all, err, want)
	}
}
