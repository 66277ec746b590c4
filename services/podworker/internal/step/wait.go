// SPDX-License-Identifier: Apache-2.0

package step

import (
	"time"

	"github.com/sextant-node/sextant/pkg/backoff"
)

// The waits that double.
var (
	// readmissions of a static pod that was refused, unless the node's resources change.
	readmissions = backoff.Doubling{Least: 10 * time.Second, Most: 5 * time.Minute}
	// retries of stops, and of calls of neighbours.
	retries = backoff.Doubling{Least: time.Second, Most: 10 * time.Second}
	// absences of the process that would have to act.
	absences = backoff.Doubling{Least: 100 * time.Millisecond, Most: 2 * time.Second}
)

// How long things wait where the kubelet has a number for it.
const (
	// notYetRetry bounds the wait for resource to change its mind unasked.
	notYetRetry = 10 * time.Second
	// errorShown is how long ErrImagePull shows before it reads
	// ImagePullBackOff: the kubelet's shortest requeue after an error.
	errorShown = 5 * time.Second
	// lookAgain is how often an image is looked for whose pull is held back: the
	// kubelet does at each try to start the pod, which it puts off by this much. So
	// often, too, the runtime is asked what it has of a pod that cannot be released.
	lookAgain = 10 * time.Second
	// sandboxPause is the least time from one sandbox of a pod to the next: the period of a
	// kubelet's relist, which finds that one has died or has no address.
	sandboxPause = time.Second
	// sidecarSettles is how long a sidecar without a startup probe runs before those after it
	// start: one that ends at once keeps them from starting. A kubelet goes by whether it
	// runs at the relist after its start, which comes within a second.
	sidecarSettles = 500 * time.Millisecond
	// restartAllPause is the least time from one restart of all containers to the next: the
	// period of a kubelet's relist, which finds the exit that asks for it. No back-off of
	// a container bounds what is removed and made afresh.
	restartAllPause = time.Second
	// deadReadWithin is how long an ended instance is kept after a newer one has ended too, so that
	// status can report it as the last state. A kubelet collects such instances once a minute.
	deadReadWithin = 10 * time.Second
	// endReadWithin is the least time for which the containers of a static pod are kept after its
	// manifest was removed, so that status can write to the mirror pod how they ended.
	endReadWithin = time.Second
	// killedExitCode is that of an instance that was killed, and stands in for that of
	// one that is gone.
	killedExitCode = 137
	// minStopGrace is the least the runtime gets to stop a container.
	minStopGrace = 2 * time.Second
	// graceStep is the least by which a stop under way is worth shortening.
	graceStep = 500 * time.Millisecond
	// minPodGrace is the least a pod gets.
	minPodGrace = time.Second
)

// ContainerWait is why a container does not run, in the words of its status.
type ContainerWait struct {
	Container, Reason, Message string
	// Retry is when it is tried next; zero when something else is awaited.
	Retry time.Time
	// BackOff is the whole of the back-off, LastError what the last attempt said.
	BackOff   time.Duration
	LastError string
}

// Wait names who must act for the pod to go on.
type Wait struct {
	// Owner is a service of the house, or "runtime".
	Owner, Step, Message string
	Since, Retry         time.Time
}
