// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// PID is what processes are called in kubeReserved and systemReserved.
const PID v1.ResourceName = "pid"

// Capacity completes the machine's with what depends on the configuration: pods,
// and the disk the root directory is on.
func Capacity(f *Facts, disk Disk, k *kubeletv1beta1.KubeletConfiguration) v1.ResourceList {
	capacity := f.Capacity.DeepCopy()
	pods := int64(k.MaxPods)
	if k.PodsPerCore > 0 {
		pods = min(pods, f.Cores*int64(k.PodsPerCore))
	}
	capacity[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	if k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation {
		capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.Bytes, resource.BinarySI)
	}
	return capacity
}

// Reserved is what pods never get: kubeReserved, systemReserved and, for memory
// and disk, the hard ones of the eviction thresholds.
func Reserved(capacity v1.ResourceList, k *kubeletv1beta1.KubeletConfiguration, thresholds []kubeletconfig.Threshold) (v1.ResourceList, error) {
	reserved := v1.ResourceList{}
	add := func(name v1.ResourceName, q resource.Quantity) {
		sum := reserved[name]
		sum.Add(q)
		reserved[name] = sum
	}
	for field, list := range map[string]map[string]string{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		for name, text := range list {
			if name == string(v1.ResourceCPU) && k.ReservedSystemCPUs != "" {
				continue // the set counts instead
			}
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s[%s]: %w", field, name, err)
			}
			add(v1.ResourceName(name), q)
		}
	}
	if k.ReservedSystemCPUs != "" {
		set, err := cpuset.Parse(k.ReservedSystemCPUs)
		if err != nil {
			return nil, fmt.Errorf("reservedSystemCPUs: %w", err)
		}
		add(v1.ResourceCPU, *resource.NewQuantity(int64(set.Size()), resource.DecimalSI))
	}
	for _, t := range thresholds {
		name, ok := map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage}[t.Signal]
		whole, has := capacity[name]
		if ok && has && t.Hard {
			add(name, *resource.NewQuantity(t.Amount.Of(whole.Value()), resource.BinarySI))
		}
	}
	return reserved, nil
}

// Less is capacity less what is reserved, never below zero.
func Less(capacity, reserved v1.ResourceList) v1.ResourceList {
	all := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		if r, ok := reserved[name]; ok {
			left.Sub(r)
		}
		if left.Sign() < 0 {
			left.Set(0)
		}
		all[name] = left
	}
	return all
}

// Allocatable is capacity less what is reserved; huge pages are taken out of
// memory, for they are of no use as such.
func Allocatable(capacity, reserved v1.ResourceList) v1.ResourceList {
	allocatable := Less(capacity, reserved)
	for name, q := range capacity {
		if !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			continue
		}
		memory := allocatable[v1.ResourceMemory]
		memory.Sub(q)
		if memory.Sign() < 0 {
			memory.Set(0)
		}
		allocatable[v1.ResourceMemory] = memory
	}
	return allocatable
}
