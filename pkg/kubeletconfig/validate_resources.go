// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// cgroups checks the cgroup tree and CPU quota.
func (v *validator) cgroups() {
	k := v.k
	oneOf(v, "cgroupDriver", k.CgroupDriver, "", "cgroupfs", "systemd")
	if k.SystemCgroups != "" && k.CgroupRoot == "" {
		v.required(at("cgroupRoot"), "must be given together with systemCgroups")
	}
	period := k.CPUCFSQuotaPeriod.Duration
	switch {
	case v.gates.enabled("CustomCPUCFSQuotaPeriod"):
		if period < time.Millisecond || period > time.Second {
			v.invalid(at("cpuCFSQuotaPeriod"), period.String(), "must be between 1ms and 1s")
		}
	case period != 100*time.Millisecond:
		v.forbidden(at("cpuCFSQuotaPeriod"), "requires the feature gate CustomCPUCFSQuotaPeriod")
	}
	oneOf(v, "memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
}

// Where reservations are enforced: values of enforceNodeAllocatable.
const (
	enforceNone               = "none"
	enforcePods               = "pods"
	enforceSystem             = "system-reserved"
	enforceSystemCompressible = "system-reserved-compressible"
	enforceKube               = "kube-reserved"
	enforceKubeCompressible   = "kube-reserved-compressible"
)

// allocatable checks what is kept from pods, and how.
func (v *validator) allocatable() {
	k, list := v.k, at("enforceNodeAllocatable")
	seen := map[string]bool{}
	for i, e := range k.EnforceNodeAllocatable {
		p := list.Index(i)
		if seen[e] {
			v.errs = append(v.errs, field.Duplicate(p, e))
			continue
		}
		seen[e] = true
		switch e {
		case enforceNone:
			if len(k.EnforceNodeAllocatable) > 1 {
				v.invalid(p, e, "must stand alone")
			}
			continue
		case enforcePods:
		case enforceSystem, enforceSystemCompressible:
			if k.SystemReservedCgroup == "" {
				v.required(at("systemReservedCgroup"), "must be given because enforceNodeAllocatable holds %s", e)
			}
		case enforceKube, enforceKubeCompressible:
			if k.KubeReservedCgroup == "" {
				v.required(at("kubeReservedCgroup"), "must be given because enforceNodeAllocatable holds %s", e)
			}
		default:
			v.errs = append(v.errs, field.NotSupported(p, e,
				[]string{enforceNone, enforcePods, enforceSystem, enforceSystemCompressible, enforceKube, enforceKubeCompressible}))
			continue
		}
		if !*k.CgroupsPerQOS {
			v.invalid(p, e, "requires cgroupsPerQOS: true; without it set enforceNodeAllocatable: [none]")
		}
	}
	for _, pair := range [][2]string{{enforceSystem, enforceSystemCompressible}, {enforceKube, enforceKubeCompressible}} {
		if seen[pair[0]] && seen[pair[1]] {
			v.invalid(list, strings.Join(k.EnforceNodeAllocatable, ","), "must not hold both %s and %s", pair[0], pair[1])
		}
	}
	v.reservation("systemReserved", k.SystemReserved)
	v.reservation("kubeReserved", k.KubeReserved)
	v.reservedCPUs()
}

// reservation checks one list of reserved resources.
func (v *validator) reservation(path string, m map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p := at(path).Key(name)
		if !slices.Contains(reservable, name) {
			v.errs = append(v.errs, field.NotSupported(p, name, reservable))
			continue
		}
		if q, err := parseQuantity(m[name]); err != nil {
			v.invalid(p, m[name], "%v", err)
		} else if q.Sign() < 0 {
			v.invalid(p, m[name], "must not be negative")
		}
	}
}

func (v *validator) reservedCPUs() {
	k := v.k
	if k.ReservedSystemCPUs == "" {
		return
	}
	p := at("reservedSystemCPUs")
	if k.SystemReservedCgroup != "" || k.KubeReservedCgroup != "" {
		v.forbidden(p, "cannot be combined with systemReservedCgroup and kubeReservedCgroup")
	}
	if _, err := parseCPUs(k.ReservedSystemCPUs); err != nil {
		v.invalid(p, clip(k.ReservedSystemCPUs), "must be a list of CPUs such as 0-1,4")
	}
}

