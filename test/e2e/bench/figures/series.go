// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"slices"
	"time"
)

// Series is a sample of one quantity, in the order it was measured.
type Series []float64

// Seconds is a series of durations.
func Seconds(all ...time.Duration) Series {
	s := make(Series, 0, len(all))
	for _, d := range all {
		s = append(s, d.Seconds())
	}
	return s
}

// Quantile is the smallest value that at least a part q of the sample does not
// exceed (nearest rank); NaN of an empty one.
func (s Series) Quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Max is the greatest value; NaN of an empty sample.
func (s Series) Max() float64 { return s.Quantile(1) }

// Mean is the arithmetic mean; NaN of an empty sample.
func (s Series) Mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s)) // 0/0 is NaN
}
