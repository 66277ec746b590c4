// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"
)

// How much later than an undisturbed pod one that was made at a fault may be Ready: at
// the median and at the 99th percentile of many rounds, and ever. The last is mostly the
// start of processes: on a slow machine it may take as many times an undisturbed pod.
const (
	laterUsually = time.Second
	laterRarely  = 2 * time.Second
	laterEver    = 15 * time.Second
	laterTimes   = 4

	// many rounds are enough for percentiles.
	many = 100
)

// Slow judges how long pods that were made at a fault took, by how long the machine
// gave others at that time: what other work costs is in both.
func Slow(rounds []Round) (found []Finding) {
	var recovery, calm []time.Duration
	for _, r := range rounds {
		recovery, calm = known(recovery, r.Recovery), known(calm, r.Calm)
	}
	if len(calm) == 0 {
		return nil
	}
	check := func(what string, q float64, later time.Duration) {
		if got, limit := Quantile(recovery, q), Quantile(calm, q)+later; got > limit {
			found = append(found, Finding{Late, fmt.Sprintf("a new pod was Ready after %s (%s), undisturbed ones after %s", got, what, limit-later)})
		}
	}
	if len(recovery) >= many && len(calm) >= many {
		check("p50", .5, laterUsually)
		check("p99", .99, laterRarely)
	}
	check("max", 1, max(laterEver, laterTimes*Quantile(calm, 1)))
	return found
}
