// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Names of policies, as topologyManagerPolicy has them.
const (
	None           = "none"
	BestEffort     = "best-effort"
	Restricted     = "restricted"
	SingleNUMANode = "single-numa-node"
)

// Names of scopes, as topologyManagerScope has them.
const (
	ContainerScope = "container"
	PodScope       = "pod"
)

// Names of options, as topologyManagerPolicyOptions has them.
const (
	preferClosest = "prefer-closest-numa-nodes"
	maxAllowable  = "max-allowable-numa-nodes"
)

// fewestAllowable is the default of max-allowable-numa-nodes, and the least it may be:
// the number of masks doubles with each node.
const fewestAllowable = 8

// Node is a NUMA node of the machine.
type Node struct {
	ID int
	// Distances to all nodes, by their ids, as /sys/devices/system/node/node*/distance has
	// them; nil when they are not known.
	Distances []uint64
}

// Settings are what a KubeletConfiguration says of the topology manager.
type Settings struct {
	Policy, Scope string
	Options       map[string]string
	PodLevel      PodLevel
}

// Policy merges hints for one machine. The zero value is the policy none.
type Policy struct {
	name      string
	scope     string
	podLevel  PodLevel
	all       Mask
	distances map[int][]uint64 // nil: of two masks the narrower is better
}

// New returns the policy for a machine, or an error in the words of the field or of what
// the machine lacks. With policy none neither scope, options nor nodes are looked at.
func New(s Settings, nodes []Node) (*Policy, error) {
	if s.Policy == None || s.Policy == "" {
		return &Policy{name: None}, nil
	}
	closest, most, err := options(s.Options)
	if err != nil {
		return nil, fmt.Errorf("topologyManagerPolicyOptions: %w", err)
	}
	p := &Policy{name: s.Policy, scope: s.Scope, podLevel: s.PodLevel}
	if !slices.Contains([]string{BestEffort, Restricted, SingleNUMANode}, s.Policy) {
		return nil, fmt.Errorf("topologyManagerPolicy: unknown policy: %q", s.Policy)
	}
	switch s.Scope {
	case ContainerScope, PodScope:
	case "":
		p.scope = ContainerScope
	default:
		return nil, fmt.Errorf("topologyManagerScope: unknown scope: %q", s.Scope)
	}
	if len(nodes) > most {
		return nil, fmt.Errorf("topologyManagerPolicy: unsupported on machines with more than %d NUMA Nodes", most)
	}
	for _, n := range nodes {
		one, err := MaskOf(n.ID)
		if err != nil {
			return nil, err
		}
		p.all |= one
	}
	// A single node leaves nothing to compare by distance.
	if closest && s.Policy != SingleNUMANode {
		p.distances = map[int][]uint64{}
	}
	for _, n := range nodes {
		if closest && n.Distances == nil {
			return nil, fmt.Errorf("topologyManagerPolicyOptions: %s: the distances of NUMA node %d are not known", preferClosest, n.ID)
		}
		if p.distances != nil {
			p.distances[n.ID] = n.Distances
		}
	}
	return p, nil
}

func options(given map[string]string) (closest bool, most int, err error) {
	most = fewestAllowable
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		switch name {
		case preferClosest:
			if closest, err = strconv.ParseBool(value); err != nil {
				return false, 0, fmt.Errorf("bad value for option %q: %w", name, err)
			}
		case maxAllowable:
			if most, err = strconv.Atoi(value); err != nil {
				return false, 0, fmt.Errorf("bad value for option %q: %w", name, err)
			}
			if most < fewestAllowable {
				return false, 0, fmt.Errorf("the minimum value of %q is %d", name, fewestAllowable)
			}
		default:
			return false, 0, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return closest, most, nil
}

// Name is the policy's, as topologyManagerPolicy has it.
func (p *Policy) Name() string {
	return cmp.Or(p.name, None)
}

// Guarantees reports whether what the policy admits is on one NUMA node.
func (p *Policy) Guarantees() bool { return p.name == SingleNUMANode }
