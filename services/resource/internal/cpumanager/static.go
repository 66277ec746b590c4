// SPDX-License-Identifier: Apache-2.0

package cpumanager

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

// Assignments are the CPUs that pods have of their own, by uid.
type Assignments map[string]Assignment

// Assignment is what one pod has.
type Assignment struct {
	// Pod is what it has as a whole, with resources of its own: containers have parts of
	// that, which may be shared. Empty where containers have CPUs of the node.
	Pod        cpuset.CPUSet
	Containers map[string]cpuset.CPUSet // by name
}

// Union is all of them together.
func (a Assignment) Union() cpuset.CPUSet {
	all := a.Pod
	for _, cpus := range a.Containers {
		all = all.Union(cpus)
	}
	return all
}

// Union is all of them together.
func (a Assignments) Union() cpuset.CPUSet {
	all := cpuset.New()
	for _, of := range a {
		all = all.Union(of.Union())
	}
	return all
}

// Policy is the static one, for a machine.
type Policy struct {
	machine *layout.Layout
	options Options
	// reserved is given to no container; with FullCores, neither are the cores it has a part of.
	reserved, reservedCores cpuset.CPUSet
}

// New returns the policy that reserves these CPUs, or count of them, whole low cores, when
// the set is empty. An error says what is wrong with the reservation or the options.
func New(machine *layout.Layout, options Options, count int, reserved cpuset.CPUSet, policy *topology.Policy) (*Policy, error) {
	if options.BySocket {
		if policy.Guarantees() {
			return nil, fmt.Errorf("cpuManagerPolicyOptions: align-by-socket is incompatible with topologyManagerPolicy %s", policy.Name())
		}
		if len(machine.Units(layout.Socket)) > len(machine.Units(layout.Node)) {
			return nil, errors.New("cpuManagerPolicyOptions: align-by-socket is not compatible with hardware that has more sockets than NUMA nodes")
		}
	}
	p := &Policy{machine: machine, options: options, reserved: reserved}
	if count <= 0 {
		return nil, errors.New("cpuManagerPolicy: the static policy requires systemReserved.cpu + kubeReserved.cpu to be greater than zero")
	}
	if reserved.IsEmpty() {
		var err error
		if p.reserved, err = p.choose(machine.All(), count); err != nil {
			return nil, fmt.Errorf("reserved CPUs: %w", err)
		}
	}
	if missing := p.reserved.Difference(machine.All()); !missing.IsEmpty() {
		return nil, fmt.Errorf("reservedSystemCPUs: %s are not online", missing)
	}
	p.reservedCores = machine.In(layout.Core, layout.Units(machine.Of(p.reserved), layout.Core)...)
	return p, nil
}

// Reserved are the CPUs that no container has of its own.
func (p *Policy) Reserved() cpuset.CPUSet { return p.reserved }

// Shared are the CPUs of all containers that have none of their own.
func (p *Policy) Shared(assigned Assignments) cpuset.CPUSet {
	shared := p.machine.All()
	if p.options.Strict {
		shared = shared.Difference(p.reserved)
	}
	return shared.Difference(assigned.Union())
}

// Available are the CPUs that a container could have of its own.
func (p *Policy) Available(assigned Assignments) cpuset.CPUSet {
	return p.Shared(assigned).Difference(p.reserved)
}

func (p *Policy) choose(free cpuset.CPUSet, need int) (cpuset.CPUSet, error) {
	if p.options.AcrossNUMA {
		return distribute(p.machine, p.options, free, need)
	}
	return pack(p.machine, p.options, free, need)
}

// Exclusive is the number of CPUs that a container is to have of its own: all that it asks
// for, when its pod is Guaranteed and it is a whole number. In a pod with resources of its
// own the container must be Guaranteed by itself, and the gate PodLevelResourceManagers on.
func (p *Policy) Exclusive(asked *v1.Pod, c *v1.Container) int {
	if resourcehelper.IsPodLevelResourcesSet(asked) && !(bool(p.options.PodLevel) && pod.Guaranteed(c)) {
		return 0
	}
	return whole(asked, c.Resources.Requests)
}

// whole are the CPUs of a list, when the pod is Guaranteed and it is a whole number.
func whole(asked *v1.Pod, requests v1.ResourceList) int {
	cpus := requests[v1.ResourceCPU]
	if pod.QOS(asked) != v1.PodQOSGuaranteed || cpus.MilliValue()%1000 != 0 {
		return 0
	}
	return int(cpus.Value())
}

// exclusiveOf is what a pod's containers have of their own at once, at the most: while
// init containers run one after another, or afterwards. With resources of its own it is
// what the pod asks for.
func (p *Policy) exclusiveOf(asked *v1.Pod) int {
	if p.options.PodLevel.AsWhole(asked) {
		return whole(asked, asked.Spec.Resources.Requests)
	}
	sidecars, starting, running := 0, 0, 0
	for i := range asked.Spec.InitContainers {
		c := &asked.Spec.InitContainers[i]
		if n := p.Exclusive(asked, c); pod.IsSidecar(c) {
			sidecars += n
		} else {
			starting = max(starting, sidecars+n)
		}
	}
	for i := range asked.Spec.Containers {
		running += p.Exclusive(asked, &asked.Spec.Containers[i])
	}
	return max(starting, running+sidecars)
}
