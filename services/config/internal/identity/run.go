// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/credential"
)

// Run keeps the credential current until ctx ends.
func (h *Holder) Run(ctx context.Context) error {
	defer h.stopAsking()
	watching := func() {}
	defer func() { watching() }()
	var watched []string
	for ctx.Err() == nil {
		wait := h.step(ctx)
		if !slices.Equal(watched, h.files) {
			watching()
			watched = h.files
			watching = h.watch(ctx, watched)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// step looks at the files and the clock, and does what has to be done. It
// returns how long nothing else has to be.
func (h *Holder) step(ctx context.Context) time.Duration {
	h.mu.Lock()
	s := h.settings
	h.mu.Unlock()
	now := h.cfg.Now()
	h.finishAsking(now)
	if s.Kubeconfig == "" {
		h.files = nil
		h.stopAsking()
		h.hold(s, nil, "", nil, Trouble{})
		return period
	}
	given, files, givenErr := credential.Load(s.Kubeconfig)
	h.files = files
	// Who is known otherwise, or cannot become anybody, needs no certificate.
	other := given != nil && !given.HasCertificate() && (!given.IsAnonymous() || s.Bootstrap == "")
	if !s.managed() || other {
		h.stopAsking()
		h.asGiven(s, given, givenErr, now)
		return period
	}
	return h.manage(ctx, s, given, givenErr, now)
}
