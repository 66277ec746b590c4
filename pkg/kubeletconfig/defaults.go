// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// The one version and kind a configuration file may have.
const (
	APIVersion = "kubelet.config.k8s.io/v1beta1"
	Kind       = "KubeletConfiguration"
)

// maxCrashLoopBackOff is the longest wait between two starts of a crashing container.
const maxCrashLoopBackOff = 300 * time.Second

// defaultEvictionHard returns the thresholds a --config file without
// evictionHard gets on Linux.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// SetDefaults fills every unset field with kubelet v1.36's default. It leaves
// evictionHard alone: that default belongs to --config files only.
func SetDefaults(k *kubeletv1beta1.KubeletConfiguration) { setDefaults(k, k.FeatureGates) }

// setDefaults is SetDefaults under a given featureGates map: some defaults
// depend on gates, which flags may have changed.
func setDefaults(k *kubeletv1beta1.KubeletConfiguration, set map[string]bool) {
	gates := gatesOf(set)
	defaultServing(k)
	defaultNodeStatus(k)
	defaultImages(k, gates)
	defaultResources(k)
	defaultPods(k, gates)
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

// defaultServing covers the agent's own endpoints and its clients.
func defaultServing(k *kubeletv1beta1.KubeletConfiguration) {
	orPtr(&k.EnableServer, true)
	or(&k.Address, "0.0.0.0")
	or(&k.Port, 10250)
	orPtr(&k.Authentication.Anonymous.Enabled, false)
	orPtr(&k.Authentication.Webhook.Enabled, true)
	orDur(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	or(&k.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	orDur(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDur(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orPtr(&k.EnableDebuggingHandlers, true)
	orPtr(&k.EnableProfilingHandler, true)
	orPtr(&k.EnableDebugFlagsHandler, true)
	orPtr(&k.EnableSystemLogHandler, true)
	orPtr(&k.EnableSystemLogQuery, false)
	orPtr(&k.HealthzPort, 10248)
	or(&k.HealthzBindAddress, "127.0.0.1")
	orDur(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	orPtr(&k.EventRecordQPS, 50)
	or(&k.EventBurst, 100)
	or(&k.ContentType, "application/vnd.kubernetes.protobuf")
	orPtr(&k.KubeAPIQPS, 50)
	or(&k.KubeAPIBurst, 100)
	or(&k.MaxOpenFiles, 1000000)
	orPtr(&k.OOMScoreAdj, -999)
}

// defaultNodeStatus covers registration, heartbeats and the node's status.
func defaultNodeStatus(k *kubeletv1beta1.KubeletConfiguration) {
	// An update frequency that was set is also the report frequency, as it was before
	// there were two fields.
	if k.NodeStatusUpdateFrequency.Duration != 0 {
		orDur(&k.NodeStatusReportFrequency, k.NodeStatusUpdateFrequency.Duration)
	}
	orDur(&k.NodeStatusReportFrequency, 5*time.Minute)
	orDur(&k.NodeStatusUpdateFrequency, 10*time.Second)
	or(&k.NodeLeaseDurationSeconds, 40)
	orPtr(&k.NodeStatusMaxImages, 50)
	orPtr(&k.RegisterNode, true)
	orPtr(&k.EnableControllerAttachDetach, true)
}

// defaultImages covers the runtime, images and container logs.
func defaultImages(k *kubeletv1beta1.KubeletConfiguration, g gates) {
	or(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orDur(&k.RuntimeRequestTimeout, 2*time.Minute)
	orPtr(&k.RegistryPullQPS, 5)
	or(&k.RegistryBurst, 10)
	// maxParallelImagePulls alone is enough to allow parallel pulls.
	orPtr(&k.SerializeImagePulls, ptr.Deref(k.MaxParallelImagePulls, 1) < 2)
	if g.enabled("KubeletEnsureSecretPulledImages") {
		or(&k.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	}
	orDur(&k.ImageMinimumGCAge, 2*time.Minute)
	orPtr(&k.ImageGCHighThresholdPercent, 85)
	orPtr(&k.ImageGCLowThresholdPercent, 80)
	or(&k.ContainerLogMaxSize, "10Mi")
	orPtr(&k.ContainerLogMaxFiles, 5)
	orPtr(&k.ContainerLogMaxWorkers, 1)
	orDurPtr(&k.ContainerLogMonitorInterval, 10*time.Second)
	or(&k.PodLogsDir, "/var/log/pods")
}

// defaultResources covers cgroups, resource managers, eviction and allocatable.
func defaultResources(k *kubeletv1beta1.KubeletConfiguration) {
	orPtr(&k.CgroupsPerQOS, true)
	or(&k.CgroupDriver, "cgroupfs")
	orPtr(&k.FailCgroupV1, true)
	orPtr(&k.FailSwapOn, true)
	orPtr(&k.CPUCFSQuota, true)
	orDurPtr(&k.CPUCFSQuotaPeriod, 100*time.Millisecond)
	or(&k.CPUManagerPolicy, "none")
	orDur(&k.CPUManagerReconcilePeriod, 10*time.Second)
	or(&k.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy)
	or(&k.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
	or(&k.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope)
	orPtr(&k.MemoryThrottlingFactor, 0.9)
	or(&k.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	orDur(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPtr(&k.MergeDefaultEvictionSettings, false)
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{"pods"}
	}
	orPtr(&k.LocalStorageCapacityIsolation, true)
	// A negative limit means the same as none.
	if ptr.Deref(k.PodPidsLimit, -1) < 0 {
		k.PodPidsLimit = new(int64(-1))
	}
}

// defaultPods covers where pods come from and how they are run.
func defaultPods(k *kubeletv1beta1.KubeletConfiguration, g gates) {
	orDur(&k.SyncFrequency, time.Minute)
	orDur(&k.FileCheckFrequency, 20*time.Second)
	orDur(&k.HTTPCheckFrequency, 20*time.Second)
	or(&k.MaxPods, 110)
	or(&k.HairpinMode, kubeletv1beta1.PromiscuousBridge)
	orPtr(&k.ResolverConfig, "/etc/resolv.conf")
	orPtr(&k.MakeIPTablesUtilChains, true)
	orPtr(&k.IPTablesMasqueradeBit, 14)
	orPtr(&k.IPTablesDropBit, 15)
	orPtr(&k.SeccompDefault, false)
	or(&k.ConfigMapAndSecretChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	orDur(&k.VolumeStatsAggPeriod, time.Minute)
	or(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	if g.enabled("KubeletCrashLoopBackOffMax") {
		orDurPtr(&k.CrashLoopBackOff.MaxContainerRestartPeriod, maxCrashLoopBackOff)
	}
}

// setLegacyDefaults applies the defaults of a command line without --config: the API is
// open and the read-only port is served.
func setLegacyDefaults(k *kubeletv1beta1.KubeletConfiguration) {
	k.Authentication.Anonymous.Enabled = new(true)
	k.Authentication.Webhook.Enabled = new(false)
	k.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	k.ReadOnlyPort = 10255
}

// setFileEvictionDefaults completes evictionHard of a --config file.
func setFileEvictionDefaults(k *kubeletv1beta1.KubeletConfiguration) {
	switch {
	case k.EvictionHard == nil:
		k.EvictionHard = defaultEvictionHard()
	case ptr.Deref(k.MergeDefaultEvictionSettings, false):
		for signal, threshold := range defaultEvictionHard() {
			if _, ok := k.EvictionHard[signal]; !ok {
				k.EvictionHard[signal] = threshold
			}
		}
	}
}

// defaultConfiguration returns the configuration before anything is read.
func defaultConfiguration(fromFile bool) *kubeletv1beta1.KubeletConfiguration {
	k := &kubeletv1beta1.KubeletConfiguration{}
	k.APIVersion, k.Kind = APIVersion, Kind
	SetDefaults(k)
	if fromFile {
		setFileEvictionDefaults(k)
	} else {
		setLegacyDefaults(k)
	}
	return k
}

func or[T comparable](p *T, def T) { *p = cmp.Or(*p, def) }

func orPtr[T any](p **T, def T) {
	if *p == nil {
		*p = &def
	}
}

func orDur(p *metav1.Duration, def time.Duration) { or(&p.Duration, def) }

func orDurPtr(p **metav1.Duration, def time.Duration) {
	if *p == nil {
		*p = &metav1.Duration{Duration: def}
	}
}
