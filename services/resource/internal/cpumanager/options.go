// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Names of policies, as cpuManagerPolicy has them.
const (
	None   = "none"
	Static = "static"
)

// Options of the static policy, cpuManagerPolicyOptions.
type Options struct {
	// FullCores: full-pcpus-only, no core is shared between containers.
	FullCores bool
	// AcrossNUMA: distribute-cpus-across-numa, what needs several NUMA nodes is spread
	// evenly over them.
	AcrossNUMA bool
	// BySocket: align-by-socket, aligned means on one socket.
	BySocket bool
	// AcrossCores: distribute-cpus-across-cores, threads of different cores first.
	AcrossCores bool
	// Strict: strict-cpu-reservation, reserved CPUs are not shared either.
	Strict bool
	// ByCache: prefer-align-cpus-by-uncorecache, on as few caches as can be.
	ByCache bool
	// PodLevel is no option but the gate PodLevelResourceManagers.
	PodLevel topology.PodLevel
}

// Gates are the feature gates that options of a level need.
type Gates struct{ Alpha, Beta bool }

type level int

const (
	stable level = iota
	beta
	alpha
)

// known options: the level of each and where it is kept. Source: KEP-3570 and its
// followers, as in 1.36.
func (o *Options) known() map[string]struct {
	level level
	value *bool
} {
	type option = struct {
		level level
		value *bool
	}
	return map[string]option{
		"full-pcpus-only":                  {stable, &o.FullCores},
		"strict-cpu-reservation":           {stable, &o.Strict},
		"prefer-align-cpus-by-uncorecache": {stable, &o.ByCache},
		"distribute-cpus-across-numa":      {beta, &o.AcrossNUMA},
		"align-by-socket":                  {alpha, &o.BySocket},
		"distribute-cpus-across-cores":     {alpha, &o.AcrossCores},
	}
}

// ParseOptions reads them; an error names the option that is unknown, closed, has a bad
// value or does not go with another.
func ParseOptions(given map[string]string, gates Gates) (Options, error) {
	o := Options{}
	known := o.known()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		option, ok := known[name]
		switch {
		case !ok:
			return Options{}, fmt.Errorf("unknown CPU Manager Policy option: %q", name)
		case option.level == alpha && !gates.Alpha:
			return Options{}, fmt.Errorf("CPU Manager Policy Alpha-level Options not enabled, but option %q provided", name)
		case option.level == beta && !gates.Beta:
			return Options{}, fmt.Errorf("CPU Manager Policy Beta-level Options not enabled, but option %q provided", name)
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return Options{}, fmt.Errorf("bad value for option %q: %w", name, err)
		}
		*option.value = on
	}
	for _, pair := range [][2]string{
		{"full-pcpus-only", "distribute-cpus-across-cores"},
		{"distribute-cpus-across-numa", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"},
		{"prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"},
	} {
		if *known[pair[0]].value && *known[pair[1]].value {
			return Options{}, fmt.Errorf("static policy options %s and %s can not be used at the same time", pair[0], pair[1])
		}
	}
	return o, nil
}
