// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The field table has one row for each field of the type, in its order.
func TestEveryFieldHasItsSupport(t *testing.T) {
	var want, got []string
	for _, l := range leaves() {
		if l.path != "kind" && l.path != "apiVersion" {
			want = append(want, l.path)
		}
	}
	for _, s := range FieldSupport() {
		got = append(got, s.Name)
		if (s.Level == Honoured) != (s.Reason == "") {
			t.Errorf("%s is %s with reason %q", s.Name, s.Level, s.Reason)
		}
		if !slices.Contains([]Level{Honoured, Warned, Partly, Refused}, s.Level) {
			t.Errorf("%s: level %q", s.Name, s.Level)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("fields (-type +table):\n%s", d)
	}
}

func TestEveryFlagHasItsSupport(t *testing.T) {
	all := FlagSupport()
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.Name] {
			t.Errorf("%s stands twice in the table", s.Name)
		}
		seen[s.Name] = true
		if s.Level == "" || s.Usage == "" || (s.Level != Honoured && s.Reason == "") {
			t.Errorf("incomplete: %+v", s)
		}
	}
	if len(all) != len(registered(t)) {
		t.Errorf("%d flags in the table, %d registered", len(all), len(registered(t)))
	}
}

// changed is a value other than the default for each field that is not
// honoured, beside what it needs to be valid.
var changed = map[string]string{
	"imagePullCredentialsVerificationPolicy":    "imagePullCredentialsVerificationPolicy: AlwaysVerify\n",
	"preloadedImagesVerificationAllowlist":      "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a]\n",
	"oomScoreAdj":                               "oomScoreAdj: 0\n",
	"imageMinimumGCAge":                         "imageMinimumGCAge: 1h\n",
	"imageMaximumGCAge":                         "imageMaximumGCAge: 1h\n",
	"imageGCHighThresholdPercent":               "imageGCHighThresholdPercent: 90\n",
	"imageGCLowThresholdPercent":                "imageGCLowThresholdPercent: 70\n",
	"volumeStatsAggPeriod":                      "volumeStatsAggPeriod: -1s\n",
	"kubeletCgroups":                            "kubeletCgroups: /kubelet\n",
	"systemCgroups":                             "systemCgroups: /system\ncgroupRoot: /\n",
	"cpuManagerPolicy":                          "cpuManagerPolicy: static\nsystemReserved: {cpu: '1'}\n",
	"cpuManagerPolicyOptions":                   "cpuManagerPolicy: static\nsystemReserved: {cpu: '1'}\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n",
	"cpuManagerReconcilePeriod":                 "cpuManagerReconcilePeriod: 1s\n",
	"memoryManagerPolicy":                       "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n",
	"reservedMemory":                            "reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n",
	"topologyManagerPolicy":                     "topologyManagerPolicy: restricted\n",
	"topologyManagerScope":                      "topologyManagerScope: pod\n",
	"topologyManagerPolicyOptions":              "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}\n",
	"qosReserved":                               "qosReserved: {memory: 50%}\n",
	"hairpinMode":                               "hairpinMode: none\n",
	"maxOpenFiles":                              "maxOpenFiles: 1\n",
	"evictionHard":                              "evictionHard: {memory.available: 1Gi}\n",
	"evictionSoft":                              "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n",
	"evictionSoftGracePeriod":                   "evictionSoftGracePeriod: {memory.available: 1m}\n",
	"evictionMaxPodGracePeriod":                 "evictionMaxPodGracePeriod: 1\n",
	"evictionMinimumReclaim":                    "evictionMinimumReclaim: {memory.available: 1Gi}\n",
	"configMapAndSecretChangeDetectionStrategy": "configMapAndSecretChangeDetectionStrategy: Get\n",
	"enableContentionProfiling":                 "enableContentionProfiling: true\n",
	"enableProfilingHandler":                    "enableProfilingHandler: true\n",
	"enableDebugFlagsHandler":                   "enableDebugFlagsHandler: true\n",
	"localStorageCapacityIsolation":             "localStorageCapacityIsolation: true\n",
	"enableControllerAttachDetach":              "enableControllerAttachDetach: false\n",
	"iptablesMasqueradeBit":                     "iptablesMasqueradeBit: 1\n",
	"iptablesDropBit":                           "iptablesDropBit: 1\n",
	"containerLogMaxSize":                       "containerLogMaxSize: 1Mi\n",
	"containerLogMaxFiles":                      "containerLogMaxFiles: 2\n",
	"containerLogMaxWorkers":                    "containerLogMaxWorkers: 2\n",
	"containerLogMonitorInterval":               "containerLogMonitorInterval: 3s\n",
	"showHiddenMetricsForVersion":               "showHiddenMetricsForVersion: '1.35'\n",
	"systemReservedCgroup":                      "systemReservedCgroup: /system\n",
	"kubeReservedCgroup":                        "kubeReservedCgroup: /kube\n",
	"enforceNodeAllocatable":                    "enforceNodeAllocatable: [pods, system-reserved]\nsystemReservedCgroup: /system\n",
	"volumePluginDir":                           "volumePluginDir: /plugins\n",
	"logging.format":                            "",
	"logging.flushFrequency":                    "logging: {flushFrequency: 1s}\n",
	"logging.vmodule":                           "logging: {vmodule: [{filePattern: a, verbosity: 1}]}\n",
	"logging.options.text.splitStream":          gatesSet("LoggingAlphaOptions: true", yamlAt("logging.options.text.splitStream", "true")),
	"logging.options.text.infoBufferSize":       gatesSet("LoggingAlphaOptions: true", yamlAt("logging.options.text.infoBufferSize", "1Mi")),
	"logging.options.json.splitStream":          gatesSet("LoggingAlphaOptions: true", yamlAt("logging.options.json.splitStream", "true")),
	"logging.options.json.infoBufferSize":       gatesSet("LoggingAlphaOptions: true", yamlAt("logging.options.json.infoBufferSize", "1Mi")),
	"shutdownGracePeriod":                       "shutdownGracePeriod: 5s\n",
	"shutdownGracePeriodCriticalPods":           "shutdownGracePeriod: 5s\nshutdownGracePeriodCriticalPods: 1s\n",
	"shutdownGracePeriodByPodPriority":          "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]\n",
	"memoryThrottlingFactor":                    "memoryThrottlingFactor: 0.5\n",
	"memoryReservationPolicy":                   gatesSet("MemoryQoS: true", "memoryReservationPolicy: TieredReservation\n"),
	"tracing.endpoint":                          "tracing: {endpoint: 'a:1'}\n",
	"tracing.samplingRatePerMillion":            "tracing: {samplingRatePerMillion: 1}\n",
	"syncFrequency":                             "syncFrequency: 10s\n",
	"runtimeRequestTimeout":                     "runtimeRequestTimeout: 10s\n",
	"podCIDR":                                   "podCIDR: 10.0.0.0/8\n",
	"logging.verbosity":                         "logging: {verbosity: 2}\n",
	"runOnce":                                   "runOnce: true\n",
}

