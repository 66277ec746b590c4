// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"sync"
	"time"
)

// places bound how many readings are under way: a runtime that is asked about a thousand
// pods at once answers about all of them late.
type places chan struct{}

// patience is how long a reading keeps its place. A pod on which the runtime hangs delays
// the others by no more than that.
const patience = time.Second

// take waits for a place, or for the end of ctx; leave gives it back.
func (p places) take(ctx context.Context) (leave func()) {
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	release := sync.OnceFunc(func() { <-p })
	late := time.AfterFunc(patience, release)
	return func() {
		late.Stop()
		release()
	}
}
