// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// evictionSignals are the signals a threshold may watch.
var evictionSignals = []string{
	"allocatableMemory.available",
	"containerfs.available", "containerfs.inodesFree",
	"imagefs.available", "imagefs.inodesFree",
	"memory.available",
	"nodefs.available", "nodefs.inodesFree",
	"pid.available",
}

// Amount is either an absolute quantity or a fraction of the capacity.
type Amount struct {
	// Quantity is nil when Fraction counts.
	Quantity *resource.Quantity
	// Fraction is between 0 and 1.
	Fraction float64
}

// Of returns the amount in the unit of whole: bytes, inodes or processes.
func (a Amount) Of(whole int64) int64 {
	if a.Quantity != nil {
		return a.Quantity.Value()
	}
	return int64(float64(whole) * a.Fraction)
}

// Threshold is one eviction threshold: pods are evicted while Signal is below Amount.
type Threshold struct {
	// Signal is what is watched, such as "memory.available".
	Signal string
	Amount Amount
	// Hard thresholds act at once, soft ones after GracePeriod.
	Hard        bool
	GracePeriod time.Duration
	// MinReclaim is the least to free once evicting; nil for no such demand.
	MinReclaim *Amount
}

// EvictionThresholds returns the hard and then the soft thresholds, each sorted
// by signal. Those of 0% and 100% are switched off and left out, as are any
// that [Validate] would refuse.
func (c *Config) EvictionThresholds() []Threshold {
	var out []Threshold
	k := &c.Kubelet
	for _, kind := range []struct {
		hard bool
		set  map[string]string
	}{{true, k.EvictionHard}, {false, k.EvictionSoft}} {
		for _, signal := range slices.Sorted(maps.Keys(kind.set)) {
			amount, err := parseThreshold(kind.set[signal])
			if err != nil || amount == nil {
				continue
			}
			t := Threshold{Signal: signal, Amount: *amount, Hard: kind.hard}
			if !kind.hard {
				t.GracePeriod, _ = time.ParseDuration(k.EvictionSoftGracePeriod[signal])
			}
			if least, ok := k.EvictionMinimumReclaim[signal]; ok {
				t.MinReclaim, _ = parseReclaim(least)
			}
			out = append(out, t)
		}
	}
	return out
}

// parseThreshold parses the value of a threshold; nil for one switched off.
func parseThreshold(s string) (*Amount, error) {
	if s == "0%" || s == "100%" {
		return nil, nil
	}
	if strings.HasSuffix(s, "%") {
		f, err := parsePercent(s)
		if err != nil {
			return nil, err
		}
		if f < 0 || f > 1 {
			return nil, errors.New("must be between 0% and 100%")
		}
		return &Amount{Fraction: f}, nil
	}
	q, err := parseQuantity(s)
	if err != nil {
		return nil, err
	}
	if q.Sign() <= 0 {
		return nil, errors.New("must be greater than zero")
	}
	return &Amount{Quantity: &q}, nil
}

// parseReclaim parses a minimum reclaim.
func parseReclaim(s string) (*Amount, error) {
	if strings.HasSuffix(s, "%") {
		f, err := parsePercent(s)
		if err != nil {
			return nil, err
		}
		if f <= 0 {
			return nil, errors.New("must be greater than 0%")
		}
		return &Amount{Fraction: f}, nil
	}
	q, err := parseQuantity(s)
	if err != nil {
		return nil, err
	}
	if q.Sign() < 0 {
		return nil, errors.New("must not be negative")
	}
	return &Amount{Quantity: &q}, nil
}

// evictions checks all eviction settings.
func (v *validator) evictions() {
	k := v.k
	check := func(path string, set map[string]string, parse func(string) (*Amount, error)) {
		v.signals(path, set, func(p *field.Path, value string) {
			if _, err := parse(value); err != nil {
				v.invalid(p, value, "%v", err)
			}
		})
	}
	check("evictionHard", k.EvictionHard, parseThreshold)
	check("evictionSoft", k.EvictionSoft, parseThreshold)
	check("evictionMinimumReclaim", k.EvictionMinimumReclaim, parseReclaim)
	v.signals("evictionSoftGracePeriod", k.EvictionSoftGracePeriod, func(p *field.Path, value string) {
		switch d, err := time.ParseDuration(value); {
		case err != nil:
			v.invalid(p, value, `must be a duration such as "90s"`)
		case d < 0:
			v.invalid(p, value, "must not be negative")
		}
	})
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		if amount, err := parseThreshold(k.EvictionSoft[signal]); err == nil && amount == nil {
			continue
		}
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok {
			v.required(at("evictionSoftGracePeriod").Key(signal), "each signal of evictionSoft needs a grace period")
		}
	}
	v.durNotNegative("evictionPressureTransitionPeriod", k.EvictionPressureTransitionPeriod.Duration)
}

// signals checks the keys of a map by signal, and each value of a known one.
func (v *validator) signals(path string, set map[string]string, check func(p *field.Path, value string)) {
	for _, signal := range slices.Sorted(maps.Keys(set)) {
		p := at(path).Key(signal)
		if !slices.Contains(evictionSignals, signal) {
			v.errs = append(v.errs, field.NotSupported(p, signal, evictionSignals))
			continue
		}
		check(p, set[signal])
	}
}
