// SPDX-License-Identifier: Apache-2.0

package cli

import "strings"

// advices are what to do about a reason that has all of the words, the first that fits.
var advices = []struct {
	words []string
	do    string
}{
	{[]string{"address already in use"}, "another program has the port, perhaps a kubelet: ss -ltnp shows it"},
	{[]string{"network not ready"}, "set up the network plugin: its files belong in /etc/cni/net.d, its programs in /opt/cni/bin"},
	{[]string{"container runtime", "its group must be able"}, "give the socket a group: docs/operations.md, The runtime's group"},
	{[]string{"container runtime", "no such file or directory"}, "is the runtime started, systemctl start containerd? Another socket: --container-runtime-endpoint"},
	{[]string{"container runtime", "connection refused"}, "start the runtime: systemctl start containerd"},
	{[]string{"container runtime is down"}, "start the runtime: systemctl start containerd"},
	{[]string{"swap is on"}, "swapoff -a turns it off until the next boot"},
	{[]string{"API server", "connection refused"}, "is the API server started, and its address in the kubeconfig right? The pods known before run"},
	{[]string{"Unauthorized"}, "the API server does not accept the node's credential: join again, or look at its kubeconfig"},
}

// advice is what to do about a reason; empty where nothing is known to help.
func advice(reason string) string {
	for _, a := range advices {
		fits := true
		for _, word := range a.words {
			fits = fits && strings.Contains(reason, word)
		}
		if fits {
			return a.do
		}
	}
	return ""
}

// advised is a reason with what to do about it.
func advised(reason string) string {
	if do := advice(reason); do != "" {
		return reason + " (" + do + ")"
	}
	return reason
}
