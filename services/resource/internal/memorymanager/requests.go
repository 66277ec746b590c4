// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// requests are bytes by kind of memory.
type requests map[v1.ResourceName]uint64

func (r requests) kinds() []v1.ResourceName { return slices.Sorted(maps.Keys(r)) }

func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// eligible reports whether the containers of a pod get memory of their own. Those of a pod
// with resources of its own do not (gate PodLevelResourceManagers is off).
func eligible(p *v1.Pod) bool { return p.Spec.Resources == nil && pod.QOS(p) == v1.PodQOSGuaranteed }

var errFraction = errors.New("[memorymanager] failed to represent quantity as int64")

// requested is what a container asks for.
func requested(c *v1.Container) (requests, error) {
	all := requests{}
	for name, q := range c.Resources.Requests {
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
// out, as by a kubelet.
func requestedBy(p *v1.Pod) (requests, error) {
	starting, sidecars, running := requests{}, requests{}, requests{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		own, err := requested(c)
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
	for i := range p.Spec.Containers {
		own, err := requested(&p.Spec.Containers[i])
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
