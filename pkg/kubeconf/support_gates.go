package kubeconf

// gateNotActedOn is the reason of every gate outside gatesHonoured.
const gateNotActedOn = "Sextant behaves the same whether this gate is on or off"

// gatesHonoured are the gates whose setting changes what Sextant does or
// accepts; a change of any other gate that touches the node yields a warning.
var gatesHonoured = map[string]bool{
	// These decide which configuration is valid.
	"CPUManagerPolicyAlphaOptions":           true,
	"CPUManagerPolicyBetaOptions":            true,
	"CustomCPUCFSQuotaPeriod":                true,
	"GracefulNodeShutdown":                   true,
	"GracefulNodeShutdownBasedOnPodPriority": true,
	"KubeletCrashLoopBackOffMax":             true,
	"KubeletEnsureSecretPulledImages":        true,
	"LoggingAlphaOptions":                    true,
	"RotateKubeletServerCertificate":         true,
	"TopologyManagerPolicyAlphaOptions":      true,
	"TopologyManagerPolicyBetaOptions":       true,
}
