// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// invalidCase is a configuration and the errors it yields: field paths with
// the beginning of what follows them.
type invalidCase struct {
	in   string
	want []string
}

// on puts gates on in front of a case.
func gatesSet(gates, in string) string { return "featureGates: {" + gates + "}\n" + in }

var invalidCases = []invalidCase{
	// Serving.
	{"address: here\n", []string{"address: Invalid value"}},
	{"port: -1\n", []string{"port: Invalid value: -1: must be between 1 and 65535"}},
	{"port: 65536\n", []string{"port: Invalid value"}},
	{"readOnlyPort: 65536\n", []string{"readOnlyPort: Invalid value"}},
	{"readOnlyPort: 10250\n", []string{"readOnlyPort: Invalid value: 10250: must not be the same as port"}},
	{"healthzPort: -1\n", []string{"healthzPort: Invalid value"}},
	{"healthzBindAddress: localhost\n", []string{"healthzBindAddress: Invalid value"}},
	{"enableSystemLogQuery: true\nenableSystemLogHandler: false\n", []string{"enableSystemLogQuery: Forbidden: requires enableSystemLogHandler"}},
	{yamlAt("authentication.webhook.cacheTTL", "-1s"), []string{"authentication.webhook.cacheTTL: Invalid value"}},
	{yamlAt("authorization.mode", "RBAC"), []string{`authorization.mode: Unsupported value: "RBAC"`}},
	{yamlAt("authorization.webhook.cacheAuthorizedTTL", "-1s"), []string{"authorization.webhook.cacheAuthorizedTTL: Invalid value"}},
	{yamlAt("authorization.webhook.cacheUnauthorizedTTL", "-1s"), []string{"authorization.webhook.cacheUnauthorizedTTL: Invalid value"}},
	{"tlsCipherSuites: [TLS_AES_128_GCM_SHA256, TLS_NONE]\n", []string{`tlsCipherSuites[1]: Invalid value: "TLS_NONE"`}},
	{"tlsMinVersion: VersionTLS9\n", []string{"tlsMinVersion: Unsupported value"}},
	{"tlsCurvePreferences: [23, 1, 23]\n", []string{"tlsCurvePreferences[1]: Invalid value: 1", "tlsCurvePreferences[2]: Invalid value: 23: is listed twice"}},
	{"tlsCertFile: /a\n", []string{"tlsPrivateKeyFile: Required value"}},
	{"tlsPrivateKeyFile: /a\n", []string{"tlsCertFile: Required value"}},
	{gatesSet("RotateKubeletServerCertificate: false", "serverTLSBootstrap: true\n"), []string{"serverTLSBootstrap: Forbidden"}},
	{"eventRecordQPS: -1\n", []string{"eventRecordQPS: Invalid value"}},
	{"eventBurst: -1\n", []string{"eventBurst: Invalid value"}},
	{"kubeAPIQPS: -1\n", []string{"kubeAPIQPS: Invalid value"}},
	{"kubeAPIBurst: -1\n", []string{"kubeAPIBurst: Invalid value"}},
	{"contentType: text/plain\n", []string{"contentType: Unsupported value"}},
	{"maxOpenFiles: -1\n", []string{"maxOpenFiles: Invalid value"}},
	{"oomScoreAdj: -1001\n", []string{"oomScoreAdj: Invalid value"}},
	{"oomScoreAdj: 1001\n", []string{"oomScoreAdj: Invalid value"}},

	// Node.
	{"nodeStatusUpdateFrequency: -1s\nnodeStatusReportFrequency: 1s\n", []string{"nodeStatusUpdateFrequency: Invalid value"}},
	{"nodeStatusReportFrequency: -1s\n", []string{"nodeStatusReportFrequency: Invalid value"}},
	{"nodeLeaseDurationSeconds: -1\n", []string{"nodeLeaseDurationSeconds: Invalid value"}},
	{"nodeStatusMaxImages: -2\n", []string{"nodeStatusMaxImages: Invalid value"}},
	{"registerWithTaints: [{key: a, effect: NoSchedule}, {key: 'b c', value: 'd e', effect: Never}]\n", []string{
		"registerWithTaints[1].key: Invalid value", "registerWithTaints[1].value: Invalid value", "registerWithTaints[1].effect: Unsupported value"}},
	{"registerWithTaints: [{key: a}]\n", []string{"registerWithTaints[0].effect: Required value"}},
	{"registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]\n", []string{"registerWithTaints[0].timeAdded: Forbidden"}},
	{"registerWithTaints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]\n", []string{"registerWithTaints[1]: Duplicate value"}},
	{yamlAt("userNamespaces.idsPerPod", "1"), []string{"userNamespaces.idsPerPod: Invalid value: 1: must be at least 65536"}},
	{yamlAt("userNamespaces.idsPerPod", "65537"), []string{"userNamespaces.idsPerPod: Invalid value: 65537: must be a multiple of 65536"}},
	{yamlAt("userNamespaces.idsPerPod", "4294967296"), []string{"userNamespaces.idsPerPod: Invalid value: 4294967296: must be at most 4294967295"}},

	// Pods.
	{"syncFrequency: -1s\n", []string{"syncFrequency: Invalid value"}},
	{"fileCheckFrequency: -1s\n", []string{"fileCheckFrequency: Invalid value"}},
	{"httpCheckFrequency: -1s\n", []string{"httpCheckFrequency: Invalid value"}},
	{"staticPodURL: ftp://a/b\n", []string{"staticPodURL: Invalid value"}},
	{"staticPodURL: 'http://'\n", []string{"staticPodURL: Invalid value"}},
	{"maxPods: -1\n", []string{"maxPods: Invalid value"}},
	{"podsPerCore: -1\n", []string{"podsPerCore: Invalid value"}},
	{"runOnce: true\n", []string{"runOnce: Invalid value"}},
	{"podCIDR: 10.0.0.0/8,10\n", []string{"podCIDR: Invalid value"}},
	{"hairpinMode: hairpin\n", []string{"hairpinMode: Unsupported value"}},
	{"configMapAndSecretChangeDetectionStrategy: Poll\n", []string{"configMapAndSecretChangeDetectionStrategy: Unsupported value"}},
	{"iptablesMasqueradeBit: 32\n", []string{"iptablesMasqueradeBit: Invalid value"}},
	{"iptablesDropBit: -1\n", []string{"iptablesDropBit: Invalid value"}},
	{yamlAt("crashLoopBackOff.maxContainerRestartPeriod", "900ms"), []string{"crashLoopBackOff.maxContainerRestartPeriod: Invalid value"}},
	{yamlAt("crashLoopBackOff.maxContainerRestartPeriod", "301s"), []string{"crashLoopBackOff.maxContainerRestartPeriod: Invalid value"}},
	{gatesSet("KubeletCrashLoopBackOffMax: false", yamlAt("crashLoopBackOff.maxContainerRestartPeriod", "10s")), []string{"crashLoopBackOff.maxContainerRestartPeriod: Forbidden"}},
	{"allowedUnsafeSysctls: [net.*, 'a b', vm.swappiness]\n", []string{"allowedUnsafeSysctls[1]: Invalid value", "allowedUnsafeSysctls[2]: Invalid value"}},
	{"allowedUnsafeSysctls: [net." + strings.Repeat("a", 250) + "]\n", []string{"allowedUnsafeSysctls[0]: Invalid value"}},
	{"clusterDNS: [10.0.0.10, dns]\n", []string{"clusterDNS[1]: Invalid value"}},
	{"clusterDomain: a b\n", []string{"clusterDomain: Invalid value"}},
	{"shutdownGracePeriod: 500ms\n", []string{"shutdownGracePeriod: Invalid value"}},
	{"shutdownGracePeriod: -1s\nshutdownGracePeriodCriticalPods: -1s\n", []string{"shutdownGracePeriod: Invalid value", "shutdownGracePeriodCriticalPods: Invalid value"}},
	{"shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 6s\n", []string{"shutdownGracePeriodCriticalPods: Invalid value"}},
	{gatesSet("GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false", "shutdownGracePeriod: 5s\n"),
		[]string{"shutdownGracePeriod: Forbidden: requires the feature gate GracefulNodeShutdown"}},
	{"shutdownGracePeriod: 5s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]\n", []string{"shutdownGracePeriodByPodPriority: Forbidden: cannot be combined"}},
	{gatesSet("GracefulNodeShutdownBasedOnPodPriority: false", "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]\n"),
		[]string{"shutdownGracePeriodByPodPriority: Forbidden: requires the feature gate"}},
	{"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -5}]\n", []string{"shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: Invalid value"}},

	// Runtime, images, logs.
	{"containerRuntimeEndpoint: tcp://1.2.3.4:5\n", []string{"containerRuntimeEndpoint: Invalid value"}},
	{"containerRuntimeEndpoint: unix://run/containerd.sock\n", []string{"containerRuntimeEndpoint: Invalid value"}},
	{"imageServiceEndpoint: run/containerd.sock\n", []string{"imageServiceEndpoint: Invalid value"}},
	{"runtimeRequestTimeout: -1s\n", []string{"runtimeRequestTimeout: Invalid value"}},
	{"podLogsDir: /var/log/\n", []string{"podLogsDir: Invalid value"}},
	{"podLogsDir: /var/lög\n", []string{"podLogsDir: Invalid value"}},
	{"registryPullQPS: -1\n", []string{"registryPullQPS: Invalid value"}},
	{"registryBurst: -1\n", []string{"registryBurst: Invalid value"}},
	{"maxParallelImagePulls: 0\n", []string{"maxParallelImagePulls: Invalid value: 0: must be at least 1"}},
	{"maxParallelImagePulls: 2\nserializeImagePulls: true\n", []string{"maxParallelImagePulls: Invalid value: 2: must be 1 unless"}},
	{"imagePullCredentialsVerificationPolicy: Never\n", []string{"imagePullCredentialsVerificationPolicy: Unsupported value"}},
	{"preloadedImagesVerificationAllowlist: [a]\n", []string{"preloadedImagesVerificationAllowlist: Forbidden: requires imagePull"}},
	{gatesSet("KubeletEnsureSecretPulledImages: false", "imagePullCredentialsVerificationPolicy: AlwaysVerify\npreloadedImagesVerificationAllowlist: [a]\n"), []string{
		"imagePullCredentialsVerificationPolicy: Forbidden", "preloadedImagesVerificationAllowlist: Forbidden"}},
	{"imageGCHighThresholdPercent: 101\n", []string{"imageGCHighThresholdPercent: Invalid value"}},
	{"imageGCLowThresholdPercent: -1\n", []string{"imageGCLowThresholdPercent: Invalid value"}},
	{"imageGCLowThresholdPercent: 85\n", []string{"imageGCLowThresholdPercent: Invalid value: 85: must be less than"}},
	{"imageMinimumGCAge: -1s\n", []string{"imageMinimumGCAge: Invalid value"}},
	{"imageMaximumGCAge: -1s\n", []string{"imageMaximumGCAge: Invalid value"}},
	{"imageMaximumGCAge: 2m\n", []string{"imageMaximumGCAge: Invalid value"}},
	{"containerLogMaxSize: big\n", []string{"containerLogMaxSize: Invalid value"}},
	{"containerLogMaxSize: 1e-999999999\n", []string{"containerLogMaxSize: must be a string"}},
	{"containerLogMaxSize: '1e-999999999'\n", []string{"containerLogMaxSize: Invalid value"}},
	{"containerLogMaxSize: 0.5m\n", []string{"containerLogMaxSize: Invalid value: \"0.5m\": must be a whole number"}},
	{"containerLogMaxFiles: 1\n", []string{"containerLogMaxFiles: Invalid value"}},
	{"containerLogMaxWorkers: 0\n", []string{"containerLogMaxWorkers: Invalid value"}},
	{"containerLogMonitorInterval: 2s\n", []string{"containerLogMonitorInterval: Invalid value"}},

	// Cgroups and allocatable.
	{"cgroupDriver: openrc\n", []string{"cgroupDriver: Unsupported value"}},
	{"systemCgroups: /system\n", []string{"cgroupRoot: Required value"}},
	{"cpuCFSQuotaPeriod: 900us\n", []string{"cpuCFSQuotaPeriod: Invalid value"}},
	{"cpuCFSQuotaPeriod: 1001ms\n", []string{"cpuCFSQuotaPeriod: Invalid value"}},
	{gatesSet("CustomCPUCFSQuotaPeriod: false", "cpuCFSQuotaPeriod: 50ms\n"), []string{"cpuCFSQuotaPeriod: Forbidden"}},
	{yamlAt("memorySwap.swapBehavior", "UnlimitedSwap"), []string{"memorySwap.swapBehavior: Unsupported value"}},
	{"enforceNodeAllocatable: [none, pods]\n", []string{"enforceNodeAllocatable[0]: Invalid value: \"none\": must stand alone"}},
	{"enforceNodeAllocatable: [pods, pods]\n", []string{"enforceNodeAllocatable[1]: Duplicate value"}},
	{"enforceNodeAllocatable: [all]\n", []string{"enforceNodeAllocatable[0]: Unsupported value"}},
	{"enforceNodeAllocatable: [system-reserved]\n", []string{"systemReservedCgroup: Required value"}},
	{"enforceNodeAllocatable: [kube-reserved-compressible]\n", []string{"kubeReservedCgroup: Required value"}},
	{"enforceNodeAllocatable: [system-reserved, system-reserved-compressible]\nsystemReservedCgroup: /a\n", []string{"enforceNodeAllocatable: Invalid value"}},
	{"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /a\n", []string{"enforceNodeAllocatable: Invalid value"}},
	{"cgroupsPerQOS: false\n", []string{"enforceNodeAllocatable[0]: Invalid value: \"pods\": requires cgroupsPerQOS"}},
	{"systemReserved: {cpu: x, memory: '-1', gpu: '1'}\n", []string{"systemReserved[cpu]: Invalid value", "systemReserved[gpu]: Unsupported value", "systemReserved[memory]: Invalid value: \"-1\": must not be negative"}},
	{"kubeReserved: {cpu: ''}\n", []string{"kubeReserved[cpu]: Invalid value"}},
	{"reservedSystemCPUs: 0-\n", []string{"reservedSystemCPUs: Invalid value"}},
	{"reservedSystemCPUs: 0-4000000000\n", []string{"reservedSystemCPUs: Invalid value"}},
	{"reservedSystemCPUs: 0-99999\n", []string{"reservedSystemCPUs: Invalid value"}},
	{"reservedSystemCPUs: '0'\nkubeReservedCgroup: /a\n", []string{"reservedSystemCPUs: Forbidden"}},

	// Managers.
	{"cpuManagerPolicy: dynamic\n", []string{"cpuManagerPolicy: Unsupported value"}},
	{"cpuManagerPolicy: static\n", []string{"cpuManagerPolicy: Invalid value: \"static\": requires CPU kept from pods"}},
	{"cpuManagerPolicy: static\nsystemReserved: {cpu: '0'}\n", []string{"cpuManagerPolicy: Invalid value"}},
	{"cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n", []string{"cpuManagerPolicyOptions: Forbidden: the none policy has no options"}},
	{"cpuManagerReconcilePeriod: -1s\n", []string{"cpuManagerReconcilePeriod: Invalid value"}},
	{"memoryManagerPolicy: BestEffort\n", []string{"memoryManagerPolicy: Unsupported value"}},
	{"topologyManagerPolicy: strict\n", []string{"topologyManagerPolicy: Unsupported value"}},
	{"topologyManagerScope: node\n", []string{"topologyManagerScope: Unsupported value"}},
	{"topologyManagerPolicyOptions: {max-allowable-numa-nodes: '7', prefer-closest-numa-nodes: x, x: z}\n", []string{
		"topologyManagerPolicyOptions[max-allowable-numa-nodes]: Invalid value", "topologyManagerPolicyOptions[prefer-closest-numa-nodes]: Invalid value",
		"topologyManagerPolicyOptions[x]: Unsupported value"}},
	{"qosReserved: {cpu: 50%}\n", []string{"qosReserved[cpu]: Unsupported value"}},
	{"qosReserved: {memory: '50'}\n", []string{"qosReserved[memory]: Invalid value"}},
	{"qosReserved: {memory: 101%}\n", []string{"qosReserved[memory]: Invalid value"}},
	{"memoryThrottlingFactor: 0\n", []string{"memoryThrottlingFactor: Invalid value"}},
	{"memoryThrottlingFactor: 1.1\n", []string{"memoryThrottlingFactor: Invalid value"}},
	{"memoryReservationPolicy: All\n", []string{"memoryReservationPolicy: Unsupported value"}},
	{"memoryReservationPolicy: TieredReservation\n", []string{"memoryReservationPolicy: Forbidden"}},
	{"reservedMemory: [{numaNode: -1, limits: {memory: 0, cpu: 1}}]\n", []string{
		"reservedMemory[0].numaNode: Invalid value", "reservedMemory[0].limits[cpu]: Unsupported value", "reservedMemory[0].limits[memory]: Invalid value"}},
	{"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 1Gi}}]\n", []string{"reservedMemory[1].limits[memory]: Duplicate value"}},

	// Eviction.
	{"evictionHard: {disk.available: 5%, memory.available: '-1', nodefs.available: 101%, imagefs.available: '0', pid.available: x%}\n", []string{
		"evictionHard[disk.available]: Unsupported value", "evictionHard[imagefs.available]: Invalid value", "evictionHard[memory.available]: Invalid value",
		"evictionHard[nodefs.available]: Invalid value", "evictionHard[pid.available]: Invalid value"}},
	{"evictionSoft: {memory.available: x}\nevictionSoftGracePeriod: {memory.available: 1m}\n", []string{"evictionSoft[memory.available]: Invalid value"}},
	{"evictionSoft: {memory.available: 1Gi}\n", []string{"evictionSoftGracePeriod[memory.available]: Required value"}},
	{"evictionSoftGracePeriod: {memory.available: '5', nodefs.available: -1s, x: 5s}\n", []string{
		"evictionSoftGracePeriod[memory.available]: Invalid value", "evictionSoftGracePeriod[nodefs.available]: Invalid value", "evictionSoftGracePeriod[x]: Unsupported value"}},
	{"evictionMinimumReclaim: {memory.available: 0%, nodefs.available: '-1', pid.available: x, x: 5%}\n", []string{
		"evictionMinimumReclaim[memory.available]: Invalid value", "evictionMinimumReclaim[nodefs.available]: Invalid value",
		"evictionMinimumReclaim[pid.available]: Invalid value", "evictionMinimumReclaim[x]: Unsupported value"}},
	{"evictionPressureTransitionPeriod: -1s\n", []string{"evictionPressureTransitionPeriod: Invalid value"}},

	// Logging, metrics, tracing.
	{yamlAt("logging.format", "xml"), []string{"logging.format: Unsupported value"}},
	{yamlAt("logging.flushFrequency", "-1s"), []string{"logging.flushFrequency: Invalid value"}},
	{yamlAt("logging.verbosity", "2147483648"), []string{"logging.verbosity: Invalid value"}},
	{"logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n", []string{"logging.vmodule: Forbidden"}},
	{"logging: {vmodule: [{filePattern: '', verbosity: 1}, {filePattern: 'a=b', verbosity: 1}, {filePattern: a, verbosity: 2147483648}]}\n", []string{
		"logging.vmodule[0].filePattern: Required value", "logging.vmodule[1].filePattern: Invalid value", "logging.vmodule[2].verbosity: Invalid value"}},
	{yamlAt("logging.options.text.splitStream", "true"), []string{"logging.options.text.splitStream: Forbidden"}},
	{yamlAt("logging.options.json.infoBufferSize", "1Mi"), []string{"logging.options.json.infoBufferSize: Forbidden"}},
	{"showHiddenMetricsForVersion: '1.34'\n", []string{"showHiddenMetricsForVersion: Invalid value"}},
	{yamlAt("tracing.samplingRatePerMillion", "1000001"), []string{"tracing.samplingRatePerMillion: Invalid value"}},
	{yamlAt("tracing.endpoint", "'http://a'"), []string{"tracing.endpoint: Invalid value"}},
	{yamlAt("tracing.endpoint", "'%zz//'"), []string{"tracing.endpoint: Invalid value"}},
}