// A field that is not honoured is told of by name as soon as it is changed.
func TestChangedFieldsAreToldOf(t *testing.T) {
	for _, s := range FieldSupport() {
		in, ok := changed[s.Name]
		if s.Level == Honoured {
			continue
		}
		if !ok {
			t.Errorf("%s: no changed value to test with", s.Name)
			continue
		}
		if in == "" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			_, warnings, err := setup{args: withAPI(), config: new(in)}.load(t)
			switch s.Level {
			case Warned, Partly:
				for _, w := range warnings {
					if w.Kind == NotHonoured && w.Name == s.Name && strings.Contains(w.Message, s.Reason) && w.Source.Line > 0 {
						return
					}
				}
				t.Errorf("not among the warnings %v, error %v", warnings, err)
			case Refused:
				for _, p := range Problems(err) {
					if p.Field == s.Name && p.Source.Line > 0 {
						return
					}
				}
				t.Errorf("not among the problems: %v", err)
			}
		})
	}
}

// Values that are honoured where others are not, and values equal to a default that
// is honoured, give no warning.
func TestHonouredValuesGiveNoWarning(t *testing.T) {
	for _, s := range []setup{
		{args: []string{"--read-only-port=10255", "--event-burst=100"}},
		{args: withAPI("--lock-file=", "--windows-service=false", "--maximum-dead-containers=-1"), config: new(
			"cpuManagerPolicy: none\nregistryPullQPS: 5\nmemorySwap: {swapBehavior: NoSwap}\nenforceNodeAllocatable: [pods]\n" +
				"imagePullCredentialsVerificationPolicy: NeverVerify\nlogging: {format: json}\nevictionHard: null\n" +
				"configMapAndSecretChangeDetectionStrategy: Watch\ntopologyManagerPolicyOptions: {}\nfeatureGates: {EventedPLEG: false}\n")},
	} {
		_, warnings := s.mustLoad(t)
		for _, w := range warnings {
			if w.Kind != Deprecated && !slices.Contains(missingByDefault, w.Name) {
				t.Errorf("%v: %s", s.args, w)
			}
		}
	}
}

// missingByDefault is what a configuration in which nothing is set warns of.
var missingByDefault = []string{
	"enableProfilingHandler", "enableDebugFlagsHandler",
}

