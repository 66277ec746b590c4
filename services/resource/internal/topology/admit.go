// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Provider owns a kind of resource that NUMA nodes have. A value of it serves one
// admission: what it allocates counts only when the whole pod has been admitted and its
// owner keeps it, so a refusal midway needs no undoing.
type Provider interface {
	// Hints are what could serve a container, beside what the containers before it have
	// been allocated.
	Hints(p *v1.Pod, c *v1.Container) Hints
	// PodHints are what could serve all containers of a pod.
	PodHints(p *v1.Pod) Hints
	// Allocate gives a container what it asks for; affinity is what was merged, and the
	// zero Hint with the policy none. A *Refusal brings its own reason; any other error is
	// an UnexpectedAdmissionError.
	Allocate(p *v1.Pod, c *v1.Container, affinity Hint) error
	// AllocatePod gives a pod with resources of its own what it asks for as a whole, and its
	// containers parts of that (KEP-5526).
	AllocatePod(p *v1.Pod, affinity Hint) error
}

// Refusal is why a pod cannot have what it asks for, as its status shows it.
type Refusal struct{ Reason, Message string }

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Refused is err as a refusal: itself if it is one.
func Refused(err error) *Refusal {
	if err == nil {
		return nil
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return &Refusal{"UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// unaligned is the refusal of a pod whose hints have nothing in common.
func (p *Policy) unaligned(asked *v1.Pod) *Refusal {
	message := "Resources cannot be allocated with Topology locality"
	if p.podLevel.AsWhole(asked) {
		message = "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
		if p.scope == PodScope {
			message = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
		}
	}
	return &Refusal{"TopologyAffinityError", message}
}

// Outcome is what an admission came to.
type Outcome struct {
	// Refusal is nil when the pod is admitted.
	Refusal *Refusal
	// Scope is that of the policy, "" with the policy none.
	Scope string
	// Aligned and Misaligned count, for metrics, what a policy that guarantees one NUMA
	// node could align and could not: containers or pods, by the scope.
	Aligned, Misaligned int
}

// Admit has the providers allocate, in their order, to each container of p: init containers
// first. The order that the kubelet has is devices, CPUs, memory.
func (p *Policy) Admit(asked *v1.Pod, providers []Provider) Outcome {
	o := Outcome{Scope: p.scope}
	if p.scope == PodScope {
		all := make([]Hints, 0, len(providers))
		for _, provider := range providers {
			all = append(all, provider.PodHints(asked))
		}
		best, ok := p.Merge(all)
		if !ok {
			return p.misaligned(asked, o)
		}
		if o.Refusal = p.allocateAll(asked, best, providers); o.Refusal != nil {
			return o
		}
		return p.aligned(o)
	}
	for c := range containers(asked) {
		best, ok := p.mergeFor(asked, c, providers)
		if !ok {
			return p.misaligned(asked, o)
		}
		if o.Refusal = allocate(asked, c, best, providers); o.Refusal != nil {
			return o
		}
		o = p.aligned(o)
	}
	return o
}

// mergeFor merges what is said for one container; with the policy none nothing is asked.
func (p *Policy) mergeFor(asked *v1.Pod, c *v1.Container, providers []Provider) (Hint, bool) {
	if p.Name() == None {
		return Hint{}, true
	}
	all := make([]Hints, 0, len(providers))
	for _, provider := range providers {
		all = append(all, provider.Hints(asked, c))
	}
	return p.Merge(all)
}

func (p *Policy) aligned(o Outcome) Outcome {
	if p.Guarantees() {
		o.Aligned++
	}
	return o
}

func (p *Policy) misaligned(asked *v1.Pod, o Outcome) Outcome {
	if p.Guarantees() {
		o.Misaligned++
	}
	o.Refusal = p.unaligned(asked)
	return o
}

// allocateAll has the providers allocate by one affinity for the pod.
func (p *Policy) allocateAll(asked *v1.Pod, affinity Hint, providers []Provider) *Refusal {
	if p.podLevel.AsWhole(asked) {
		for _, provider := range providers {
			if err := provider.AllocatePod(asked, affinity); err != nil {
				return Refused(err)
			}
		}
		return nil
	}
	for c := range containers(asked) {
		if refusal := allocate(asked, c, affinity, providers); refusal != nil {
			return refusal
		}
	}
	return nil
}

func allocate(p *v1.Pod, c *v1.Container, affinity Hint, providers []Provider) *Refusal {
	for _, provider := range providers {
		if err := provider.Allocate(p, c, affinity); err != nil {
			return Refused(err)
		}
	}
	return nil
}

// containers are those that hold resources of their own, in the order of allocation.
func containers(p *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}
