// SPDX-License-Identifier: Apache-2.0

// Package podresources answers the PodResources API (k8s.io/kubelet/pkg/apis/podresources,
// KEP-2043, KEP-3695): which pods have which devices, CPUs, memory and claims, and what could be
// given at all. Answers are made of facts and are pure; server.go is the socket.
package podresources

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
)

// Pod is a pod with what it holds.
type Pod struct {
	Pod    *v1.Pod
	Chosen *resourcev1.Chosen
	// Claims are the prepared claims of a container.
	Claims func(c *v1.Container) []*dra.Claim
}

// Allocatable is what can be given to pods.
type Allocatable struct {
	Inventory devices.Inventory
	// CPUs and Memory that containers can have of their own.
	CPUs   cpuset.CPUSet
	Memory []state.Block
}

// list is the answer about pods: sidecars, then containers.
func list(pods []Pod) *podresourcesv1.ListPodResourcesResponse {
	resp := &podresourcesv1.ListPodResourcesResponse{}
	for _, p := range pods {
		resp.PodResources = append(resp.PodResources, p.resources())
	}
	return resp
}

func (p Pod) resources() *podresourcesv1.PodResources {
	out := &podresourcesv1.PodResources{Name: p.Pod.Name, Namespace: p.Pod.Namespace}
	for kind, c := range pod.Containers(p.Pod) {
		if kind == pod.Sidecar || kind == pod.Regular {
			out.Containers = append(out.Containers, p.container(c))
		}
	}
	return out
}

func (p Pod) container(c *v1.Container) *podresourcesv1.ContainerResources {
	out := &podresourcesv1.ContainerResources{Name: c.Name}
	for _, chosen := range p.Chosen.GetContainers() {
		if chosen.GetName() != c.Name {
			continue
		}
		for _, given := range chosen.GetPluginDevices() {
			for _, d := range given.GetDevices() {
				out.Devices = append(out.Devices, device(given.GetResource(), d.GetId(), d.GetTopology(), d.GetNodes())...)
			}
		}
		if set, err := cpuset.Parse(chosen.GetCpusetCpus()); err == nil {
			out.CpuIds = numbers(set)
		}
		for _, b := range chosen.GetMemory() {
			out.Memory = append(out.Memory, memory(b.GetType(), b.GetSize(), b.GetNodes()))
		}
	}
	for _, claim := range p.Claims(c) {
		out.DynamicResources = append(out.DynamicResources, dynamic(claim))
	}
	return out
}

// device is in the answer once for each of its NUMA nodes, and once where nothing is said
// of nodes; a device that is near none is left out, as by a kubelet.
func device(resource, id string, topology bool, nodes []int64) (all []*podresourcesv1.ContainerDevices) {
	if !topology {
		return []*podresourcesv1.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}
	}
	for _, n := range nodes {
		all = append(all, &podresourcesv1.ContainerDevices{
			ResourceName: resource, DeviceIds: []string{id}, Topology: &podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: n}}},
		})
	}
	return all
}

// memory is a block of it, with the NUMA nodes that it may be on.
func memory(kind string, size uint64, nodes []int64) *podresourcesv1.ContainerMemory {
	out := &podresourcesv1.ContainerMemory{MemoryType: kind, Size: size, Topology: &podresourcesv1.TopologyInfo{}}
	for _, id := range nodes {
		out.Topology.Nodes = append(out.Topology.Nodes, &podresourcesv1.NUMANode{ID: id})
	}
	return out
}

func numbers(set cpuset.CPUSet) (ids []int64) {
	for _, id := range set.List() {
		ids = append(ids, int64(id))
	}
	return ids
}

// dynamic has all devices of a claim, whatever request of it the container names. Each has
// its own CDI devices; a kubelet repeats those of the devices before it.
func dynamic(claim *dra.Claim) *podresourcesv1.DynamicResource {
	out := &podresourcesv1.DynamicResource{ClaimName: claim.Name, ClaimNamespace: claim.Namespace}
	for _, driver := range slices.Sorted(maps.Keys(claim.Drivers)) {
		for _, d := range claim.Drivers[driver].Devices {
			one := &podresourcesv1.ClaimResource{DriverName: driver, PoolName: d.PoolName, DeviceName: d.DeviceName, ShareId: (*string)(d.ShareID)}
			for _, id := range d.CDIDeviceIDs {
				one.CdiDevices = append(one.CdiDevices, &podresourcesv1.CDIDevice{Name: id})
			}
			out.ClaimResources = append(out.ClaimResources, one)
		}
	}
	return out
}

// allocatable is the answer about what can be given: healthy devices, CPUs and memory.
func allocatable(a Allocatable) *podresourcesv1.AllocatableResourcesResponse {
	resp := &podresourcesv1.AllocatableResourcesResponse{CpuIds: numbers(a.CPUs)}
	for _, b := range a.Memory {
		var nodes []int64
		for _, id := range b.NUMAAffinity {
			nodes = append(nodes, int64(id))
		}
		resp.Memory = append(resp.Memory, memory(string(b.Type), b.Size, nodes))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Inventory)) {
		r := a.Inventory[name]
		if r.State == devices.Away || r.State == devices.Gone {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(r.Devices)) {
			d := r.Devices[id]
			var nodes []int64
			for _, n := range d.Nodes {
				nodes = append(nodes, int64(n))
			}
			if d.Healthy {
				resp.Devices = append(resp.Devices, device(name, id, d.NUMA, nodes)...)
			}
		}
	}
	return resp
}

// listAlpha is the answer of v1alpha1: containers that are no init containers, and their
// devices.
func listAlpha(pods []Pod) *podresourcesv1alpha1.ListPodResourcesResponse {
	resp := &podresourcesv1alpha1.ListPodResourcesResponse{}
	for _, p := range pods {
		out := &podresourcesv1alpha1.PodResources{Name: p.Pod.Name, Namespace: p.Pod.Namespace}
		for i := range p.Pod.Spec.Containers {
			c := &podresourcesv1alpha1.ContainerResources{Name: p.Pod.Spec.Containers[i].Name}
			for _, d := range p.container(&p.Pod.Spec.Containers[i]).GetDevices() {
				c.Devices = append(c.Devices, &podresourcesv1alpha1.ContainerDevices{ResourceName: d.GetResourceName(), DeviceIds: d.GetDeviceIds()})
			}
			out.Containers = append(out.Containers, c)
		}
		resp.PodResources = append(resp.PodResources, out)
	}
	return resp
}
