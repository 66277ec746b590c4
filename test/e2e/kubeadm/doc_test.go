// SPDX-License-Identifier: Apache-2.0

// Package kubeadm_test joins a node to a cluster with the real kubeadm, which knows
// nothing of Sextant: it writes its files, restarts kubelet.service, and waits for what a
// kubelet does with them. And it moves a joined node from the kubelet to Sextant and back.
//
// All of it is on a machine that a real systemd runs, with the package of Sextant as it is
// installed, and the reference kubelet with the unit files of its own.
package kubeadm_test
