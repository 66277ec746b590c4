// SPDX-License-Identifier: Apache-2.0

package pod

// JoinTerminationMessage is the message of a terminated state: the runtime's, then the
// container's own.
func JoinTerminationMessage(runtime, own string) string {
	if runtime != "" && own != "" {
		return runtime + ": " + own
	}
	return runtime + own
}
