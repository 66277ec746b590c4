// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"math"
	"time"
)

// mostSeconds is 73 years: a quarter of the longest Duration, so that what is computed
// from one of these does not overflow either.
const mostSeconds = int64(math.MaxInt64/4) / int64(time.Second)

// Seconds is a number of seconds of the API as a Duration. The API puts no upper bound
// on terminationGracePeriodSeconds and others, and people write 2^63-1 for "never":
// what is too long for a Duration is as long as it may be.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, -mostSeconds), mostSeconds)) * time.Second
}
