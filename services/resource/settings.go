// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/pinning"
	"github.com/sextant-node/sextant/services/resource/internal/resize"
)

// settings is what a configuration and the machine come to. It does not change.
type settings struct {
	conf                  *kubeletconfig.Config
	driver                pod.CgroupDriver
	root                  pod.CgroupName
	capacity, allocatable v1.ResourceList
	reserved              v1.ResourceList // what pods never get of it
	sysctls               *pod.SysctlAllowlist
	pins                  *pinning.Policies
	cgroupVersion         uint32 // of the machine: 1 or 2
}

func settingsOf(conf *kubeletconfig.Config, driver pod.CgroupDriver, facts *machine.Facts, disk machine.Disk) (*settings, error) {
	root, err := pod.ParseCgroupRoot(conf.CgroupRoot())
	if err != nil {
		return nil, err
	}
	capacity := machine.Capacity(facts, disk, &conf.Kubelet)
	thresholds := conf.EvictionThresholds()
	if conf.Node.IgnoreHardEvictionInAllocatable {
		thresholds = nil
	}
	reserved, err := machine.Reserved(capacity, &conf.Kubelet, thresholds)
	if err != nil {
		return nil, err
	}
	sysctls, err := pod.NewSysctlAllowlist(append(pod.SafeSysctls(facts.Kernel), conf.Kubelet.AllowedUnsafeSysctls...)...)
	if err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	return &settings{
		conf: conf, driver: driver, root: root, sysctls: sysctls,
		capacity: capacity, allocatable: machine.Allocatable(capacity, reserved), reserved: reserved, cgroupVersion: facts.CgroupVersion,
	}, nil
}

// qos reports whether pods have cgroups of their own (cgroupsPerQOS).
func (now *settings) qos() bool {
	q := now.conf.Kubelet.CgroupsPerQOS
	return q == nil || *q
}

// cgroupOf is where a pod's cgroup goes.
func (now *settings) cgroupOf(p *v1.Pod) pod.CgroupName {
	if !now.qos() {
		return nil
	}
	return pod.PodCgroupOf(now.root, pod.QOS(p), p.UID)
}

// values are those of a pod's cgroup, by what was chosen for the pod.
func (now *settings) values(p *v1.Pod, chosen *resourcev1.Chosen) cgroup.Values {
	k := now.conf.Kubelet
	enforce := (k.CPUCFSQuota == nil || *k.CPUCFSQuota) && !pinning.Unlimited(p, chosen)
	quota := 100 * time.Millisecond
	if k.CPUCFSQuotaPeriod != nil && k.CPUCFSQuotaPeriod.Duration > 0 {
		quota = k.CPUCFSQuotaPeriod.Duration
	}
	values := cgroup.Values{CgroupResources: pod.PodCgroupResources(p, enforce, quota)}
	if k.PodPidsLimit != nil && *k.PodPidsLimit > 0 {
		values.PIDs = k.PodPidsLimit
	}
	values.Unified = now.protection(pod.QOS(p), values.MemoryRequest)
	return values
}

// room are values for what a pod is allocated and, until that is settled, for what its
// containers may have had before.
func (now *settings) room(h *held) cgroup.Values {
	values := now.values(h.pod, h.chosen)
	if h.Room != nil {
		values.CgroupResources = resize.Room(*h.Room, values.CgroupResources)
	}
	return values
}

// eviction is the configuration as decisions take it.
func (now *settings) eviction(layout eviction.Layout) eviction.Config {
	k := &now.conf.Kubelet
	return eviction.Config{
		Thresholds: eviction.Thresholds(now.conf.EvictionThresholds(), slices.Contains(k.EnforceNodeAllocatable, "pods"), layout),
		Transition: k.EvictionPressureTransitionPeriod.Duration, MaxPodGrace: int64(k.EvictionMaxPodGracePeriod),
		Isolation: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation, Layout: layout,
	}
}

// resizes is the configuration as judgements of resizes take it.
func (now *settings) resizes() resize.Policies {
	k := &now.conf.Kubelet
	return resize.Policies{
		StaticCPU:    k.CPUManagerPolicy == "static" && !now.conf.Gate("InPlacePodVerticalScalingExclusiveCPUs"),
		StaticMemory: k.MemoryManagerPolicy == "Static" && !now.conf.Gate("InPlacePodVerticalScalingExclusiveMemory"),
		PodLevel:     now.conf.Gate("InPlacePodLevelResourcesVerticalScaling"),
		Swap:         pod.ResourceOptions{Swap: pod.SwapMode(k.MemorySwap.SwapBehavior), SwapController: true, CgroupV2: now.cgroupVersion == 2},
	}
}

// period of measuring (the kubelet's eviction monitor: 10 s).
const period = 10 * time.Second

// kept is the part of what higher classes request that lower ones cannot use
// (qosReserved, gate QOSReserved), 0..1; false without one.
func (now *settings) kept() (part float64, ok bool) {
	text, ok := now.conf.Kubelet.QOSReserved[string(v1.ResourceMemory)]
	if !ok || !now.conf.Gate("QOSReserved") {
		return 0, false
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64) // config has checked it
	return percent / 100, err == nil
}

// protects reports whether cgroups have memory.min and memory.low (KEP-2570), which only
// version 2 has.
func (now *settings) protects() bool {
	return now.cgroupVersion == 2 && now.conf.Gate("MemoryQoS")
}

// tiered reports whether requests of memory are protected (memoryReservationPolicy).
func (now *settings) tiered() bool {
	return now.conf.Kubelet.MemoryReservationPolicy == "TieredReservation"
}

// protection is what a cgroup has of version 2 for pods of a class that request that much
// memory: Guaranteed ones never lose it, Burstable ones last. Without tiers zeros are
// written, so that nothing of earlier ones stays.
func (now *settings) protection(class v1.PodQOSClass, request int64) map[string]string {
	if !now.protects() {
		return nil
	}
	out := map[string]string{"memory.min": "0", "memory.low": "0"}
	if now.tiered() {
		switch class {
		case v1.PodQOSGuaranteed:
			out["memory.min"] = strconv.FormatInt(request, 10)
		case v1.PodQOSBurstable:
			out["memory.low"] = strconv.FormatInt(request, 10)
		}
	}
	return out
}
