// SPDX-License-Identifier: Apache-2.0

// Package migrate gives a node that systemd runs another agent: Sextant for the kubelet,
// and back.
//
// It owns the files below /etc/systemd/system that make kubelet.service Sextant. They are
// links to what the package has in /usr/lib/sextant/kubelet, so that an upgrade changes
// them, and one file with flags where those of the kubelet that ran are not kubeadm's.
// [Change.Run] goes back by itself when the node does not get Ready in time. It keeps no more
// than a mark, for as long as it runs: killed at any moment, it leaves a node that the same
// call, or the one back, brings to its end.
package migrate
