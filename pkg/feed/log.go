// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"sync"

	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
)

// maxEvents is how many events a service keeps for a recorder that is away.
const maxEvents = 1000

// Events is a feed of Kubernetes Events, used as a bounded log: appended at one
// end, dropped at the other. A recorder that remembers its revision records
// each event once, with the bus and without.
type Events struct {
	*Owner[*eventv1.Event]
	mu   sync.Mutex
	last uint64
}

// NewEvents makes an empty log of events; it is complete from the start.
func NewEvents(name, epoch string, announce Announcer) *Events {
	e := &Events{Owner: NewOwner[*eventv1.Event](name, epoch, announce)}
	e.SetComplete(context.Background(), true)
	return e
}

// Emit appends an event.
func (e *Events) Emit(ctx context.Context, event *eventv1.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.Set(ctx, fmt.Sprintf("%016d", e.last+1), event); err != nil {
		return err
	}
	e.last++
	if e.last > maxEvents {
		e.Delete(ctx, fmt.Sprintf("%016d", e.last-maxEvents))
	}
	return nil
}
