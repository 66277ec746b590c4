// SPDX-License-Identifier: Apache-2.0

// Package pod holds the rules about pods that every service of the node shares: pure
// functions on core/v1 objects, values in and values out.
//
// The root package owns names and identity (labels, annotations and hashes put on
// sandboxes and containers, and how to read them back), where things lie on disk and in
// the cgroup tree, quality of service and resource arithmetic, and the effective
// security settings of a container. Its sub-packages:
//
//	manifest   static pods: decoding, defaults, validation, identity, mirror pods
//	restart    restart decisions and back-off
//	podstatus  the PodStatus of a pod
//	env        the environment of a container
//	downward   values of pod fields and resources, for environments and volumes
//	netfile    /etc/hosts, resolv.conf and the hostname
//
// Everything that outlives a process — labels, annotations, cgroup names, log paths,
// directories — equals what the Kubernetes kubelet v1.36 writes, so that containers
// started by either are adopted by the other. That is the package's main promise; its
// tests hold values recorded from the kubelet.
//
// Nothing here does I/O, reads a clock or keeps state, so nothing has to come back
// after a crash.
package pod
