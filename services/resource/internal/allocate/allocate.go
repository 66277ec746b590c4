// SPDX-License-Identifier: Apache-2.0

// Package allocate is the seam between admission and those who decide which CPUs, NUMA
// nodes and devices the containers of a pod get.
//
// Admission goes in one order: judge (package admit) → allocators choose → journal →
// act. A pod that does not fit the node is shown to the allocators as well: a kubelet asks
// them first, and their reason is given where both refuse it. Up to the journal nothing is
// written and nothing is called, so that an admission that does not come about leaves
// nothing to undo. What was chosen is in the checkpoint with the pod's allocation, is
// published as PodAllocation.containers, and comes back in [Request.Held] after a restart:
// an allocator keeps no state of its own about pods, and what a pod holds is free again
// when the pod is released.
//
// To add one: have what it chooses in ContainerAllocation, or in Chosen what is of no
// concern to other services (resource.proto); implement [Allocator]; put it into
// Deps.Allocators of package resource. The order there is the kubelet's: devices, CPUs,
// memory. What has to be done about a choice outside of this process (a call to a device
// plugin, for example) is part of the act, after the journal.
package allocate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// Held is a pod that holds something, with what was chosen for it; Chosen is never nil.
type Held struct {
	Pod    *v1.Pod
	Chosen *resourcev1.Chosen
}

// Request is all a choice may depend on, besides the facts of the machine.
type Request struct {
	Pod *v1.Pod
	// Running: the pod runs already, and nothing is chosen for it that its containers do
	// not have. A refusal does not end it.
	Running bool
	Config  *kubeletconfig.Config
	// Held are the other pods, by UID.
	Held []Held
	// Awaited reports whether a pod that is not among Held may run: with what the kubelet's
	// files have of it, which no other pod gets.
	Awaited func(uid string) bool
	// Chosen is what allocators earlier in the list chose for this pod; never nil. It
	// belongs to the allocator that is asked, which returns it with its own part added.
	Chosen *resourcev1.Chosen
}

// Answer is what an allocator decides.
type Answer struct {
	// Decision: ADMITTED with Chosen; REJECTED for good; NOT_YET where something that will
	// come is missing, and the loop of the service is woken when it comes.
	Decision resourcev1.Decision
	// Reason and Message as in the pod's status; of a decision that is not ADMITTED, or of a
	// running pod that does not keep all that it had.
	Reason, Message string
	Chosen          *resourcev1.Chosen
}

// Allocator chooses what the containers of a pod get of one kind of resource. It is pure
// in Request and in facts that it was given before; it has no answer of its own for pods
// that want nothing of its kind: it admits them with Request.Chosen.
type Allocator interface {
	Choose(Request) Answer
}

// Choose asks allocators in their order. The first that does not admit ends it, but for
// a running pod: its answer is then ADMITTED with what the others chose, and with the
// reason and message of the first that would not have it.
func Choose(allocators []Allocator, r Request) Answer {
	whole := Answer{Decision: resourcev1.Decision_DECISION_ADMITTED, Chosen: &resourcev1.Chosen{}}
	for _, a := range allocators {
		r.Chosen = whole.Chosen
		answer := a.Choose(r)
		switch {
		case answer.Decision == resourcev1.Decision_DECISION_ADMITTED:
			whole.Chosen = answer.Chosen
		case !r.Running:
			return answer
		}
		if whole.Reason == "" && whole.Message == "" {
			whole.Reason, whole.Message = answer.Reason, answer.Message
		}
	}
	return whole
}

// Container is what was chosen for one container, added to chosen if it has nothing yet.
func Container(chosen *resourcev1.Chosen, name string) *resourcev1.ContainerAllocation {
	for _, c := range chosen.GetContainers() {
		if c.GetName() == name {
			return c
		}
	}
	c := &resourcev1.ContainerAllocation{Name: name}
	chosen.Containers = append(chosen.Containers, c)
	return c
}
