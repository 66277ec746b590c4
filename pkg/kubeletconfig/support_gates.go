// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// Why a gate's setting does not matter.
const (
	gateNotActedOn = "Sextant behaves the same whether this gate is on or off"
	gateAlwaysOn   = "Sextant always behaves as if this gate were on"
	gateElsewhere  = "no node agent on Linux behaves differently when this gate is on"
)

// gateSupport is how far Sextant follows a gate.
type gateSupport int

const (
	// The zero value: the gate is not acted on.
	_ gateSupport = iota
	// onlyOn: what the gate stands for is done, whatever its setting.
	onlyOn
	// bothWays: what the gate stands for is done when it is on only.
	bothWays
	// elsewhere: no node agent on Linux behaves differently when it is on.
	elsewhere
)

// gatesActedOn is the support of gates that touch the node and can be changed;
// those that are absent are not acted on.
var gatesActedOn = map[string]gateSupport{
	// These decide which configuration is valid.
	"CPUManagerPolicyAlphaOptions":           bothWays,
	"CPUManagerPolicyBetaOptions":            bothWays,
	"CustomCPUCFSQuotaPeriod":                bothWays,
	"GracefulNodeShutdown":                   bothWays,
	"GracefulNodeShutdownBasedOnPodPriority": bothWays,
	"KubeletCrashLoopBackOffMax":             bothWays,
	"KubeletEnsureSecretPulledImages":        bothWays,
	"KubeletSeparateDiskGC":                  bothWays,
	"LoggingAlphaOptions":                    bothWays,
	"ResourceHealthStatus":                   bothWays,
	"ResourceHealthStatusMessage":            bothWays,
	"RotateKubeletServerCertificate":         bothWays,
	"TopologyManagerPolicyAlphaOptions":      bothWays,
	"TopologyManagerPolicyBetaOptions":       bothWays,

	// These decide what services do.
	"CSIVolumeHealth":                                  bothWays,
	"ClusterTrustBundleProjection":                     bothWays,
	"DisableCPUQuotaWithExclusiveCPUs":                 bothWays,
	"ComponentFlagz":                                   bothWays,
	"ComponentStatusz":                                 bothWays,
	"ContainerCheckpoint":                              bothWays,
	"ContainerStopSignals":                             bothWays,
	"ExtendWebSocketsToKubelet":                        bothWays,
	"InPlacePodLevelResourcesVerticalScaling":          bothWays,
	"KubeletServiceAccountTokenForCredentialProviders": bothWays,
	"MemoryQoS":                                        bothWays,
	"NodeDeclaredFeatures":                             bothWays,
	"PodCertificateRequest":                            bothWays,
	"PodLevelResourceManagers":                         bothWays,
	"PodLogsQuerySplitStreams":                         bothWays,
	"ReduceDefaultCrashLoopBackOffDecay":               bothWays,
	"QOSReserved":                                      bothWays,
	"RuntimeClassInImageCriApi":                        bothWays,
	"SELinuxMount":                                     bothWays,

	"AllowParsingUserUIDFromCertAuth":         onlyOn,
	"DRAConsumableCapacity":                   onlyOn,
	"DRAExtendedResource":                     onlyOn,
	"DRAPartitionableDevices":                 onlyOn,
	"DRAPrioritizedList":                      onlyOn,
	"ContainerRestartRules":                   onlyOn,
	"EnvFiles":                                onlyOn,
	"EventedPLEG":                             onlyOn,
	"HostnameOverride":                        onlyOn,
	"InPlacePodVerticalScalingInitContainers": onlyOn,
	"KubeletPodResourcesListUseActivePods":    onlyOn,
	"PLEGOnDemandRelist":                      onlyOn,
	"PodLevelResources":                       onlyOn,
	"PodReadyToStartContainersCondition":      onlyOn,
	"PortForwardWebsockets":                   onlyOn,
	"PreventStaticPodAPIReferences":           onlyOn,
	"ReloadKubeletClientCAFile":               onlyOn,
	"ReloadKubeletServerCertificateFile":      onlyOn,
	"RestartAllContainersOnContainerExits":    onlyOn,
	"TranslateStreamCloseWebsocketRequests":   onlyOn,

	"ContextualLogging":                     elsewhere,
	"DRADeviceBindingConditions":            elsewhere,
	"DRADeviceTaints":                       elsewhere,
	"DRAResourceClaimDeviceStatus":          elsewhere,
	"LoggingBetaOptions":                    elsewhere,
	"ServiceAccountNodeAudienceRestriction": elsewhere,
	"WindowsGracefulNodeShutdown":           elsewhere,
}

// gatesMissing are gates that are on by default and not acted on, by the row of
// fieldTable that says what is missing.
var gatesMissing = map[string]string{
	"KubeletTracing": "tracing.endpoint",
}

// supportOfGate returns the support of a gate that touches the node.
func supportOfGate(name string) Support {
	switch gatesActedOn[name] {
	case bothWays:
		return Support{Name: name, Level: Honoured}
	case onlyOn:
		return Support{Name: name, Level: Honoured, Values: []string{"true"}, Reason: gateAlwaysOn}
	case elsewhere:
		return Support{Name: name, Level: Warned, Reason: gateElsewhere}
	}
	if row, ok := gatesMissing[name]; ok {
		return Support{Name: name, Level: Warned, Reason: gateNotActedOn + ": " + row + " is not honoured"}
	}
	return Support{Name: name, Level: Warned, Reason: gateNotActedOn}
}

// DeclaredFeatures are those that the node declares (KEP-5328), sorted: the gates of this
// kind that are on and acted on. Nil where nodes declare none (NodeDeclaredFeatures off).
func (c *Config) DeclaredFeatures() []string {
	if !c.Gate("NodeDeclaredFeatures") {
		return nil
	}
	declared := []string{}
	for _, name := range []string{
		"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
		"RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport",
	} {
		if supportOfGate(name).Level == Honoured && c.Gate(name) {
			declared = append(declared, name)
		}
	}
	return declared
}

// gateIgnored is why setting a gate to a value has no effect, "" when it has one. Gates
// of the control plane have none in a kubelet either and are not reported.
func gateIgnored(name string, value bool) string {
	gate := gateIndex()[name]
	changed := gate.Default != value
	switch {
	case name == allBeta, name == allAlpha && changed:
		return "it switches gates most of which are not acted on"
	case !gate.Node || !changed, gatesActedOn[name] == bothWays, gatesActedOn[name] == onlyOn && value:
		return ""
	}
	return supportOfGate(name).Reason
}
