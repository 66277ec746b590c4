// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Puller asks an owner for changes; feedv1.FeedServiceClient wrapped by Remote
// is one, Local is another.
type Puller interface {
	Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error)
}

// Remote pulls over a connection.
type Remote struct{ Client feedv1.FeedServiceClient }

// Pull implements Puller.
func (r Remote) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	return r.Client.Changes(ctx, req)
}

// pages asks for what changed, page after page, and makes one answer of them:
// the replica goes from one state of the owner to another in a single step.
func (m *Replica[T]) pages(ctx context.Context, since Revision) (*feedv1.ChangesResponse, error) {
	req := &feedv1.ChangesRequest{Feed: m.cfg.Feed, PageBytes: uint64(m.cfg.Page)} //nolint:gosec // not negative
	if since != (Revision{}) {
		req.Since = since.Proto()
	}
	var upserts []*feedv1.Item
	snapshot := false
	for {
		resp, err := m.cfg.Puller.Pull(ctx, req)
		if err != nil {
			return nil, err
		}
		if resp.GetSnapshot() { // the first page, or the owner cannot go on with the others
			snapshot, upserts, req.Since = true, nil, resp.GetRevision()
		}
		upserts = append(upserts, resp.GetUpserts()...)
		if !resp.GetMore() {
			resp.Snapshot, resp.Upserts = snapshot, upserts
			return resp, nil
		}
		if len(resp.GetUpserts()) == 0 {
			return nil, fmt.Errorf("feed %s: an empty page with more to come", m.cfg.Feed)
		}
		req.After = upserts[len(upserts)-1].GetN()
	}
}

// phase gives each process moments of its own for what untilSafety is about.
var phase = rand.N(time.Hour)

// untilSafety is the time until the next pull that nothing was announced for, at most period:
// the replicas of a process pull at the same moments, so that at rest it is woken once for
// all of them, and those of other processes at others.
func untilSafety(now time.Time, period time.Duration) time.Duration {
	return period - time.Duration(now.Add(phase).UnixNano()%int64(period))
}
