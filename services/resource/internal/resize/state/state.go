// SPDX-License-Identifier: Apache-2.0

// Package state is the kubelet's files allocated_pods_state and actuated_pods_state: the
// resources that pods are allocated, and those that their containers have (KEP-1287). Either
// agent reads what the other wrote: a kubelet goes by them alone. Without the first it judges
// what a running pod asks for, and may refuse the pod; without the second it restarts
// containers whose resizePolicy has them restarted.
package state

import (
	"encoding/json"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/checksum"
)

// Names of the files, below the root directory.
const (
	Allocated = "allocated_pods_state"
	Actuated  = "actuated_pods_state"
)

// Pod is what a file has of a pod: the resources of its containers by name, and its own, if
// it has any.
type Pod struct {
	ContainerResources map[string]v1.ResourceRequirements
	PodLevelResources  *v1.ResourceRequirements
}

// Pods by UID.
type Pods map[types.UID]Pod

type entries struct {
	Entries Pods `json:"entries,omitempty"`
}

// content is the file. The checksum is of the text of Data alone.
type content struct {
	Data     string            `json:"data"`
	Checksum checksum.Checksum `json:"checksum"`
	// Writer is ours alone: a kubelet does not read it, and leaves it out when it writes the
	// file for a change.
	Writer string `json:"writer,omitempty"`
}

// writer marks what this agent has written last.
const writer = "sextant"

// Encode writes a file. Equal pods are equal bytes.
func Encode(pods Pods) ([]byte, error) {
	data, err := json.Marshal(entries{pods})
	if err != nil {
		return nil, err
	}
	return json.Marshal(content{Data: string(data), Checksum: checksum.New(string(data)), Writer: writer})
}

// Decode reads a file, and reports whether another agent has written it last. An error says
// what is wrong with it; a sum of 0 is not checked, as with the kubelet.
func Decode(raw []byte) (pods Pods, others bool, err error) {
	var c content
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, false, err
	}
	if err := checksum.Verify(c.Checksum, checksum.New(c.Data)); err != nil {
		return nil, false, err
	}
	var e entries
	if err := json.Unmarshal([]byte(c.Data), &e); err != nil {
		return nil, false, fmt.Errorf("data: %w", err)
	}
	return e.Entries, c.Writer != writer, nil
}

// AllocationOf is what a pod is allocated that has the resources of its specification: those
// of the containers that may be resized, which are all but ephemeral ones.
func AllocationOf(p *v1.Pod) Pod {
	out := Pod{ContainerResources: map[string]v1.ResourceRequirements{}, PodLevelResources: p.Spec.Resources}
	for kind, c := range pod.Containers(p) {
		if kind != pod.Ephemeral {
			out.ContainerResources[c.Name] = c.Resources
		}
	}
	return out
}

// ActuationOf is what containers have that were given what the pod is allocated: limits that
// a container leaves open are those of the pod.
func ActuationOf(p *v1.Pod) Pod {
	out := AllocationOf(p)
	if p.Spec.Resources == nil {
		return out
	}
	for container, resources := range out.ContainerResources {
		limits := v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if limit, ok := p.Spec.Resources.Limits[name]; ok {
				limits[name] = limit
			}
		}
		maps.Copy(limits, resources.Limits)
		resources.Limits = limits
		out.ContainerResources[container] = resources
	}
	return out
}

// Sizes are the resources that a file has of a pod, as [pod.WithSizes] takes them: containers
// that it does not have, and the pod's own where it has none, are as specified.
func (s Pod) Sizes(p *v1.Pod) *v1.PodSpec {
	sizes := &v1.PodSpec{Resources: p.Spec.Resources}
	if s.PodLevelResources != nil {
		sizes.Resources = s.PodLevelResources
	}
	has := func(list []v1.Container) (out []v1.Container) {
		for i := range list {
			c := v1.Container{Name: list[i].Name, Resources: list[i].Resources}
			if r, ok := s.ContainerResources[c.Name]; ok {
				c.Resources = r
			}
			out = append(out, c)
		}
		return out
	}
	sizes.InitContainers, sizes.Containers = has(p.Spec.InitContainers), has(p.Spec.Containers)
	return sizes
}

// Gives reports whether containers that have what a file has of their pod need no change of
// CPU or memory to have what the pod is allocated. One that the file does not have has not
// been made.
func (s Pod) Gives(p *v1.Pod) bool {
	had := pod.WithSizes(p, s.Sizes(p))
	for kind, c := range pod.Containers(had) {
		if kind == pod.Ephemeral {
			continue
		}
		asked, _ := pod.FindContainer(p, c.Name)
		if pod.SizeOf(had, c) != pod.SizeOf(p, asked) {
			return false
		}
	}
	return true
}