func TestInvalid(t *testing.T) {
	for _, tc := range invalidCases {
		t.Run(strings.ReplaceAll(strings.TrimSpace(tc.in), "\n", "; "), func(t *testing.T) {
			_, _, err := setup{args: withAPI(), config: new(tc.in)}.load(t)
			var got []string
			for _, p := range Problems(err) {
				line := p.Field + ": " + p.Detail
				if len(got) < len(tc.want) && strings.HasPrefix(line, tc.want[len(got)]) {
					line = tc.want[len(got)]
				}
				got = append(got, line)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

// With an allowlist, or a static policy, Load refuses what Sextant does not do
// yet; what is invalid about it is told all the same.
func TestInvalidBesideUnsupported(t *testing.T) {
	const allow = "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [%s]\n"
	const static = "cpuManagerPolicy: static\nsystemReserved: {cpu: '1'}\n"
	for _, tc := range []struct{ in, want string }{
		{fmt.Sprintf(allow, "'a '"), "preloadedImagesVerificationAllowlist[0]: Invalid value: \"a \": must not begin or end with a space"},
		{fmt.Sprintf(allow, "'a*'"), "preloadedImagesVerificationAllowlist[0]: Invalid value: \"a*\": may hold a * only"},
		{fmt.Sprintf(allow, "'/*'"), "preloadedImagesVerificationAllowlist[0]: Invalid value: \"/*\": must name a registry"},
		{fmt.Sprintf(allow, "'A'"), "preloadedImagesVerificationAllowlist[0]: Invalid value: \"A\": is not the name"},
		{fmt.Sprintf(allow, "'a/b', 'a:1'"), "preloadedImagesVerificationAllowlist[1]: Invalid value: \"a:1\": must have neither tag nor digest"},
		{static + "cpuManagerPolicyOptions: {x: z}\n", "cpuManagerPolicyOptions[x]: Unsupported value"},
		{static + "cpuManagerPolicyOptions: {full-pcpus-only: maybe}\n", "cpuManagerPolicyOptions[full-pcpus-only]: Invalid value"},
		{static + "cpuManagerPolicyOptions: {align-by-socket: 'true'}\n", "cpuManagerPolicyOptions[align-by-socket]: Forbidden: requires the feature gate CPUManagerPolicyAlphaOptions"},
		{static + "cpuManagerPolicyOptions: {distribute-cpus-across-numa: 'true', prefer-align-cpus-by-uncorecache: 'true'}\n", "cpuManagerPolicyOptions[distribute-cpus-across-numa]: Invalid value: \"true\": cannot be combined with prefer-align"},
		{static + gatesSet("CPUManagerPolicyAlphaOptions: true", "topologyManagerPolicy: single-numa-node\ncpuManagerPolicyOptions: {align-by-socket: 'true'}\n"), "cpuManagerPolicyOptions[align-by-socket]: Invalid value: \"true\": cannot be combined with topologyManagerPolicy"},
		{"memoryManagerPolicy: Static\nkubeReserved: {memory: 1Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
			"reservedMemory: Invalid value: \"1Gi\": the total amount \"1Gi\" of type \"memory\" is not equal to the value \"1124Mi\" determined by Node Allocatable feature"},
	} {
		_, _, err := setup{args: withAPI(), config: new(tc.in)}.load(t)
		found := false
		for _, p := range Problems(err) {
			found = found || strings.HasPrefix(p.Field+": "+p.Detail, tc.want)
		}
		if !found {
			t.Errorf("%s: want %s, got\n%v", tc.in, tc.want, err)
		}
	}
}

func TestValid(t *testing.T) {
	for _, in := range []string{
		"address: '::'\nhealthzBindAddress: ::1\nhealthzPort: 0\n",
		"tlsCipherSuites: [TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305]\ntlsCurvePreferences: [29, 23]\ntlsMinVersion: VersionTLS13\n",
		"enforceNodeAllocatable: [none]\ncgroupsPerQOS: false\n",
		"enforceNodeAllocatable: []\n",
		"containerRuntimeEndpoint: /run/crio/crio.sock\nimageServiceEndpoint: unix:///run/x.sock\n",
		"allowedUnsafeSysctls: [net.*, net.core.somaxconn, kernel.shm*, kernel.msgmax, net/ipv4/ip_forward, fs.mqueue.*]\n",
		"evictionHard: {memory.available: 0%, nodefs.available: 100%, imagefs.available: 0.5%, pid.available: 1k}\n",
		"evictionSoft: {memory.available: 0%}\n",
		"containerLogMaxSize: '-1'\n",
		"memorySwap: {swapBehavior: LimitedSwap}\n",
		"podCIDR: 10.0.0.0/8,fd00::/64\n",
		"shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 30s\n",
		"crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n",
		"tracing: {endpoint: 'localhost:4317', samplingRatePerMillion: 0}\n",
		"tracing: {endpoint: 'unix:///run/otel.sock'}\n",
		"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0\nimageMaximumGCAge: 121s\n",
		"staticPodURL: http://127.0.0.1:8080/pods\n",
		"showHiddenMetricsForVersion: '1.35'\n",
		"nodeStatusMaxImages: -1\n",
		"volumeStatsAggPeriod: -1s\n",
		"userNamespaces: {idsPerPod: 131072}\n",
		gatesSet("MemoryQoS: true", "memoryReservationPolicy: TieredReservation\n"),
		gatesSet("LoggingAlphaOptions: true", "logging: {format: json, options: {json: {splitStream: true, infoBufferSize: 1Mi}}}\n"),
	} {
		if _, _, err := (setup{args: withAPI(), config: new(in)}).load(t); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Without an API server nobody can review tokens or access: the kubelet does
// not start either.
func TestStandalone(t *testing.T) {
	c, _, err := setup{config: new("")}.load(t)
	want := []string{
		"default: authentication.webhook.enabled: Forbidden: a standalone node has no API server to review tokens; set it to false or give --kubeconfig",
		"default: authorization.mode: Forbidden: a standalone node has no API server to review access; set it to AlwaysAllow or give --kubeconfig",
	}
	if d := cmp.Diff(want, problemLines(err)); d != "" || c != nil {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	c, _ = setup{config: new("authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n")}.mustLoad(t)
	if !c.Standalone() {
		t.Error("not standalone")
	}
	if c, _ = (setup{args: withAPI()}).mustLoad(t); c.Standalone() {
		t.Error("standalone with --kubeconfig")
	}
}

// A configuration put together by hand has nil where Load has defaults.
func TestValidateWithoutDefaults(t *testing.T) {
	c := &Config{}
	c.Node.KubeConfig = "/k"
	var got []string
	for _, e := range Validate(c) {
		got = append(got, e.Field)
	}
	// What is zero and not a pointer was set to zero, for all Validate knows.
	for _, field := range []string{"port", "address", "containerRuntimeEndpoint", "syncFrequency"} {
		if !strings.Contains(strings.Join(got, " ")+" ", field+" ") {
			t.Errorf("%s: no error among %v", field, got)
		}
	}
	if c.Kubelet.EnableServer != nil {
		t.Error("Validate changed its argument")
	}
}
