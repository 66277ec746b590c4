// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
)

// allocationOf is the part of a pod's allocation that is one container's.
func allocationOf(item *resourcev1.PodAllocation, container string) actuate.Allocation {
	out := actuate.Allocation{CPUSet: item.GetSharedCpus()}
	for _, c := range item.GetContainers() {
		if c.GetName() != container {
			continue
		}
		out = actuate.Allocation{
			Envs: c.GetEnvs(), Annotations: c.GetAnnotations(), CDIDevices: c.GetCdiDevices(),
			CPUSet: cmp.Or(c.GetCpusetCpus(), item.GetSharedCpus()), MemorySet: c.GetCpusetMems(), ExclusiveCPUs: c.GetExclusiveCpus(),
			OfPlugins: len(c.GetPluginDevices()) > 0,
		}
		for _, d := range c.GetDevices() {
			out.Devices = append(out.Devices, &runtimeapi.Device{
				HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions(),
			})
		}
		for _, m := range c.GetMounts() {
			out.Mounts = append(out.Mounts, &runtimeapi.Mount{
				HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadOnly(),
			})
		}
	}
	return out
}

// ownCPUs are the CPUs of the containers that have their own, by name.
func ownCPUs(item *resourcev1.PodAllocation) map[string]string {
	own := map[string]string{}
	for _, c := range item.GetContainers() {
		if c.GetCpusetCpus() != "" {
			own[c.GetName()] = c.GetCpusetCpus()
		}
	}
	return own
}