// A default of the kubelet that is not honoured gives one warning, whether the
// field is absent or set to its default, and none once the field switches it off.
func TestDefaultsThatAreNotHonoured(t *testing.T) {
	off := "enableProfilingHandler: false\nenableDebugFlagsHandler: false\n"
	for _, tc := range []struct {
		name, config string
		want         []string
	}{
		{"absent", "", missingByDefault},
		{"set to the default", "enableProfilingHandler: true\n", missingByDefault},
		{"switched off", off, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, warnings := setup{args: withAPI(), config: new(tc.config)}.mustLoad(t)
			var got []string
			for _, w := range warnings {
				got = append(got, w.Name)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// Every gate that is on unless somebody changes it is acted on, or what is missing
// for want of it has a row that says so.
func TestEveryGateThatIsOnIsAccountedFor(t *testing.T) {
	named := map[string]bool{}
	for _, row := range fieldTable {
		named[row.path] = row.level != Honoured
	}
	for _, g := range Gates() {
		row, isMissing := gatesMissing[g.Name]
		_, acted := gatesActedOn[g.Name]
		switch {
		case acted && isMissing:
			t.Errorf("%s is acted on and missing", g.Name)
		case isMissing && (!g.Node || !named[row]):
			t.Errorf("%s: no row %q, or no gate of the node", g.Name, row)
		case g.Node && g.Default && !g.Locked && !acted && !isMissing:
			t.Errorf("%s is on by default and nothing says how far it is acted on", g.Name)
		}
	}
}

func TestFlagsThatAreNotHonoured(t *testing.T) {
	for _, tc := range []struct {
		arg     string
		warning string
		problem string
	}{
		{arg: "--sync-frequency=5s", warning: "--sync-frequency: syncFrequency: has no effect: "},
		{arg: "--storage-driver-db=x", warning: "--storage-driver-db: has no effect: there is no cAdvisor"},
		{arg: "--experimental-mounter-path=/bin/true", warning: "--experimental-mounter-path: has no effect: "},
		{arg: "--windows-service", problem: "--windows-service: is not supported: this is a Linux build"},
		{arg: "--cpu-manager-policy=static", problem: "--cpu-manager-policy: cpuManagerPolicy: "},
	} {
		_, warnings, err := setup{args: withAPI(tc.arg)}.load(t)
		if tc.warning != "" && !slices.ContainsFunc(warnings, func(w Warning) bool { return strings.HasPrefix(w.String(), tc.warning) }) {
			t.Errorf("%s: warnings %v", tc.arg, warnings)
		}
		if tc.problem != "" && !slices.ContainsFunc(problemLines(err), func(l string) bool { return strings.HasPrefix(l, tc.problem) }) {
			t.Errorf("%s: problems %v", tc.arg, problemLines(err))
		}
		if tc.problem == "" && err != nil {
			t.Errorf("%s: %v", tc.arg, err)
		}
	}
}

func TestDoubts(t *testing.T) {
	for _, tc := range []struct {
		setup
		want string
	}{
		{setup{args: withAPI(), config: new("tlsCipherSuites: [TLS_RSA_WITH_RC4_128_SHA]\n")}, "/etc/kubelet/config.yaml:3: tlsCipherSuites[0]: TLS_RSA_WITH_RC4_128_SHA is insecure"},
		{setup{args: withAPI("--tls-min-version=VersionTLS13"), config: new("tlsCipherSuites: [TLS_AES_128_GCM_SHA256]\n")}, "/etc/kubelet/config.yaml:3: tlsCipherSuites: has no effect, because"},
		{setup{args: withAPI(), config: new("kubeletCgroups: /a\nkubeReservedCgroup: /b\n")}, "/etc/kubelet/config.yaml:3: kubeletCgroups: is not inside kubeReservedCgroup, /b"},
		{setup{args: []string{"--anonymous-auth=false"}}, "--anonymous-auth: authentication.anonymous.enabled: without --kubeconfig"},
		{setup{args: []string{"--bootstrap-kubeconfig=/a"}}, "--bootstrap-kubeconfig: has no effect without --kubeconfig"},
		{setup{args: []string{"--hostname-override=a_b"}}, "--hostname-override: the API server will not accept"},
	} {
		_, warnings := tc.mustLoad(t)
		if !slices.ContainsFunc(warnings, func(w Warning) bool { return w.Kind == Doubtful && strings.HasPrefix(w.String(), tc.want) }) {
			t.Errorf("want %s, got %v", tc.want, warnings)
		}
	}
}

func TestGateSupport(t *testing.T) {
	if n := len(GateSupport()); n < 100 {
		t.Errorf("%d gates", n)
	}
}
