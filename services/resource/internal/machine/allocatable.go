package machine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
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
// and disk, the hard eviction thresholds.
func Reserved(capacity v1.ResourceList, k *kubeletv1beta1.KubeletConfiguration) (v1.ResourceList, error) {
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
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text, ok := k.EvictionHard[signal]
		whole, has := capacity[name]
		if !ok || !has {
			continue
		}
		n, err := Threshold(text, whole.Value())
		if err != nil {
			return nil, fmt.Errorf("evictionHard[%s]: %w", signal, err)
		}
		add(name, *resource.NewQuantity(n, resource.BinarySI))
	}
	return reserved, nil
}

// Threshold reads an eviction threshold: a quantity, or a percentage of whole.
func Threshold(text string, whole int64) (int64, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(p >= 0 && p <= 100) {
			return 0, fmt.Errorf("%q is not a percentage", text)
		}
		return int64(math.Floor(float64(whole) * p / 100)), nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, err
	}
	if q.Sign() < 0 {
		return 0, fmt.Errorf("%q is negative", text)
	}
	return q.Value(), nil
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
