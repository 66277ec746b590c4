// SPDX-License-Identifier: Apache-2.0

package feedtest

import (
	"context"
	"fmt"

	"github.com/sextant-node/sextant/pkg/feed"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Local pulls from owners in the same process, by the feed's name.
type Local map[string]feed.Source

// Pull implements feed.Puller.
func (l Local) Pull(_ context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	f, ok := l[req.GetFeed()]
	if !ok {
		return nil, fmt.Errorf("no feed %q", req.GetFeed())
	}
	return f.Changes(req), nil
}
