// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// head is how long a pod is left alone before its tokens are asked for: the API server's
// authorizer, which watches pods as the node does, refused 13 of 100 requests that came at once.
const head = 5 * time.Millisecond

// ahead asks for the tokens that a pod's volumes are made of when the pod has just come, so
// that the API server makes them while the pod is admitted. It does so for one pod at a time,
// and one more may wait: when many come at once, their tokens are asked for as their turns
// come to be started.
type ahead struct {
	tokens *token.Cache
	next   chan *v1.Pod
}

func newAhead(tokens *token.Cache) *ahead {
	return &ahead{tokens: tokens, next: make(chan *v1.Pod, 1)}
}

// arrived takes note of a pod that was not there before.
func (a *ahead) arrived(p *merge.Pod) {
	if !p.Listed() || p.Pod.DeletionTimestamp != nil || p.Pod.Status.StartTime != nil {
		return // it has its tokens, or needs none
	}
	select {
	case a.next <- p.Pod:
	default:
	}
}

// run asks, until ctx ends. An error is for the service that asks next, and is told that way.
func (a *ahead) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-a.next:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(head):
			}
			for _, r := range token.OfVolumes(p) {
				_, _ = a.tokens.Get(ctx, r)
			}
		}
	}
}
