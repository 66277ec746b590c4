// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Reasons and messages as users of a kubelet know them.
const (
	ReasonCompleted           = "Completed"
	ReasonStatusUnknown       = "ContainerStatusUnknown"
	reasonRestartAllStarted   = "RestartAllContainersStarted"
	reasonContainersNotReady  = "ContainersNotReady"
	reasonNotInitialized      = "ContainersNotInitialized"
	reasonGatesNotReady       = "ReadinessGatesNotReady"
	reasonUnknownStatuses     = "UnknownContainerStatuses"
	reasonPodCompleted        = "PodCompleted"
	reasonPodFailed           = "PodFailed"
	exitCodeUnknown           = 137
	messageLostAtTermination  = "The container could not be located when the pod was terminated"
	messageLostWhileRunning   = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageRemovedForRestart  = "The container is removed because RestartAllContainers in place"
	messageInferredCompletion = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
	messagePreempted          = "Pod was preempted by Kubelet to accommodate a critical pod."
	prefixRejected            = "Pod was rejected: "
)

// BackoffMessage is the message of CrashLoopBackOff.
func BackoffMessage(p *v1.Pod, container string, delay time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, container, pod.String(p))
}

// PullBackoffMessage is the message of ImagePullBackOff. lastError, in the form
// "reason: message", may be empty.
func PullBackoffMessage(image, lastError string) string {
	message := fmt.Sprintf("Back-off pulling image %q", image)
	if lastError != "" {
		message += ": " + lastError
	}
	return message
}

func lost(message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: exitCodeUnknown, Reason: ReasonStatusUnknown, Message: message}
}
