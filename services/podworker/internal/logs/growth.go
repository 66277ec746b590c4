// SPDX-License-Identifier: Apache-2.0

package logs

import "time"

// A log that grows is looked at before a writer of fastest bytes a second can take it from
// where it is to excess times its limit, at least each glancePeriod and at most
// each glanceSoon. Between two looks at any logs there is glanceLeast.
const (
	fastest      = 10e6
	excess       = 1.15
	glancePeriod = time.Second
	glanceSoon   = 50 * time.Millisecond
	glanceLeast  = 10 * time.Millisecond
)

// lookAgain is how soon to look at a log of this size again.
func lookAgain(size, limit int64) time.Duration {
	if limit < 0 {
		return glancePeriod
	}
	left := (excess*float64(limit) - float64(size)) / fastest * float64(time.Second)
	return time.Duration(min(max(left, float64(glanceSoon)), float64(glancePeriod)))
}
