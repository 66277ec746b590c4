// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Target is a runtime and what must be known of it.
type Target struct {
	// Conn connects to the runtime; both services are served there.
	Conn func(testing.TB) grpc.ClientConnInterface
	// Images are what the tests use.
	Images Images
	// Features are what the runtime is meant to have.
	Features Features
	// CgroupParent is where the sandboxes' cgroups go; empty for the runtime's
	// own default.
	CgroupParent string
	// Linger has the runtime hold the calls of a method about a pod of that name, and
	// carry them out at release, although their callers have given up by then; caught
	// waits until one is held. Nil for a runtime that cannot be told: then the tests
	// cancel calls after some time and take what comes.
	Linger func(t testing.TB, method, pod string) (caught, release func())
	// LeaveTask gives a container that has ended a task of which the CRI does not know, as a
	// StartContainer may leave one whose caller died.
	LeaveTask func(t testing.TB, containerID string)
	// Interrupt kills the runtime (not its containers), calls during, and
	// starts it again. Nil leaves out the tests that need it.
	Interrupt func(t testing.TB, during func())
}

// Images are references as a user would write them.
type Images struct {
	// Shell has busybox's sh, sleep, echo, cat, printf, … in its PATH.
	Shell string
	// Spare is any other image, whose content nothing else on the node uses; it
	// is pulled and removed repeatedly.
	Spare string
	// Missing is in a registry that answers, which does not have it.
	Missing string
	// Private needs a user name and a password, those of Login.
	Private string
	Login   *runtimeapi.AuthConfig
}

// Features differ between runtimes that Sextant supports. What a runtime is
// not meant to have is tested to be refused in the way that Sextant expects.
type Features struct {
	// Events is GetContainerEvents; else it must be Unimplemented.
	Events bool
	// WholeEvents: a container that never started has an event of its removal, and the last
	// event of a sandbox has its status, NOTREADY. With containerd 1.7 neither is sure; for
	// Sextant an event is a reason to ask, no more.
	WholeEvents bool
	// EveryListener: each event is sent to every open GetContainerEvents stream. containerd
	// 1.7 sends it to one of them only, which may be one that the client has just closed.
	EveryListener bool
	// RuntimeConfig tells the cgroup driver; else it must be Unimplemented.
	RuntimeConfig bool
	// Streams are the Stream forms of the List calls (since CRI 1.36); else they
	// must be Unimplemented.
	Streams bool
	// ImageID fills image_id beside image_ref (since CRI 1.29).
	ImageID bool
}

// Run runs the suite. The subtests run in parallel to each other, except for
// those of events without EveryListener, and for those that interrupt the runtime,
// which come last.
func Run(t *testing.T, target Target) {
	t.Run("parallel", func(t *testing.T) {
		for _, group := range []struct {
			name  string
			tests []test
		}{
			{"node", nodeTests},
			{"image", imageTests},
			{"sandbox", sandboxTests},
			{"container", containerTests},
			{"stop", stopTests},
			{"remove", removeTests},
			{"process", processTests},
			{"log", logTests},
			{"exec", execTests},
			{"session", sessionTests},
			{"stream", streamTests},
			{"event", eventTests},
			{"stats", statsTests},
			{"concurrency", concurrencyTests},
			{"cancel", cancelTests},
		} {
			runAll(t, target, group.name, group.tests, group.name != "event" || target.Features.EveryListener)
		}
	})
	if target.Interrupt != nil {
		runAll(t, target, "interrupt", interruptTests, false)
	}
}

// test is one statement about a runtime.
type test struct {
	name string
	run  func(*env)
}

func runAll(t *testing.T, target Target, group string, tests []test, parallel bool) {
	for _, tt := range tests {
		t.Run(group+"/"+tt.name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			tt.run(newEnv(t, target))
		})
	}
}
