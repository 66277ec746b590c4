// SPDX-License-Identifier: Apache-2.0

// Package kubeadm_test joins a node of Sextant's to a cluster with the real
// kubeadm, which knows nothing of Sextant: it writes its files, restarts
// kubelet.service, and waits for what a kubelet does with them.
//
// kubeadm's places are fixed, so the whole lab has mounts and a network of its
// own. Of systemd there is what kubeadm asks of it, testdata/systemctl, which
// runs the command line of deploy/systemd/kubelet.service.d.
package kubeadm_test
