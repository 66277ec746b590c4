// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
)

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

// ShowsQueue reports whether it is shown that an action waits for its turn. For others it
// would be no more than a reason to look at the pod.
func (k Kind) ShowsQueue() bool { return k == RunSandbox || k == Start || k == Pull }

// Ends reports whether an action ends or removes what the runtime has.
func (k Kind) Ends() bool {
	switch k {
	case Stop, Remove, StopSandbox, RemoveSandbox:
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
	// CalmUntil is until when the removal waits for nothing to have started or ended on the
	// node for a while; zero for one that does not wait.
	CalmUntil time.Time
	// Changes an Update makes.
	Changes []Change
	// CPUs of a Pin, as a list.
	CPUs string
}

// WhenCalm reports whether the action waits for a calm node.
func (a Action) WhenCalm() bool { return !a.CalmUntil.IsZero() }

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
		if a.WhenCalm() {
			b.WriteString(" when-calm")
		}
	case RemoveSandbox:
		if a.WhenCalm() {
			b.WriteString(" when-calm")
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

// Change is what an Update does to one container. From is nil where it is not
// known what the container has.
type Change struct {
	Container, ID string
	From          *pod.Size
	To            pod.Size
}

// String is the change in a few words: requests and limits, in thousandths of a
// CPU and in bytes.
func (c Change) String() string {
	from := "?"
	if c.From != nil {
		from = sizeText(*c.From)
	}
	return fmt.Sprintf("%s %s -> %s", c.Container, from, sizeText(c.To))
}

func sizeText(s pod.Size) string {
	return fmt.Sprintf("cpu %d/%d memory %d/%d", s.CPURequest, s.CPULimit, s.MemoryRequest, s.MemoryLimit)
}
