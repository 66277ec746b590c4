// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// WarningKind says why a setting deserves attention.
type WarningKind string

const (
	// Deprecated: the kubelet itself has deprecated the flag or the gate.
	Deprecated WarningKind = "deprecated"
	// NotHonoured: Sextant does not act on the setting yet.
	NotHonoured WarningKind = "not honoured"
	// Doubtful: the setting is legal but probably not what was meant.
	Doubtful WarningKind = "doubtful"
)

// Warning is something the operator should know that does not stop the node.
type Warning struct {
	Kind WarningKind `json:"kind"`
	// Source is where the setting was made.
	Source Source `json:"source"`
	// Name is the field path, or the flag with its dashes.
	Name string `json:"name"`
	// Message says what the consequence is.
	Message string `json:"message"`
}

// String returns "source: name: message".
func (w Warning) String() string {
	if w.Name == "--"+w.Source.Flag {
		return w.Name + ": " + w.Message
	}
	return w.Source.String() + ": " + w.Name + ": " + w.Message
}