// maxCPU is far above any CPU number there is; a range up to 2^31 would be
// expanded CPU by CPU.
const maxCPU = 1 << 16

// parseCPUs parses a CPU list.
func parseCPUs(s string) (cpuset.CPUSet, error) {
	for _, n := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		if len(strings.TrimLeft(n, "0")) > 5 {
			return cpuset.CPUSet{}, errNoCPU
		}
	}
	set, err := cpuset.Parse(s)
	if err != nil {
		return set, err
	}
	if list := set.UnsortedList(); len(list) > 0 && slices.Max(list) >= maxCPU {
		return set, errNoCPU
	}
	return set, nil
}

// reservedMemory checks the memory manager's reservations.
func (v *validator) reservedMemory() {
	k, list := v.k, at("reservedMemory")
	type slot struct {
		numa int32
		name corev1.ResourceName
	}
	seen := map[slot]bool{}
	total := resource.Quantity{}
	for i, r := range k.ReservedMemory {
		if r.NumaNode < 0 {
			v.invalid(list.Index(i).Child("numaNode"), r.NumaNode, "must not be negative")
		}
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q, p := r.Limits[name], list.Index(i).Child("limits").Key(string(name))
			if name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				v.errs = append(v.errs, field.NotSupported(p, name, []string{"memory", "hugepages-<size>"}))
			}
			if q.Sign() <= 0 {
				v.invalid(p, q.String(), "must be greater than zero")
			}
			if s := (slot{r.NumaNode, name}); seen[s] {
				v.errs = append(v.errs, field.Duplicate(p, name))
			} else {
				seen[s] = true
			}
			if name == corev1.ResourceMemory {
				total.Add(q)
			}
		}
	}
	if want, ok := v.memoryToReserve(); ok && total.Cmp(want) != 0 {
		v.invalid(list, total.String(), "the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature"+
			" (kubeReserved, systemReserved and evictionHard[memory.available])", total.String(), "memory", want.String())
	}
}

// memoryToReserve is what reservedMemory must sum up to; not ok when that does
// not matter or depends on the machine.
func (v *validator) memoryToReserve() (resource.Quantity, bool) {
	sum := resource.Quantity{Format: resource.BinarySI}
	if v.k.MemoryManagerPolicy != kubeletv1beta1.StaticMemoryManagerPolicy {
		return sum, false
	}
	for _, s := range []string{v.k.KubeReserved["memory"], v.k.SystemReserved["memory"], v.k.EvictionHard["memory.available"]} {
		if s == "" {
			continue
		}
		q, err := parseQuantity(s)
		if err != nil {
			return sum, false
		}
		sum.Add(q)
	}
	return sum, true
}

// memoryQoS checks memory protection, an alpha feature.
func (v *validator) memoryQoS() {
	k := v.k
	if f := *k.MemoryThrottlingFactor; !(f > 0 && f <= 1) {
		v.invalid(at("memoryThrottlingFactor"), f, "must be greater than 0 and at most 1")
	}
	oneOf(v, "memoryReservationPolicy", k.MemoryReservationPolicy,
		kubeletv1beta1.NoneMemoryReservationPolicy, kubeletv1beta1.TieredReservationMemoryReservationPolicy)
	if k.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy && !v.gates.enabled("MemoryQoS") {
		v.forbidden(at("memoryReservationPolicy"), "TieredReservation requires the feature gate MemoryQoS")
	}
	for _, name := range slices.Sorted(maps.Keys(k.QOSReserved)) {
		p := at("qosReserved").Key(name)
		if name != "memory" {
			v.errs = append(v.errs, field.NotSupported(p, name, []string{"memory"}))
			continue
		}
		if f, err := parsePercent(k.QOSReserved[name]); err != nil || !strings.HasSuffix(k.QOSReserved[name], "%") || f < 0 || f > 1 {
			v.invalid(p, k.QOSReserved[name], "must be a percentage between 0%% and 100%%")
		}
	}
}
