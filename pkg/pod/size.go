// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Size is what of a container's resources may change while it runs (KEP-1287): CPU in
// thousandths, memory in bytes; 0 for none.
type Size struct {
	CPURequest    int64 `json:"cpuRequest,omitempty"`
	CPULimit      int64 `json:"cpuLimit,omitempty"`
	MemoryRequest int64 `json:"memoryRequest,omitempty"`
	MemoryLimit   int64 `json:"memoryLimit,omitempty"`
}

// SizeOf is the size the specification asks for. Limits a container leaves open are those
// of the pod.
func SizeOf(p *v1.Pod, c *v1.Container) Size {
	cpu, memory := effectiveLimit(p, c, v1.ResourceCPU), effectiveLimit(p, c, v1.ResourceMemory)
	return Size{
		CPURequest: c.Resources.Requests.Cpu().MilliValue(), CPULimit: cpu.MilliValue(),
		MemoryRequest: c.Resources.Requests.Memory().Value(), MemoryLimit: memory.Value(),
	}
}

// Sized is c with the CPU and memory of a size; its other resources stay.
func Sized(c *v1.Container, s Size) *v1.Container {
	out := *c
	out.Resources = *c.Resources.DeepCopy()
	set := func(list *v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
		if q.IsZero() {
			delete(*list, name)
			return
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = *q
	}
	set(&out.Resources.Requests, v1.ResourceCPU, resource.NewMilliQuantity(s.CPURequest, resource.DecimalSI))
	set(&out.Resources.Limits, v1.ResourceCPU, resource.NewMilliQuantity(s.CPULimit, resource.DecimalSI))
	set(&out.Resources.Requests, v1.ResourceMemory, resource.NewQuantity(s.MemoryRequest, resource.BinarySI))
	set(&out.Resources.Limits, v1.ResourceMemory, resource.NewQuantity(s.MemoryLimit, resource.BinarySI))
	return &out
}

// RestartsFor reports whether a container is restarted when its size changes from one to
// the other (container.resizePolicy; none means it is not).
func RestartsFor(c *v1.Container, from, to Size) bool {
	changed := map[v1.ResourceName]bool{
		v1.ResourceCPU:    from.CPURequest != to.CPURequest || from.CPULimit != to.CPULimit,
		v1.ResourceMemory: from.MemoryRequest != to.MemoryRequest || from.MemoryLimit != to.MemoryLimit,
	}
	return slices.ContainsFunc(c.ResizePolicy, func(policy v1.ContainerResizePolicy) bool {
		return changed[policy.ResourceName] && policy.RestartPolicy == v1.RestartContainer
	})
}

// Sizes is the part of a specification that a resize changes: the resources of the pod
// and, under their names, of its containers.
func Sizes(p *v1.Pod) *v1.PodSpec {
	only := func(from []v1.Container) []v1.Container {
		var out []v1.Container
		for i := range from {
			out = append(out, v1.Container{Name: from[i].Name, Resources: from[i].Resources})
		}
		return out
	}
	return &v1.PodSpec{
		InitContainers: only(p.Spec.InitContainers), Containers: only(p.Spec.Containers), Resources: p.Spec.Resources,
	}
}

// WithSizes is p with the resources of sizes, and p itself where it has them already. A
// container that sizes does not name keeps its own.
func WithSizes(p *v1.Pod, sizes *v1.PodSpec) *v1.Pod {
	inits, a := withSizes(p.Spec.InitContainers, sizes.InitContainers)
	regular, b := withSizes(p.Spec.Containers, sizes.Containers)
	if !a && !b && equality.Semantic.DeepEqual(p.Spec.Resources, sizes.Resources) {
		return p
	}
	out := *p
	out.Spec.InitContainers, out.Spec.Containers, out.Spec.Resources = inits, regular, sizes.Resources
	return &out
}

func withSizes(list, sizes []v1.Container) (out []v1.Container, changed bool) {
	out = list
	for i := range list {
		for j := range sizes {
			if sizes[j].Name != list[i].Name || equality.Semantic.DeepEqual(sizes[j].Resources, list[i].Resources) {
				continue
			}
			if !changed {
				out, changed = append([]v1.Container(nil), list...), true
			}
			out[i].Resources = sizes[j].Resources
		}
	}
	return out, changed
}

// SizesID identifies the resources of a pod: equal ones have the same.
func SizesID(p *v1.Pod) string {
	data, err := Sizes(p).Marshal()
	if err != nil {
		return "" // it has only what was read from the wire
	}
	h := fnv.New64a()
	_, _ = h.Write(data)
	return fmt.Sprintf("%016x", h.Sum64())
}

// ResizeSummary is what events about a resize tell of a pod: its resources, the
// generation that asked for them and what went wrong, as JSON in the kubelet's form.
func ResizeSummary(p *v1.Pod, generation int64, problem string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	list := func(from []v1.Container) (out []container) {
		for i := range from {
			out = append(out, container{from[i].Name, from[i].Resources})
		}
		return out
	}
	data, err := json.Marshal(struct {
		Init       []container `json:"initContainers,omitempty"`
		Containers []container `json:"containers,omitempty"`
		Generation int64       `json:"generation"`
		Error      string      `json:"error,omitempty"`
	}{list(p.Spec.InitContainers), list(p.Spec.Containers), generation, problem})
	if err != nil {
		return problem
	}
	return string(data)
}
