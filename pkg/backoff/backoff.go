// SPDX-License-Identifier: Apache-2.0

// Package backoff is how long to wait between tries of something that fails. Work is
// the loop of what is done at each signal and tried again while it fails; others count the
// failures and keep the time themselves. The waits of containers and image pulls, which
// outlive a process and reset by age, are in pkg/pod/restart.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Doubling waits Least after the first failure, then twice as long after each further one,
// up to Most.
type Doubling struct{ Least, Most time.Duration }

// After is the wait after so many failures in a row; Least for fewer than one.
func (d Doubling) After(failures int) time.Duration {
	wait := d.Least
	for ; failures > 1 && wait < d.Most; failures-- {
		wait *= 2
	}
	return min(wait, d.Most)
}

// Jittered is After, at random from half as long to half as long again, so that nodes that
// failed at the same time do not all come back at the same time.
func (d Doubling) Jittered(failures int) time.Duration {
	wait := d.After(failures)
	return wait/2 + rand.N(wait)
}

// Wait waits as long as After says; false if ctx ends before.
func (d Doubling) Wait(ctx context.Context, failures int) bool {
	timer := time.NewTimer(d.After(failures))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Work calls do now and after each wake, and again after a jittered wait while it is not
// done, until ctx ends.
func (d Doubling) Work(ctx context.Context, wake <-chan struct{}, do func(context.Context) (done bool)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		switch {
		case do(ctx):
			failures = 0
		case ctx.Err() != nil:
			return
		default:
			failures++
			timer.Reset(d.Jittered(failures))
		}
	}
}
