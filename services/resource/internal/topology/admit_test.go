// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// shelf is a provider with so much on each NUMA node; every container asks for one.
type shelf struct {
	name  string
	nodes []int // what is left, by node
	err   error // of the last container
	log   *[]string
}

func (s *shelf) need(n int) topology.Hints {
	list := []topology.Hint{}
	for m := range topology.Mask(1<<len(s.nodes) - 1).Subsets() {
		have := 0
		for _, id := range m.IDs() {
			have += s.nodes[id]
		}
		if have >= n {
			list = append(list, topology.Hint{Affinity: m, Preferred: m.Len() == 1})
		}
	}
	return topology.Hints{s.name: list}
}

func (s *shelf) Hints(*v1.Pod, *v1.Container) topology.Hints { return s.need(1) }

func (s *shelf) PodHints(p *v1.Pod) topology.Hints {
	return s.need(len(p.Spec.Containers) + len(p.Spec.InitContainers))
}

func (s *shelf) Allocate(p *v1.Pod, c *v1.Container, affinity topology.Hint) error {
	*s.log = append(*s.log, fmt.Sprintf("%s to %s from %v", s.name, c.Name, affinity.Affinity))
	if c.Name == p.Spec.Containers[len(p.Spec.Containers)-1].Name && s.err != nil {
		return s.err
	}
	for id := range s.nodes {
		if (affinity.Affinity == 0 || affinity.Affinity.Has(id)) && s.nodes[id] > 0 {
			s.nodes[id]--
			return nil
		}
	}
	return errors.New("none left")
}

func (s *shelf) AllocatePod(_ *v1.Pod, affinity topology.Hint) error {
	*s.log = append(*s.log, fmt.Sprintf("%s to the pod from %v", s.name, affinity.Affinity))
	return s.err
}

func TestAdmit(t *testing.T) {
	asked := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}},
	}}
	whole := asked.DeepCopy()
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
	for name, c := range map[string]struct {
		whole         bool // the pod has resources of its own
		policy, scope string
		a, b          []int
		err           error
		want          topology.Outcome
		log           []string
	}{
		"each container where it fits": {
			policy: topology.SingleNUMANode, scope: topology.ContainerScope, a: []int{1, 2}, b: []int{3, 3},
			want: topology.Outcome{Scope: "container", Aligned: 3},
			log: []string{
				"x to init from [0]", "y to init from [0]", "x to a from [1]", "y to a from [1]", "x to b from [1]", "y to b from [1]",
			},
		},
		"a container that fits nowhere ends it": {
			policy: topology.SingleNUMANode, scope: topology.ContainerScope, a: []int{2, 1}, b: []int{3, 0},
			want: topology.Outcome{
				Scope: "container", Aligned: 2, Misaligned: 1,
				Refusal: &topology.Refusal{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality"},
			},
			log: []string{"x to init from [0]", "y to init from [0]", "x to a from [0]", "y to a from [0]"},
		},
		"a pod in one place": {
			policy: topology.Restricted, scope: topology.PodScope, a: []int{2, 3}, b: []int{3, 3},
			want: topology.Outcome{Scope: "pod"},
			log: []string{
				"x to init from [1]", "y to init from [1]", "x to a from [1]", "y to a from [1]", "x to b from [1]", "y to b from [1]",
			},
		},
		"a pod that fits in no one place": {
			policy: topology.SingleNUMANode, scope: topology.PodScope, a: []int{2, 2}, b: []int{3, 3},
			want: topology.Outcome{
				Scope: "pod", Misaligned: 1,
				Refusal: &topology.Refusal{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality"},
			},
		},
		"a pod with resources of its own has them as a whole": {
			whole: true, policy: topology.Restricted, scope: topology.PodScope, a: []int{2, 3}, b: []int{3, 3},
			want: topology.Outcome{Scope: "pod"},
			log:  []string{"x to the pod from [1]", "y to the pod from [1]"},
		},
		"a pod with resources of its own that fits in no one place": {
			whole: true, policy: topology.SingleNUMANode, scope: topology.PodScope, a: []int{2, 2}, b: []int{3, 3},
			want: topology.Outcome{
				Scope: "pod", Misaligned: 1, Refusal: &topology.Refusal{
					Reason: "TopologyAffinityError", Message: "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
				},
			},
		},
		"its containers have them in the container scope": {
			whole: true, policy: topology.SingleNUMANode, scope: topology.ContainerScope, a: []int{2, 1}, b: []int{3, 0},
			want: topology.Outcome{
				Scope: "container", Aligned: 2, Misaligned: 1, Refusal: &topology.Refusal{
					Reason: "TopologyAffinityError", Message: "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
				},
			},
			log: []string{"x to init from [0]", "y to init from [0]", "x to a from [0]", "y to a from [0]"},
		},
		"an error has its sentence, with the policy none too": {
			policy: topology.None, a: []int{3, 0}, b: []int{3, 0}, err: errors.New("a device is gone"),
			want: topology.Outcome{Refusal: &topology.Refusal{
				Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to a device is gone, which is unexpected",
			}},
			log: []string{"x to init from []", "y to init from []", "x to a from []", "y to a from []", "x to b from []"},
		},
		"an error with a reason keeps it": {
			policy: topology.BestEffort, a: []int{3, 0}, b: []int{3, 0},
			err:  fmt.Errorf("cpus: %w", &topology.Refusal{Reason: "SMTAlignmentError", Message: "SMT Alignment Error"}),
			want: topology.Outcome{Scope: "container", Refusal: &topology.Refusal{Reason: "SMTAlignmentError", Message: "SMT Alignment Error"}},
			log:  []string{"x to init from [0]", "y to init from [0]", "x to a from [0]", "y to a from [0]", "x to b from [0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := topology.New(topology.Settings{Policy: c.policy, Scope: c.scope, PodLevel: true}, []topology.Node{{ID: 0}, {ID: 1}})
			if err != nil {
				t.Fatal(err)
			}
			var log []string
			p := asked
			if c.whole {
				p = whole
			}
			got := policy.Admit(p, []topology.Provider{
				&shelf{name: "x", nodes: slices.Clone(c.a), err: c.err, log: &log}, &shelf{name: "y", nodes: slices.Clone(c.b), log: &log},
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.log, log); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMaskOf(t *testing.T) {
	if m, err := topology.MaskOf(0, 63); err != nil || m.String() != "[0 63]" || !m.Has(63) || m.Has(64) || m.Has(-1) {
		t.Error(m, err)
	}
	for _, id := range []int{-1, 64} {
		if _, err := topology.MaskOf(id); err == nil {
			t.Errorf("%d is accepted", id)
		}
	}
}
