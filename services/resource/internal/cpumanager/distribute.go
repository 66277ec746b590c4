// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"maps"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
)

// share is how CPUs are divided among NUMA nodes: each of nodes gives even CPUs, and the
// rest comes from some of them in turn, a group at a time.
type share struct {
	nodes, rest []int
	even        int
	// balance is how uneven the free CPUs of all nodes are afterwards.
	balance float64
}

// distributor divides a request evenly among NUMA nodes (KEP-2902).
type distributor struct {
	left  map[int]int // free CPUs by NUMA node
	nodes []int       // those with free CPUs, in the order in which they are tried
	need  int
	group int // CPUs are given in groups of so many
}

// distribute chooses need CPUs of those that are free, evenly from as few NUMA nodes as can
// be; it packs them where they cannot be divided.
func distribute(machine *layout.Layout, options Options, free cpuset.CPUSet, need int) (cpuset.CPUSet, error) {
	options.ByCache = false
	d := distributor{left: map[int]int{}, need: need, group: 1}
	if options.FullCores {
		d.group = machine.PerUnit(layout.Core)
	}
	p := newPicker(machine, options, free, need)
	if err := p.enough(); err != nil || need <= 0 || need%d.group != 0 {
		return pack(machine, options, free, need)
	}
	for _, c := range p.free {
		d.left[c.Node]++
	}
	d.nodes = p.nested(p.down(layout.Node)...)
	fewest, most := d.span(machine)
	for k := fewest; k <= most; k++ {
		if s, ok := d.best(k); ok && d.carryOut(p, s) {
			return p.set(), nil
		}
	}
	return pack(machine, options, free, need)
}

// span is the fewest and the most NUMA nodes among which the request may be divided.
func (d *distributor) span(machine *layout.Layout) (fewest, most int) {
	groups := ceil(d.need, d.group)
	perNode := ceil(ceil(len(machine.CPUs), d.group), len(machine.Units(layout.Node)))
	return ceil(groups, perNode), min(groups, len(d.left))
}

func ceil(a, b int) int { return (a + b - 1) / b }

// best is the division among k nodes that leaves the nodes most even.
func (d *distributor) best(k int) (share, bool) {
	best := share{balance: math.MaxFloat64}
	combinations(d.nodes, k, func(nodes []int) bool {
		if best.balance == 0 {
			return false
		}
		if s := d.divide(nodes); s.balance < best.balance {
			best = s
		}
		return true
	})
	return best, best.nodes != nil
}

// divide divides the request among these nodes; the balance is MaxFloat64 when they cannot.
func (d *distributor) divide(nodes []int) share {
	s := share{nodes: nodes, even: d.need / len(nodes) / d.group * d.group, balance: math.MaxFloat64}
	groups := 0
	for _, node := range nodes {
		groups += d.left[node] / d.group
		if d.left[node] < s.even {
			return s
		}
	}
	if groups*d.group < d.need {
		return s
	}
	after := maps.Clone(d.left)
	var spare []int // nodes that could give more
	for _, node := range nodes {
		after[node] -= s.even
		if after[node] >= d.group {
			spare = append(spare, node)
		}
	}
	rest := d.need - s.even*len(nodes)
	if rest == 0 {
		s.balance = deviation(after)
		return s
	}
	for k := len(spare); k >= 1; k-- {
		combinations(spare, k, func(from []int) bool {
			if balance, ok := d.takeRest(after, from, rest); ok && balance < s.balance {
				s.balance, s.rest = balance, from
			}
			return true
		})
	}
	return s
}

// takeRest is the balance when the rest comes from these nodes in turn.
func (d *distributor) takeRest(after map[int]int, from []int, rest int) (float64, bool) {
	groups := 0
	for _, node := range from {
		groups += after[node] / d.group
	}
	if groups*d.group < rest {
		return 0, false
	}
	left := maps.Clone(after)
	for rest > 0 {
		for _, node := range from {
			if rest > 0 && left[node] >= d.group {
				left[node] -= d.group
				rest -= d.group
			}
		}
	}
	return deviation(left), true
}

// carryOut takes the CPUs of a division: false, and nothing taken, when the nodes do not
// have them.
func (d *distributor) carryOut(p *picker, s share) bool {
	try := *p
	from := func(node, n int) bool {
		free := layout.In(try.free, layout.Node, node)
		if len(free) < n {
			return false
		}
		cpus, err := pack(p.machine, p.options, layout.Set(free), n)
		if err != nil {
			return false
		}
		try.take(p.machine.Of(cpus)...)
		return true
	}
	for _, node := range s.nodes {
		if !from(node, s.even) {
			return false
		}
	}
	for try.need > 0 {
		before := try.need
		for _, node := range s.rest {
			if try.need > 0 {
				from(node, d.group)
			}
		}
		if try.need == before {
			return false
		}
	}
	*p = try
	return true
}

// deviation is the standard deviation, mean and result rounded to three decimals: what
// differs by less is the same.
func deviation(values map[int]int) float64 {
	thousandths := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0
	for _, n := range values {
		sum += n
	}
	mean := thousandths(float64(sum) / float64(len(values)))
	squares := 0.0
	for _, n := range slices.Sorted(maps.Values(values)) { // in order, for sums of fractions depend on it
		squares += (float64(n) - mean) * (float64(n) - mean)
	}
	return thousandths(math.Sqrt(squares / float64(len(values))))
}

// combinations calls f with each choice of k of the ids, in lexicographic order, until it
// returns false. As with the kubelet, a choice of four or more that is kept changes when
// the next is made, in its last ids: machines with more than four NUMA nodes depend on it.
func combinations(ids []int, k int, f func([]int) bool) {
	var extend func(start int, chosen []int) bool
	extend = func(start int, chosen []int) bool {
		if len(chosen) == k {
			return f(chosen)
		}
		for i := start; i <= len(ids)-(k-len(chosen)); i++ {
			if !extend(i+1, append(chosen, ids[i])) {
				return false
			}
		}
		return true
	}
	extend(0, nil)
}
