// SPDX-License-Identifier: Apache-2.0

package resource

import "time"

// restored is a time of the checkpoint that is compared with now. One in the future counts
// as now: the clock was set back since it was written, and nothing waits for that time to
// come again. It is measured on now's monotonic clock, which is not set.
func restored(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(-max(0, now.Sub(at)))
}
