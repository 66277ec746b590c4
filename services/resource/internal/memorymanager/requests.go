// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"errors"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/topology"
)

func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// eligible reports whether the containers of a pod get memory of their own. Those of a pod
// with resources of its own do with the gate PodLevelResourceManagers.
func (p *Policy) eligible(asked *v1.Pod) bool {
	return (bool(p.podLevel) || !resourcehelper.IsPodLevelResourcesSet(asked)) && pod.QOS(asked) == v1.PodQOSGuaranteed
}

var errFraction = errors.New("[memorymanager] failed to represent quantity as int64")

// requested is what a container asks for. In a pod with resources of its own that is nothing
// unless the container is Guaranteed by itself.
func (p *Policy) requested(asked *v1.Pod, c *v1.Container) (topology.Amounts, error) {
	if p.podLevel.AsWhole(asked) && !pod.Guaranteed(c) {
		return topology.Amounts{}, nil
	}
	return amounts(c.Resources.Requests)
}

// amounts are the bytes of a list.
func amounts(requests v1.ResourceList) (topology.Amounts, error) {
	all := topology.Amounts{}
	for name, q := range requests {
		if !isMemory(name) {
			continue
		}
		n, ok := q.AsInt64()
		if !ok {
			return nil, errFraction
		}
		all[name] = uint64(n)
	}
	return all, nil
}

// requestedBy is what a pod's containers have at once, at the most: while init containers
// run one after another, or afterwards. Kinds that only init containers ask for are left
// out, as by a kubelet. With resources of its own it is what the pod asks for.
func (p *Policy) requestedBy(asked *v1.Pod) (topology.Amounts, error) {
	if p.podLevel.AsWhole(asked) {
		all, err := amounts(asked.Spec.Resources.Requests)
		maps.DeleteFunc(all, func(_ v1.ResourceName, n uint64) bool { return n == 0 })
		return all, err
	}
	starting, sidecars, running := topology.Amounts{}, topology.Amounts{}, topology.Amounts{}
	for i := range asked.Spec.InitContainers {
		c := &asked.Spec.InitContainers[i]
		own, err := p.requested(asked, c)
		if err != nil {
			return nil, err
		}
		for name, n := range own {
			if pod.IsSidecar(c) {
				sidecars[name] += n
			} else {
				starting[name] = max(starting[name], sidecars[name]+n)
			}
		}
	}
	for i := range asked.Spec.Containers {
		own, err := p.requested(asked, &asked.Spec.Containers[i])
		if err != nil {
			return nil, err
		}
		for name, n := range own {
			running[name] += n
		}
	}
	for name := range running {
		running[name] = max(running[name]+sidecars[name], starting[name])
	}
	return running, nil
}
