// SPDX-License-Identifier: Apache-2.0

// Package criconfig makes the runtime's configuration of a pod: the
// PodSandboxConfig of its sandbox, the mounts and the ContainerConfig of each
// container, field by field as the Kubernetes kubelet v1.36 makes them, so that
// a pod adopted from one by the other does not change.
//
// It is pure: whatever has to be looked up, read or created is given as a value.
// Its errors are worded for the pod's owner and become ConfigPodSandboxError and
// CreateContainerConfigError.
package criconfig
