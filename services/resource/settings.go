// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
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
	enforce := (k.CPUCFSQuota == nil || *k.CPUCFSQuota) && !pinning.Unlimited(chosen)
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
