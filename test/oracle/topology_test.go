// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/rand/v2"
	"strconv"
	"testing"

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	reference "k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// TestTopology: on any machine of up to eight NUMA nodes, with any distances, every policy
// with and without prefer-closest-numa-nodes merges any hints of up to three providers to
// the affinity, the preference and the admission that the reference comes to.
func TestTopology(t *testing.T) {
	each(t, func(r *rand.Rand, _ string) (string, string) {
		n := 1 + r.IntN(8)
		if r.IntN(3) > 0 {
			n = 1 + r.IntN(4)
		}
		nodes, theirs := make([]topology.Node, n), make([]cadvisor.Node, n)
		for i := range n {
			distances := make([]uint64, n)
			for j := range n {
				distances[j] = uint64(10 + 10*r.IntN(3))
			}
			nodes[i], theirs[i] = topology.Node{ID: i, Distances: distances}, cadvisor.Node{Id: i, Distances: distances}
		}
		name := []string{topology.BestEffort, topology.Restricted, topology.SingleNUMANode}[r.IntN(3)]
		options := map[string]string{"prefer-closest-numa-nodes": strconv.FormatBool(r.IntN(2) == 0)}
		ours, err := topology.New(topology.Settings{Policy: name, Scope: topology.PodScope, Options: options}, nodes)
		if err != nil {
			t.Fatal(err)
		}
		opts, err := reference.NewPolicyOptions(klog.Logger{}, options)
		if err != nil {
			t.Fatal(err)
		}
		info, err := reference.NewNUMAInfo(theirs, opts)
		if err != nil {
			t.Fatal(err)
		}
		policy := map[string]reference.Policy{
			topology.BestEffort: reference.NewBestEffortPolicy(info, opts), topology.Restricted: reference.NewRestrictedPolicy(info, opts),
			topology.SingleNUMANode: reference.NewSingleNumaNodePolicy(info, opts),
		}[name]
		var mine []topology.Hints
		var given []map[string][]reference.TopologyHint
		for range r.IntN(4) {
			m, g := someHints(r, n)
			mine, given = append(mine, m), append(given, g)
		}
		want, admitted := policy.Merge(klog.Logger{}, given)
		got, ok := ours.Merge(mine)
		return describe(got, ok), describe(topology.Hint{Affinity: mask(want.NUMANodeAffinity), Preferred: want.Preferred}, admitted)
	})
}

func describe(h topology.Hint, admitted bool) string {
	return h.Affinity.String() + " preferred " + strconv.FormatBool(h.Preferred) + " admitted " + strconv.FormatBool(admitted)
}

// someHints are those of one provider, in the forms of both.
func someHints(r *rand.Rand, nodes int) (topology.Hints, map[string][]reference.TopologyHint) {
	ours, theirs := topology.Hints{}, map[string][]reference.TopologyHint{}
	for i := range r.IntN(3) {
		name := "r" + strconv.Itoa(i)
		switch r.IntN(8) {
		case 0:
			ours[name], theirs[name] = nil, nil
			continue
		case 1:
			ours[name], theirs[name] = []topology.Hint{}, []reference.TopologyHint{}
			continue
		}
		for range 1 + r.IntN(5) {
			h := topology.Hint{Affinity: topology.Mask(1 + r.Uint64N(1<<nodes-1)), Preferred: r.IntN(2) == 0}
			if r.IntN(10) == 0 {
				h.Affinity = 0
			}
			ours[name] = append(ours[name], h)
			theirs[name] = append(theirs[name], reference.TopologyHint{NUMANodeAffinity: bits(h.Affinity), Preferred: h.Preferred})
		}
	}
	return ours, theirs
}

func bits(m topology.Mask) bitmask.BitMask {
	if m == 0 {
		return nil
	}
	b, err := bitmask.NewBitMask(m.IDs()...)
	if err != nil {
		panic(err)
	}
	return b
}

func mask(b bitmask.BitMask) topology.Mask {
	if b == nil {
		return 0
	}
	m, err := topology.MaskOf(b.GetBits()...)
	if err != nil {
		panic(err)
	}
	return m
}
