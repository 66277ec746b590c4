// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// flight is an action under way.
type flight struct {
	action    step.Action
	since     time.Time
	cancel    context.CancelFunc
	cancelled bool
	queued    bool // it waits for its turn
}

// outcome is the result of an action and the revision a command answered with.
type outcome struct {
	step.Result
	revision feed.Revision
}
