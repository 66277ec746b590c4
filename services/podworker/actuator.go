// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
)

// Sandboxes acts on sandboxes and on what a pod leaves on the disk. Every call
// may be repeated; a call for something that is gone already succeeds.
type Sandboxes interface {
	// RunSandbox makes and starts a sandbox, with its network.
	RunSandbox(ctx context.Context, spec actuate.SandboxSpec) (id string, err error)
	StopSandbox(ctx context.Context, pod *v1.Pod, id string) error
	RemoveSandbox(ctx context.Context, pod *v1.Pod, id string) error
	// RestartCountFromLogs is how many instances of a container the pod's log
	// directory shows.
	RestartCountFromLogs(pod *v1.Pod, container string) int
	// CleanPodDirs removes the pod's directory and its logs. The pod may carry
	// no more than name, namespace and UID.
	CleanPodDirs(ctx context.Context, pod *v1.Pod) error
}

// Containers acts on containers. The events that tell of a single act (Pulling,
// Pulled, Created, Started, Killing, Failed, hooks) are emitted by the
// implementation; those that tell of a decision (BackOff, SandboxChanged …) by
// the loop.
type Containers interface {
	// EnsureImage makes an image present; back-off is the caller's.
	EnsureImage(ctx context.Context, spec actuate.ImageSpec) (ref string, err error)
	// FindImage is EnsureImage without a pull: no ref where that would be needed.
	FindImage(ctx context.Context, spec actuate.ImageSpec) (ref string, err error)
	// StartContainer creates and starts a container and runs its postStart hook;
	// a container whose hook fails is stopped again.
	StartContainer(ctx context.Context, spec actuate.ContainerSpec) (id string, err error)
	// PreStop emits Killing and runs the preStop hook. The caller stops the
	// container with RunPreStop false, afterwards or, when the hook has used up
	// spec.Grace, beside it: the hook of a sidecar runs at once, its stop waits
	// for its turn.
	PreStop(ctx context.Context, spec actuate.KillSpec) error
	// StopContainer stops a container. Called again with less grace while a
	// call is under way it shortens it; the former call's context is cancelled.
	StopContainer(ctx context.Context, spec actuate.KillSpec) error
	// RemoveContainer removes a container with its logs, RemoveContainerKeepLogs
	// without them.
	RemoveContainer(ctx context.Context, pod *v1.Pod, id string) error
	RemoveContainerKeepLogs(ctx context.Context, pod *v1.Pod, id string) error
	// Resize gives running containers other resources.
	Resize(ctx context.Context, spec actuate.ResizeSpec) error
	// Pin has a running container run on CPUs, a list.
	Pin(ctx context.Context, id, cpus string) error
	// TerminationMessage is what an exited container left to say.
	TerminationMessage(ctx context.Context, status *runtimeapi.ContainerStatus) string
}
