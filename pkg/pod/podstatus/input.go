// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Lifecycle is the state podworker holds a pod in.
//
//	syncing ──► terminating ──► terminated ──► released
//	rejected ─────────────────────────────────► released
//
// A pod is rejected instead of syncing when it was refused at admission: nothing of it
// ever ran.
type Lifecycle string

// The lifecycle states, in the order a pod passes through them.
const (
	// Syncing: the pod is admitted and its containers are started and kept running.
	Syncing Lifecycle = "syncing"
	// Terminating: containers are being stopped and will not be started again.
	Terminating Lifecycle = "terminating"
	// Terminated: no container of the pod runs any more; volumes, cgroups and
	// allocations may still be held.
	Terminated Lifecycle = "terminated"
	// Released: everything the pod held on the node is given back.
	Released Lifecycle = "released"
	// Rejected: the pod was refused at admission.
	Rejected Lifecycle = "rejected"
)

// ContainersStopped reports whether the state promises that no container of the pod
// runs or will run again.
func (l Lifecycle) ContainersStopped() bool {
	return l == Terminated || l == Released || l == Rejected
}

// Input is everything a rendering depends on. Render reads it and changes none of it.
type Input struct {
	// Pod is the desired pod as config serves it. For a pod of the API server its
	// Status is the last one seen there; for a static pod see Old.
	Pod *v1.Pod
	// Facts are podworker's: lifecycle, verdict, why containers wait.
	Facts Facts
	// Observed is pleg's record of what runs.
	Observed Observed
	// Probes are prober's verdicts by runtime container id (without scheme).
	// A missing entry, or Unknown inside one, means that no verdict has been received.
	Probes map[string]ProbeVerdict
	// Health of the devices of containers.
	Health Health
	// OOMKilled are runtime container ids (without scheme) of containers in which the kernel
	// killed a process for want of memory.
	OOMKilled []string
	// Old is the previous rendering or, when there is none, the status at the API
	// server (for a static pod: that of its mirror pod). nil when there is neither.
	Old *v1.PodStatus
	// Reported is the status that the API server has of a pod of its own; nil where that is not
	// known. A kubelet looks there for whether a pod that has ended was ever initialized.
	Reported *v1.PodStatus
	// Node are facts about the node.
	Node Node
	// Now is the time of this rendering.
	Now time.Time
}

// Facts is what podworker knows about a pod and publishes. The zero value, with
// Lifecycle empty, is read as Syncing.
type Facts struct {
	// Lifecycle is the state of the pod.
	Lifecycle Lifecycle
	// StartTime is when podworker first took the pod up, before any image was pulled.
	// Zero: not taken up yet.
	StartTime time.Time
	// Verdict is set when the node refused or ended the pod; nil otherwise.
	Verdict *Verdict
	// Containers holds facts by container name (regular, init and ephemeral share
	// one name space).
	Containers map[string]ContainerFacts
	// Resizes are the states of in-place resizes, at most one that is pending and one
	// in progress.
	Resizes []Resize
	// ResizesUnknown: nothing is known of resizes, and what was reported of them holds.
	ResizesUnknown bool
	// AllContainersRestarting is true while a RestartAllContainers action runs.
	AllContainersRestarting bool
}

// VerdictKind says what the node did to a pod.
type VerdictKind string

// The kinds of verdict.
const (
	// VerdictRejected: refused at admission, nothing ran.
	VerdictRejected VerdictKind = "Rejected"
	// VerdictEvicted: ended because of node pressure or a local storage limit.
	VerdictEvicted VerdictKind = "Evicted"
	// VerdictPreempted: ended to make room for a critical pod.
	VerdictPreempted VerdictKind = "Preempted"
	// VerdictShutdown: ended by graceful node shutdown.
	VerdictShutdown VerdictKind = "Shutdown"
	// VerdictDeadline: activeDeadlineSeconds passed.
	VerdictDeadline VerdictKind = "DeadlineExceeded"
)

// Verdict is an end the node decided on, against the wish of the pod's owner. It makes
// the phase Failed.
type Verdict struct {
	// Kind of the decision.
	Kind VerdictKind
	// Reason becomes status.reason: an admission reason (section "admission reasons"
	// of the operator's guide), Evicted, Preempting, Terminated, DeadlineExceeded.
	Reason string
	// Message becomes status.message. For a rejection the prefix
	// "Pod was rejected: " is added by Render.
	Message string
	// Disruption is true when the pod was ended by the node for the node's sake
	// (pressure eviction, shutdown, preemption) and gets the DisruptionTarget
	// condition. It is false for local storage limits, deadlines and rejections.
	Disruption bool
	// Time of the decision.
	Time time.Time
}

