// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// reservable are the resources that may be kept from pods.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

var errNoCPU = errors.New("no such CPU")

// SystemReserved returns what is kept for the system. With reservedSystemCPUs
// its cpu is the number of those CPUs, whatever systemReserved says.
func (c *Config) SystemReserved() corev1.ResourceList {
	list := resourceList(c.Kubelet.SystemReserved)
	if n := c.ReservedCPUs().Size(); n > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return list
}

// KubeReserved returns what is kept for Kubernetes itself, without cpu when
// reservedSystemCPUs is set.
func (c *Config) KubeReserved() corev1.ResourceList {
	list := resourceList(c.Kubelet.KubeReserved)
	if c.ReservedCPUs().Size() > 0 {
		delete(list, corev1.ResourceCPU)
	}
	return list
}

// ReservedCPUs returns the CPUs of reservedSystemCPUs, empty without it.
func (c *Config) ReservedCPUs() cpuset.CPUSet {
	set, err := parseCPUs(c.Kubelet.ReservedSystemCPUs)
	if err != nil {
		return cpuset.New()
	}
	return set
}

// resourceList parses a map of quantities, leaving out what does not parse.
func resourceList(m map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, s := range m {
		if q, err := parseQuantity(s); err == nil {
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}
