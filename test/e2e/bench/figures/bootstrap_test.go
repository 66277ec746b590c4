// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"math"
	"math/rand/v2"
	"testing"
)

func within(t *testing.T, what string, i Interval, low, estimate, high float64) {
	t.Helper()
	const off = 0.05
	if math.Abs(i.Low-low) > off || math.Abs(i.Estimate-estimate) > off || math.Abs(i.High-high) > off {
		t.Errorf("%s: %+v, want about %v, %v, %v", what, i, low, estimate, high)
	}
}

func TestMeanDifference(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var of, than Series
	for range 400 {
		noise := 100 * random.Float64() // common to a pair: it does not matter
		of, than = append(of, noise+1+random.NormFloat64()), append(than, noise)
	}
	// The standard error of the mean is 1/√400; 1.96 of those to either side.
	i := MeanDifference(of, than)
	within(t, "difference", i, i.Estimate-.098, 1, i.Estimate+.098)
	within(t, "the same", MeanDifference(than, than), 0, 0, 0)
}

func TestQuantileRatio(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	rounds := func(scale float64) (all []Series) {
		for range 30 {
			var s Series
			for range 20 {
				s = append(s, scale*(1+random.Float64()))
			}
			all = append(all, s)
		}
		return all
	}
	if i := QuantileRatio(rounds(1), rounds(1), .99); i.Low > 1 || i.High < 1 || i.High-i.Low > .1 {
		t.Errorf("alike: %+v", i)
	}
	if i := QuantileRatio(rounds(1.5), rounds(1), .99); i.Low < 1.4 || i.High > 1.6 {
		t.Errorf("half as much again: %+v", i)
	}
	// One bad moment of the machine is one round, and not a finding.
	bad := rounds(1)
	for i := range bad[7] {
		bad[7][i] *= 5
	}
	if i := QuantileRatio(bad, rounds(1), .99); i.Low > 1.1 {
		t.Errorf("one bad round: %+v", i)
	}
}
