package kubeconf

// Why a gate's setting does not matter.
const (
	gateNotActedOn = "Sextant behaves the same whether this gate is on or off"
	gateAlwaysOn   = "Sextant always behaves as if this gate were on"
)

// gateSupport says how far Sextant follows a gate.
type gateSupport int

const (
	// The zero value: the setting does not matter.
	_ gateSupport = iota
	// onlyOn: what the gate stands for is done, whatever its setting.
	onlyOn
	// bothWays: what the gate stands for is done when it is on only.
	bothWays
)

// gatesActedOn is the support of gates that touch the node; those that are
// absent are not acted on.
var gatesActedOn = map[string]gateSupport{
	// These decide which configuration is valid.
	"CPUManagerPolicyAlphaOptions":           bothWays,
	"CPUManagerPolicyBetaOptions":            bothWays,
	"CustomCPUCFSQuotaPeriod":                bothWays,
	"GracefulNodeShutdown":                   bothWays,
	"GracefulNodeShutdownBasedOnPodPriority": bothWays,
	"KubeletCrashLoopBackOffMax":             bothWays,
	"KubeletEnsureSecretPulledImages":        bothWays,
	"LoggingAlphaOptions":                    bothWays,
	"RotateKubeletServerCertificate":         bothWays,
	"TopologyManagerPolicyAlphaOptions":      bothWays,
	"TopologyManagerPolicyBetaOptions":       bothWays,

	// These decide what services do.
	"ContainerCheckpoint":       bothWays,
	"ContainerStopSignals":      bothWays,
	"ExtendWebSocketsToKubelet": bothWays,
	"ComponentFlagz":            bothWays,
	"ComponentStatusz":          bothWays,
	"PodLogsQuerySplitStreams":  bothWays,
	"MemoryQoS":                 bothWays,
	"NodeDeclaredFeatures":      bothWays,
	"RuntimeClassInImageCriApi": bothWays,

	"ReduceDefaultCrashLoopBackOffDecay": bothWays,

	"ContainerRestartRules":                onlyOn,
	"EnvFiles":                             onlyOn,
	"EventedPLEG":                          onlyOn,
	"HostnameOverride":                     onlyOn,
	"PLEGOnDemandRelist":                   onlyOn,
	"PodLevelResources":                    onlyOn,
	"PodReadyToStartContainersCondition":   onlyOn,
	"PreventStaticPodAPIReferences":        onlyOn,
	"RestartAllContainersOnContainerExits": onlyOn,
}

// supportOfGate returns the support of a gate that touches the node.
func supportOfGate(name string) Support {
	switch gatesActedOn[name] {
	case bothWays:
		return Support{Name: name, Level: Honoured}
	case onlyOn:
		return Support{Name: name, Level: Honoured, Values: []string{"true"}, Reason: gateAlwaysOn}
	default:
		return Support{Name: name, Level: Warned, Reason: gateNotActedOn}
	}
}

// gateIgnored tells why setting a gate to a value has no effect, "" when it has.
// Gates of the control plane have none in a kubelet either and are not told of.
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