// ContainerFacts is what podworker knows about one container.
type ContainerFacts struct {
	// Waiting is why the container does not run although it should, in the words of
	// the last start attempt: ErrImagePull, CreateContainerConfigError,
	// RunContainerError … nil when the last attempt succeeded or none was made.
	Waiting *Waiting
	// Backoff is set while podworker holds the container back.
	Backoff *Backoff
	// RestartCount is that of the newest instance podworker made, not of the next one:
	// it counts across removed containers. The rendering takes the largest of this, the
	// newest instance's annotation and the previous status.
	RestartCount int32
	// Unstarted is true when podworker knows that no instance was ever created. It
	// keeps a container that merely has not begun from being reported lost.
	Unstarted bool
	// Replaced is the bare ID of an instance that another takes the place of, whatever
	// its exit code: it is never reported as ended for good.
	Replaced string
	// ResetCount is the restart count of the first instance after all containers of the pod were
	// restarted last (RestartAllContainers); 0 if they never were.
	ResetCount int32
	// Given is what the newest instance was given; nil when that is not known.
	Given *pod.Size
}

// Health is the health of the devices and claims of a pod, for allocatedResourcesStatus.
type Health struct {
	// Known is false while nothing was said of the pod: the previous status holds.
	Known bool
	// Containers by name.
	Containers map[string][]v1.ResourceStatus
}

// Waiting is a reason and a message for a container that does not run.
type Waiting struct {
	Reason, Message string
}

// BackoffKind says what is being held back.
type BackoffKind string

// The kinds of back-off.
const (
	// BackoffRestart holds back the restart of a crashed container.
	BackoffRestart BackoffKind = "restart"
	// BackoffPull holds back the pull of an image.
	BackoffPull BackoffKind = "pull"
)

// Backoff is a wait podworker imposes before the next attempt.
type Backoff struct {
	Kind BackoffKind
	// Delay is the length of the wait (10s, 20s, … 5m0s), not what remains of it.
	Delay time.Duration
	// Until is when the next attempt is due.
	Until time.Time
	// LastError is the error of the attempt that caused a pull back-off.
	LastError string
}

// ResizeState is how far an in-place resize got.
type ResizeState string

// The states of a resize.
const (
	ResizeDeferred   ResizeState = "Deferred"
	ResizeInfeasible ResizeState = "Infeasible"
	ResizeInProgress ResizeState = "InProgress"
	ResizeFailed     ResizeState = "Error"
)

// Resize is the state of an in-place resize.
type Resize struct {
	State   ResizeState
	Message string
	// ObservedGeneration is the pod generation that asked for it.
	ObservedGeneration int64
}

// Observed is pleg's record of one pod: everything the runtime reported, in any order.
type Observed struct {
	// Sandboxes of the pod, dead ones included.
	Sandboxes []*runtimeapi.PodSandboxStatus
	// Containers of the pod in all sandboxes, dead ones included. Their labels and
	// annotations are those of package pod.
	Containers []*runtimeapi.ContainerStatus
	// Complete is true when the record is from a whole reading of the runtime. While it
	// is false, absence of a container means nothing and old states are kept.
	Complete bool
	// At is the time of the reading.
	At time.Time
}

// ProbeResult is the verdict of one probe of one container.
type ProbeResult string

// The verdicts.
const (
	ProbeUnknown ProbeResult = ""
	ProbeSuccess ProbeResult = "success"
	ProbeFailure ProbeResult = "failure"
)

// ProbeVerdict is what prober found out about one running container.
type ProbeVerdict struct {
	Startup, Readiness, Liveness ProbeResult
}

// Node is what a rendering needs to know about the node.
type Node struct {
	// HostIPs of the node, the primary first, at most one per family.
	HostIPs []string
	// RuntimeName is the runtime's name from Version (containerd, cri-o): the scheme
	// of container ids. Empty is read as "containerd".
	RuntimeName string
	// StopSignals says which signal stops a container (gate ContainerStopSignals).
	StopSignals bool
}
