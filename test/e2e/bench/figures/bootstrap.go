// SPDX-License-Identifier: Apache-2.0

package figures

import "math/rand/v2"

// Interval is an estimate, and how far to trust it: were the measurement done again,
// the estimate would lie between Low and High 95 times of 100.
type Interval struct{ Low, Estimate, High float64 }

// samples drawn by Bootstrap.
const samples = 1000

// Bootstrap estimates a statistic of n things that were measured in turn, such as
// rounds or pairs, and its interval by the percentile bootstrap: the statistic of
// many draws of n of them, each as often as it comes. statistic gets the numbers of
// those drawn. What was measured together stays together, so that a noisy moment of
// the machine is one of n and not many. The draws are the same each time.
func Bootstrap(n int, statistic func(drawn []int) float64) Interval {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	estimate := statistic(all)
	random := rand.New(rand.NewPCG(1, 2))
	var drawn Series
	for range samples {
		for i := range all {
			all[i] = random.IntN(n)
		}
		drawn = append(drawn, statistic(all))
	}
	return Interval{drawn.Quantile(.025), estimate, drawn.Quantile(.975)}
}

// QuantileRatio is how a quantile of one series compares with that of another. Both
// were measured in rounds by turns, a round of the one with a round of the other.
func QuantileRatio(of, to []Series, q float64) Interval {
	pooled := func(from []Series, drawn []int) float64 {
		var pool Series
		for _, i := range drawn {
			pool = append(pool, from[i]...)
		}
		return pool.Quantile(q)
	}
	return Bootstrap(len(of), func(drawn []int) float64 { return pooled(of, drawn) / pooled(to, drawn) })
}

// MeanDifference is how much more one of each pair is than the other, in the mean.
func MeanDifference(of, than Series) Interval {
	return Bootstrap(len(of), func(drawn []int) float64 {
		sum := 0.0
		for _, i := range drawn {
			sum += of[i] - than[i]
		}
		return sum / float64(len(drawn))
	})
}
