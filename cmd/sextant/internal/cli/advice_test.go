// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// TestAdvised: the reasons that services and configuration give for a node that cannot
// start say what to do.
func TestAdvised(t *testing.T) {
	for reason, want := range map[string]string{
		"nodeapi: https port: listen tcp 0.0.0.0:10250: bind: address already in use":                                                                                 "another program has the port, perhaps a kubelet: ss -ltnp shows it",
		"node: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized": "set up the network plugin: its files belong in /etc/cni/net.d, its programs in /opt/cni/bin",
		"podworker: container runtime: stat /run/containerd/containerd.sock: no such file or directory":                                                               "is the runtime started, systemctl start containerd? Another socket: --container-runtime-endpoint",
		"podworker: container runtime: /run/c.sock has mode 0600: its group must be able to read and write, for podworker runs without root's rights":                 "give the socket a group: docs/operations.md, The runtime's group",
		"config: API server: dial tcp 10.0.0.1:6443: connect: connection refused":                                                                                     "is the API server started, and its address in the kubeconfig right? The pods known before run",
		"config: API server: Unauthorized": "the API server does not accept the node's credential: join again, or look at its kubeconfig",
		"pleg: waits for podworker":        "",
	} {
		if got := advice(reason); got != want {
			t.Errorf("%s:\n got %q\nwant %q", reason, got, want)
		}
		if got := advised(reason); want == "" && got != reason {
			t.Errorf("%s became %s", reason, got)
		}
	}
}
