// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

func conditionOf(signal string) v1.NodeConditionType {
	switch resources[signal] {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case pids:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// Thresholds completes those of the configuration as a kubelet does. With allocatable,
// that of memory holds for all pods together too. The file system of writable layers
// has the thresholds of the one it is: its own are left out.
func Thresholds(configured []kubeletconfig.Threshold, allocatable bool, layout Layout) []kubeletconfig.Threshold {
	var all []kubeletconfig.Threshold
	from := "nodefs."
	if layout == Dedicated {
		from = "imagefs."
	}
	for _, t := range configured {
		if strings.HasPrefix(t.Signal, "containerfs.") {
			continue
		}
		all = append(all, t)
		if t.Signal == MemoryAvailable && t.Hard && allocatable {
			t.Signal = AllocatableMemory
			all = append(all, t)
		}
		if what, ok := strings.CutPrefix(t.Signal, from); ok {
			t.Signal = "containerfs." + what
			all = append(all, t)
		}
	}
	return all
}

func keyOf(t kubeletconfig.Threshold) Key { return Key{t.Signal, t.Hard} }

// met are the thresholds that observations are below, by the minimum reclaim too if
// that is to be there.
func met(all []kubeletconfig.Threshold, observed map[string]Observation, reclaim bool) []kubeletconfig.Threshold {
	return slices.DeleteFunc(slices.Clone(all), func(t kubeletconfig.Threshold) bool {
		o, ok := observed[t.Signal]
		if !ok {
			return true
		}
		want := t.Amount.Of(o.Capacity)
		if reclaim && t.MinReclaim != nil {
			want += t.MinReclaim.Of(o.Capacity)
		}
		return o.Available >= want
	})
}

// Crossing is how much memory is in use where a threshold is crossed. It holds for as long as
// what is inactive does not change much.
type Crossing struct {
	Usage int64
	// Reached: as much was in use when it was observed.
	Reached bool
}

// Crossings are those of the thresholds of memory, by signal. A kernel can notify of them.
func Crossings(all []kubeletconfig.Threshold, observed map[string]Observation) map[string][]Crossing {
	crossings := map[string][]Crossing{}
	for _, t := range all {
		if o, ok := observed[t.Signal]; ok && resources[t.Signal] == v1.ResourceMemory {
			amount := t.Amount.Of(o.Capacity)
			crossings[t.Signal] = append(crossings[t.Signal], Crossing{Usage: o.Capacity - amount + o.Inactive, Reached: o.Available <= amount})
		}
	}
	return crossings
}

// judge brings the history of thresholds and conditions up to now, and returns the
// thresholds to act on: met for their grace, and observed since the last pass.
func judge(in Input, next *History) []kubeletconfig.Threshold {
	now := met(in.Config.Thresholds, in.Observed, false)
	lasting := met(in.Config.Thresholds, in.Observed, true)
	crossed := slices.DeleteFunc(slices.Clone(in.Config.Thresholds), func(t kubeletconfig.Threshold) bool {
		same := func(o kubeletconfig.Threshold) bool { return keyOf(o) == keyOf(t) }
		return !slices.ContainsFunc(now, same) && !(in.History.Met[keyOf(t)] && slices.ContainsFunc(lasting, same))
	})
	next.Seen, next.Met, next.Observed = map[Key]time.Time{}, map[Key]bool{}, map[string]time.Time{}
	var acting []kubeletconfig.Threshold
	for _, t := range crossed {
		since, ok := in.History.Seen[keyOf(t)]
		if !ok {
			since = in.Now
		}
		next.Seen[keyOf(t)] = since
		if in.Now.Sub(since) < t.GracePeriod {
			continue
		}
		next.Met[keyOf(t)] = true
		disk := conditionOf(t.Signal) == v1.NodeDiskPressure
		if disk && (in.Config.Layout == "" || in.Now.Sub(in.Left).Abs() < Freeing) {
			continue
		}
		if in.Observed[t.Signal].Time.After(in.History.Observed[t.Signal]) {
			acting = append(acting, t)
		}
	}
	for signal, o := range in.Observed {
		next.Observed[signal] = o.Time
	}
	next.Conditions = conditions(in, crossed)
	// Memory first: without it nothing else can be reclaimed.
	slices.SortStableFunc(acting, func(a, b kubeletconfig.Threshold) int {
		return first(resources[a.Signal] == v1.ResourceMemory, resources[b.Signal] == v1.ResourceMemory)
	})
	return acting
}

// conditions are on from the first observation below a threshold until none was made
// for the transition period.
func conditions(in Input, crossed []kubeletconfig.Threshold) map[v1.NodeConditionType]Condition {
	reasons := map[v1.NodeConditionType][]string{}
	for _, t := range crossed {
		o := in.Observed[t.Signal]
		reasons[conditionOf(t.Signal)] = append(reasons[conditionOf(t.Signal)], fmt.Sprintf("%s: %d of at least %d", t.Signal, o.Available, t.Amount.Of(o.Capacity)))
	}
	next := map[v1.NodeConditionType]Condition{}
	for _, name := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		c, known := in.History.Conditions[name]
		if !known {
			c.Since = in.Now
		}
		switch why := reasons[name]; {
		case len(why) > 0:
			if !c.Under {
				c.Under, c.Since = true, in.Now
			}
			slices.Sort(why)
			c.Crossed, c.Message = in.Now, strings.Join(slices.Compact(why), ", ")
		case c.Under && c.over(in.Config.Transition, in.Now):
			c = Condition{Since: in.Now, Crossed: c.Crossed}
		}
		next[name] = c
	}
	return next
}

// over reports whether a condition has outlived its transition period.
func (c Condition) over(transition time.Duration, now time.Time) bool {
	return now.Sub(c.Crossed) >= transition
}

// Lasting are the conditions of a life before whose transition period goes on.
func Lasting(kept map[v1.NodeConditionType]Condition, transition time.Duration, now time.Time) map[v1.NodeConditionType]Condition {
	lasting := maps.Clone(kept)
	maps.DeleteFunc(lasting, func(_ v1.NodeConditionType, c Condition) bool { return c.over(transition, now) })
	return lasting
}

// short says what was available of a resource, by the first threshold that is about it.
func short(of v1.ResourceName, acting []kubeletconfig.Threshold, observed map[string]Observation) string {
	for _, t := range acting {
		o, ok := observed[t.Signal]
		if resources[t.Signal] != of || !ok {
			continue
		}
		format := resource.BinarySI
		if of == inodes || of == pids {
			format = resource.DecimalSI
		}
		threshold := t.Amount.Quantity
		if threshold == nil {
			threshold = resource.NewQuantity(t.Amount.Of(o.Capacity), resource.BinarySI)
		}
		return fmt.Sprintf("Threshold quantity: %s, available: %s. ", threshold, resource.NewQuantity(o.Available, format))
	}
	return ""
}
