// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Policy is how waits grow.
type Policy struct {
	// Base is the first wait.
	Base time.Duration
	// Max is the longest.
	Max time.Duration
	// ResetAfter is how long a thing must go well for its next failure to count as the
	// first again.
	ResetAfter time.Duration
}

// The kubelet's values.
const (
	DefaultBase       = 10 * time.Second
	DefaultMax        = 300 * time.Second
	DefaultResetAfter = 600 * time.Second
)

// CrashPolicy is the policy for containers that end. maxPeriod is
// crashLoopBackOff.maxContainerRestartPeriod, 0 when it is not configured; the wait that
// resets stays at 600 s whatever the cap. Base never exceeds the cap.
func CrashPolicy(maxPeriod time.Duration) Policy {
	if maxPeriod <= 0 {
		maxPeriod = DefaultMax
	}
	return Policy{Base: min(DefaultBase, maxPeriod), Max: maxPeriod, ResetAfter: DefaultResetAfter}
}

// FastCrashPolicy is CrashPolicy as the gate ReduceDefaultCrashLoopBackOffDecay has
// it: 1 s at first and, where no cap is configured, 60 s at most.
func FastCrashPolicy(maxPeriod time.Duration) Policy {
	if maxPeriod <= 0 {
		maxPeriod = time.Minute
	}
	return Policy{Base: min(time.Second, maxPeriod), Max: maxPeriod, ResetAfter: DefaultResetAfter}
}

// PullPolicy is the policy for image pulls that fail.
func PullPolicy() Policy {
	return Policy{Base: DefaultBase, Max: DefaultMax, ResetAfter: 2 * DefaultMax}
}

// Backoff is the back-off of one key. The zero value holds nothing back.
type Backoff struct {
	// Delay is the wait before the next attempt, counted from the failure.
	Delay time.Duration `json:"delay,omitempty"`
	// Updated is when Delay was last raised: when the last attempt began (containers) or
	// failed (pulls).
	Updated time.Time `json:"updated,omitzero"`
	// LastError is what failed, for the message while waiting.
	LastError string `json:"lastError,omitempty"`
}

// Due is when the next attempt may be made after a failure at failed: the container's
// finishedAt, or for a pull Updated. It is failed itself when nothing holds it back.
func (p Policy) Due(b Backoff, failed time.Time) time.Time {
	if b.Delay == 0 || p.expired(b, failed) {
		return failed
	}
	return failed.Add(b.Delay)
}

// Holds reports whether, at now, the attempt after a failure at failed has to wait.
func (p Policy) Holds(b Backoff, failed, now time.Time) bool {
	return now.Before(p.Due(b, failed))
}

// Next is the back-off after one more attempt at now, failed being the failure that made
// it necessary: doubled up to Max, or back at Base when things went well for ResetAfter.
//
// A container's back-off is raised when it is started again, so the first restart comes
// at once, the second after Base, the third after twice that. A pull's is raised when
// the pull failed (failed equals now): the second pull waits Base already.
func (p Policy) Next(b Backoff, failed, now time.Time) Backoff {
	b.LastError = ""
	switch {
	case b.Delay == 0 || p.expired(b, failed):
		b.Delay = p.Base
	default:
		b.Delay = min(2*b.Delay, p.Max)
	}
	b.Updated = now
	return b
}

func (p Policy) expired(b Backoff, at time.Time) bool {
	return at.Sub(b.Updated) > p.ResetAfter
}

// CrashKey identifies what a container's back-off belongs to: a change of image or
// resources starts afresh.
func CrashKey(p *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join([]string{
		p.Name, p.Namespace, string(p.UID), c.Name, c.Image, c.Resources.String(),
	}, "/")))
	return strconv.FormatUint(h.Sum64(), 16)
}
