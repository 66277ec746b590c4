// SPDX-License-Identifier: Apache-2.0

// Package file is the source of pods in a manifest folder, or one manifest
// file, on this machine.
//
// The folder is read whole at the start, after each change (inotify) and each
// period; every reading is the same code, so nothing depends on a notification.
// A file holds one pod. A file that cannot be used is an entry with a problem
// and harms no other. The source keeps no state of its own beyond this process.
//
// A file that is removed, or renamed away, and is there again at the next reading
// says so in its entry, the same content or not: as in the kubelet, that ends its
// pod and starts it again. A file that is written in place, or that another is
// renamed to, is only read.
package file

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/watch"
)

// Config of the source.
type Config struct {
	// Path is staticPodPath.
	Path string
	Node string
	// Period is fileCheckFrequency.
	Period time.Duration
	// Changed is called after the listing changed, from the source's goroutine.
	Changed func()
	// Now is the clock.
	Now func() time.Time
	Log *slog.Logger
}

// Source reads manifests. Make it with New.
type Source struct {
	cfg Config

	mu      sync.Mutex
	listing merge.Listing
	read    map[string]decoded // by path: what the last reading gave
	gone    map[string]bool    // paths of it that were removed since
}

// decoded remembers a file, so that an unchanged one is not decoded again and
// yields the very same pods.
type decoded struct {
	sum   [sha256.Size]byte
	whole bool // the file could be read
	entry merge.Entry
}

// New makes a source that has read nothing yet.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, listing: merge.Listing{Source: pod.SourceFile}, read: map[string]decoded{}, gone: map[string]bool{}}
}

// Listing is what the source knows now.
func (s *Source) Listing() merge.Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listing
}

// Run reads until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	return watch.Run(ctx, watch.Config{
		Paths: []string{s.cfg.Path}, Period: s.cfg.Period, Look: s.refresh, Gone: s.removed, Log: s.cfg.Log,
	})
}

// removed takes in that a file is gone, or was: it may be there again.
func (s *Source) removed(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.read[path]; ok {
		s.gone[path] = true
	}
}

func (s *Source) refresh() {
	if s.update(list(s.cfg.Path)) {
		s.cfg.Changed()
	}
}

// update takes a reading in and reports whether anything changed.
func (s *Source) update(files []found, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		changed := s.listing.Err != err.Error()
		s.listing.Err = err.Error()
		return changed
	}
	changed := !s.listing.Heard || s.listing.Err != "" || len(files) != len(s.listing.Entries)
	next := make(map[string]decoded, len(files))
	entries := make([]merge.Entry, 0, len(files))
	for i, f := range files {
		d := s.decode(f)
		d.entry.Rewritten = s.read[f.path].entry.Rewritten
		if s.gone[f.path] {
			d.entry.Rewritten = s.cfg.Now()
		}
		next[f.path] = d
		entries = append(entries, d.entry)
		changed = changed || !same(s.listing.Entries[i], d.entry)
	}
	s.read, s.gone = next, map[string]bool{}
	s.listing = merge.Listing{Source: pod.SourceFile, Heard: true, Entries: entries}
	return changed
}

// decode turns a file into an entry, the former one if the file is the same.
func (s *Source) decode(f found) decoded {
	if f.err != nil {
		return decoded{entry: decodeFile(f, s.cfg.Node)}
	}
	sum := sha256.Sum256(f.data)
	if was, ok := s.read[f.path]; ok && was.whole && was.sum == sum {
		return was
	}
	return decoded{sum: sum, whole: true, entry: decodeFile(f, s.cfg.Node)}
}

// same reports whether two entries say the same.
func same(a, b merge.Entry) bool {
	if a.Origin != b.Origin || !a.Rewritten.Equal(b.Rewritten) || len(a.Pods) != len(b.Pods) || (a.Problem == nil) != (b.Problem == nil) {
		return false
	}
	for i := range a.Pods {
		if a.Pods[i] != b.Pods[i] {
			return false
		}
	}
	return a.Problem == nil || *a.Problem == *b.Problem
}
