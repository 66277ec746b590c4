// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sextant-node/sextant/pkg/wire"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

const (
	// maxEvents is how many events a service keeps for a recorder that is away.
	maxEvents = 1000
	// lately is how long before its end a process may have emitted what no recorder has heard.
	lately = 10 * time.Second
	// maxKept is the largest size of a file of events, in bytes. It is truncated before it grows beyond.
	maxKept = 256 << 10
	// formerly is the prefix of the keys of items that an earlier process emitted; it sorts before digits.
	formerly = "-"
)

// Events is a feed of Kubernetes Events, used as a bounded log: appended at one
// end, dropped at the other. A recorder that remembers its revision records
// each event once, with the bus and without.
type Events struct {
	*Owner[*eventv1.Event]
	epoch string

	mu     sync.Mutex
	last   uint64
	former []string // items of an earlier process, the oldest first
	file   *os.File // nil without Keep
	size   int
}

// NewEvents makes an empty log of events; it is complete from the start.
func NewEvents(name, epoch string, announce Announcer) *Events {
	e := &Events{Owner: NewOwner[*eventv1.Event](name, epoch, announce), epoch: epoch}
	e.SetComplete(context.Background(), true)
	return e
}

// Emit appends an event, which the caller must not change afterwards. An event that could not be
// written to the file of Keep is in the feed all the same, and the error says so.
func (e *Events) Emit(ctx context.Context, event *eventv1.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	item := fmt.Sprintf("%016d", e.last+1)
	kept := e.keep(e.epoch+"/"+item, event)
	if _, err := e.Set(ctx, item, event); err != nil {
		return err
	}
	e.last++
	switch {
	case len(e.former) > 0 && int(e.last)+len(e.former) > maxEvents:
		e.Delete(ctx, e.former[0])
		e.former = e.former[1:]
	case e.last > maxEvents:
		e.Delete(ctx, fmt.Sprintf("%016d", e.last-maxEvents))
	}
	if kept != nil {
		return fmt.Errorf("in the feed, and not in its file: %w", kept)
	}
	return nil
}

// Keep has the events of the last seconds outlive a process that is killed before a recorder
// has heard of them. What is emitted is written to a file, which only has to outlive the process
// and not the machine. What an earlier process has written there lately is in the feed again, as
// items that EventID takes for the same. Events with a key of their own are not written: their
// service emits them again.
func (e *Events) Keep(ctx context.Context, path string, now time.Time) error {
	told, err := readEvents(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.file = file
	for _, event := range told {
		if age := now.Sub(event.GetTime().AsTime()); age > lately || age < -lately {
			continue
		}
		id := event.GetKey()
		event.Key = ""
		if err := e.keep(id, event); err != nil {
			return err
		}
		if _, err := e.Set(ctx, formerly+id, event); err != nil {
			return err
		}
		e.former = append(e.former, formerly+id)
	}
	return nil
}

// keep writes an event to the file, if there is one.
func (e *Events) keep(id string, event *eventv1.Event) error {
	if e.file == nil || event.GetKey() != "" {
		return nil
	}
	event.Key = id
	data, err := wire.Marshal(event)
	event.Key = ""
	if err != nil {
		return err
	}
	line := protowire.AppendBytes(nil, data) // as package protodelim has it
	if e.size += len(line); e.size > maxKept {
		if err := e.file.Truncate(0); err != nil {
			return err
		}
		e.size = len(line)
	}
	_, err = e.file.Write(line)
	return err
}

// readEvents reads a file of events as far as it is whole: its writer was killed.
func readEvents(path string) (all []*eventv1.Event, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written by it
	lines := bufio.NewReader(io.LimitReader(file, 2*maxKept))
	for {
		event := &eventv1.Event{}
		if err := (protodelim.UnmarshalOptions{MaxSize: maxKept}).UnmarshalFrom(lines, event); err != nil {
			return all, nil
		}
		all = append(all, event)
	}
}

// EventID is the name for ever of an item of a feed of events: the epoch of the process that has
// emitted it, and its key then. epoch is that of the feed the item was found in.
func EventID(epoch, item string) (of, key string) {
	if id, again := strings.CutPrefix(item, formerly); again {
		if of, key, ok := strings.Cut(id, "/"); ok {
			return of, key
		}
	}
	return epoch, item
}
