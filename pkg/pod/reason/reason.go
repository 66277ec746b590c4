// SPDX-License-Identifier: Apache-2.0

// Package reason holds the reasons of a container's waiting state, and of the
// failures of sandboxes and containers, in the words of the kubelet: podworker
// publishes them, status renders them, users and their tools match on them.
package reason

// A container on its way.
const (
	// ContainerCreating: it has never run.
	ContainerCreating = "ContainerCreating"
	// PodInitializing is ContainerCreating in a pod that has init containers.
	PodInitializing = "PodInitializing"
	// CrashLoopBackOff: its restart is held back.
	CrashLoopBackOff = "CrashLoopBackOff"
	// RestartingAllContainers: every container of the pod restarts (KEP-5532).
	RestartingAllContainers = "RestartingAllContainers"
)

// An image that is not present.
const (
	ErrImagePull              = "ErrImagePull"
	ErrImageNeverPull         = "ErrImageNeverPull"
	ImageInspectError         = "ImageInspectError"
	InvalidImageName          = "InvalidImageName"
	RegistryUnavailable       = "RegistryUnavailable"
	SignatureValidationFailed = "SignatureValidationFailed"
	// ImagePullBackOff: the next pull is held back after one of these.
	ImagePullBackOff = "ImagePullBackOff"
)

// A container that could not be made, started, changed, stopped or removed.
const (
	CreateContainerConfigError = "CreateContainerConfigError"
	CreateContainerError       = "CreateContainerError"
	RunContainerError          = "RunContainerError"
	// PostStartHookError: the container ran and was stopped again.
	PostStartHookError   = "PostStartHookError"
	KillContainerError   = "KillContainerError"
	RemoveContainerError = "RemoveContainerError"
	// ResizePodInPlaceError: running containers did not get other resources.
	ResizePodInPlaceError = "ResizePodInPlaceError"
)

// A container that has exited, as runtimes say it.
const (
	// Error: with another code than 0.
	Error = "Error"
	// OOMKilled: the kernel killed it for want of memory.
	OOMKilled = "OOMKilled"
)

// A sandbox that could not be made or ended.
const (
	// ConfigPodSandboxError: the sandbox's configuration cannot be made.
	ConfigPodSandboxError = "ConfigPodSandboxError"
	CreatePodSandboxError = "CreatePodSandboxError"
	KillPodSandboxError   = "KillPodSandboxError"
)

// PullFailed reports whether a reason is a registry's answer to a pull. The other
// reasons about images are about the pod or this node: they stay in the status while
// they last, for the back-off between two attempts is not one of pulls.
func PullFailed(reason string) bool {
	return reason == ErrImagePull || reason == RegistryUnavailable || reason == SignatureValidationFailed
}
