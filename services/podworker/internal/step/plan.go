// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"strings"
	"time"
)

// Plan is what is to be done now. The caller does it in this order:
//
//  1. Forget: the journal's record first, then all else; nothing below applies.
//  2. Write Facts to the journal. When Decides, nothing of the rest happens before that
//     has succeeded; without a decision the write may go on beside the rest.
//  3. Keep Facts for the next step; when Again, step at once once more.
//  4. Emit Events, cancel Cancel, start Start. An action's result goes through Apply, in
//     any order of results; a result of an action that was cancelled too.
//  5. Refresh: ask for a record that is newer than all that was done. The same after the
//     end of each action that Changes the runtime; until the record is there, Observed is
//     not Current, and not Verified after one that Creates.
//  6. Publish the waits, and step again at WakeAt or when an input changes.
type Plan struct {
	// Facts to remember.
	Facts Facts
	// Start these, side by side. One whose key is under way replaces it.
	Start []Action
	// Cancel these; their results are still awaited.
	Cancel []Key
	// Refresh: the record has to be verified before the pod can go on.
	Refresh bool
	// Forget: nothing of the pod is left anywhere.
	Forget bool
	// Again: the pod starts a new life.
	Again bool
	// Waits of containers, in the order of the spec.
	Waits []ContainerWait
	// Wait of the pod as a whole; nil when it is where it should be.
	Wait   *Wait
	Events []Event
	// WakeAt is when to step again if nothing happens before; zero for never.
	WakeAt time.Time
}

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

// Event is a Kubernetes Event about the pod, or about one container of it.
type Event struct {
	// Container is empty for an event about the pod.
	Container string
	Warning   bool
	Reason    string
	Message   string
}

// Kind of an action.
type Kind string

// The kinds of action.
const (
	// Admit asks resource for the pod's place.
	Admit Kind = "admit"
	// Declare asks volume to mount.
	Declare Kind = "declare"
	// RunSandbox makes sandbox number Attempt.
	RunSandbox Kind = "sandbox"
	// Pull makes the image of a container, or of an image volume, present.
	Pull Kind = "pull"
	// Look finds out whether an image that could not be pulled has come meanwhile.
	Look Kind = "look"
	// Start creates and starts instance number Attempt of a container.
	Start Kind = "start"
	// PreStop runs a hook, Stop stops a container, both within Grace.
	PreStop Kind = "prestop"
	Stop    Kind = "stop"
	// Remove removes a dead container.
	Remove Kind = "remove"
	// StopSandbox and RemoveSandbox end a sandbox.
	StopSandbox   Kind = "stop-sandbox"
	RemoveSandbox Kind = "remove-sandbox"
	// Resize tells resource what the pod asks for; Update gives containers what
	// number Attempt allocates; Settle tells resource that they have it.
	Resize Kind = "resize"
	Update Kind = "update"
	Settle Kind = "settle"
	// Pin has a running container run on CPUs.
	Pin Kind = "pin"
	// Withdraw asks volume to unmount, Release resource to free.
	Withdraw Kind = "withdraw"
	Release  Kind = "release"
	// Clean removes what the pod left on the disk.
	Clean Kind = "clean"
)

// Creates reports whether an action adds something to the runtime.
func (k Kind) Creates() bool { return k == RunSandbox || k == Start }

// Changes reports whether an action changes what the runtime has.
func (k Kind) Changes() bool {
	switch k {
	case RunSandbox, Start, Stop, Remove, StopSandbox, RemoveSandbox, Update:
		return true
	}
	return false
}

// Action is one thing to do.
type Action struct {
	Kind Kind
	// Container is a name, Volume the name of an image volume, ID what an act on
	// an existing container or sandbox is about.
	Container, Volume, ID string
	// Sandbox the container goes into.
	Sandbox string
	// Attempt of the sandbox; for Start the restart count.
	Attempt int
	// Image as specified, Ref as the pull ended.
	Image, Ref string
	// Grace that is left.
	Grace   time.Duration
	Message string
	// Running: the pod to be admitted runs already.
	Running bool
	// Tell: the event Killing is due.
	Tell bool
	// KeepLogs of a container that is removed.
	KeepLogs bool
	// Changes an Update makes.
	Changes []Change
	// CPUs of a Pin, as a list.
	CPUs string
}

// Key identifies what at most one action at a time is done about.
type Key string

// Key of the action.
func (a Action) Key() Key {
	switch {
	case a.Volume != "":
		return Key(string(a.Kind) + "/volume/" + a.Volume)
	case a.ID != "":
		return Key(string(a.Kind) + "/" + a.ID)
	case a.Container != "":
		return Key(string(a.Kind) + "/" + a.Container)
	}
	return Key(a.Kind)
}

// String is the action in one line.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(string(a.Key()))
	switch a.Kind {
	case RunSandbox:
		fmt.Fprintf(&b, " attempt=%d", a.Attempt)
	case Pull, Look:
		fmt.Fprintf(&b, " image=%s", a.Image)
	case Start:
		fmt.Fprintf(&b, " sandbox=%s restarts=%d image=%s", a.Sandbox, a.Attempt, a.Ref)
	case Update:
		fmt.Fprintf(&b, " allocation=%d %v", a.Attempt, a.Changes)
	case Settle:
		fmt.Fprintf(&b, " allocation=%d", a.Attempt)
	case Pin:
		fmt.Fprintf(&b, " container=%s cpus=%s", a.Container, a.CPUs)
	case PreStop, Stop:
		fmt.Fprintf(&b, " container=%s grace=%s", a.Container, a.Grace)
		if a.Tell {
			b.WriteString(" tell")
		}
	case Remove:
		fmt.Fprintf(&b, " container=%s", a.Container)
		if a.KeepLogs {
			b.WriteString(" keep-logs")
		}
	case Admit:
		if a.Running {
			b.WriteString(" running")
		}
	}
	if a.Message != "" {
		fmt.Fprintf(&b, " %q", a.Message)
	}
	return b.String()
}
