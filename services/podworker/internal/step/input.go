// SPDX-License-Identifier: Apache-2.0

package step

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// Input is everything a step depends on. Step changes none of it. It has many fields
// because a step reads nothing else: no clock, no file, no service.
type Input struct {
	Now time.Time
	UID types.UID
	// Desired is what config lists; nil when it does not.
	Desired *Desired
	Config  Config
	// Accepted is the pod as it was last accepted, from the journal: what a pod
	// that config lists no more is stopped by. Nil when it never was.
	Accepted  *v1.Pod
	Facts     Facts
	Observed  Observed
	Volumes   Volumes
	Resources Resources
	// Verdicts of probes, by container ID.
	Verdicts map[string]Probes
	Network  Network
	Handler  Handler
	// Boot is the kernel's boot ID.
	Boot string
	// Shutdown is what the end of the node means for this pod.
	Shutdown Shutdown
	// Holder is another pod of the same full name that has not gone yet; a
	// static pod waits for it.
	Holder types.UID
	// Flights are the actions under way.
	Flights  map[Key]Flight
	Settings Settings
	// Excess are dead containers of which the node has too many in all, by ID.
	Excess map[string]bool
	// Logged is how many instances of a container the log directory shows,
	// for a pod of which the journal knows nothing.
	Logged map[string]int
	// ServicesKnown: the Services whose addresses go into environments were read.
	ServicesKnown bool
	// NodeKnown: resource has said what the node is. Its cgroup version and its
	// memory are part of every container's configuration.
	NodeKnown bool
	// ObjectsChanged is when an object that the pod names last changed,
	// ResourcesChanged when the node's resources last did: what failed for want
	// of them before is tried again.
	ObjectsChanged, ResourcesChanged time.Time
}

// Desired is a pod that config lists.
type Desired struct {
	Pod *v1.Pod
	// Source is "file", "http" or "api".
	Source string
	// Seen is when config first saw it; zero when it does not tell.
	Seen time.Time
	// Begun is when config saw its manifest appear; zero when it was there before.
	// A later one: the manifest was removed and written again.
	Begun time.Time
	// Fingerprint changes when what volumes depend on does.
	Fingerprint uint64
	// Asks identifies the resources the pod asks for (pod.SizesID). Those of Pod
	// are the ones that are allocated.
	Asks string
}

// Config is how much config knows.
type Config struct {
	// PodsComplete: a pod that is not listed does not exist.
	PodsComplete bool
	// SourcesComplete: moreover, every configured source has been read.
	SourcesComplete bool
	// Unheard: the pod is the API server's, which has neither listed its pods since
	// the start of config nor failed to. What does not run is not started on the word
	// of an earlier life: the pod may have been deleted since.
	Unheard bool
}

// Observed is the record of what the runtime has.
type Observed struct {
	// Known: the pod was read, or the runtime was and has nothing of it.
	Known bool
	// Verified: the record is newer than the last thing this process created;
	// Current: than the last thing it did at all, and than it heard that the API
	// server has the pod as finished.
	Verified, Current bool
	// Error is why the runtime could not be read for this pod.
	Error string
	// RefreshError is why the record could not be verified.
	RefreshError string
	// Sandboxes and Containers, newest first.
	Sandboxes  []Sandbox
	Containers []Instance
}

// Sandbox is one sandbox of the pod.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	HostNetwork bool
	IPs         []string
}

// RuntimeState is the state of a container in the runtime.
type RuntimeState string

// The states of a container, in the CRI's words.
const (
	Created RuntimeState = "created"
	Running RuntimeState = "running"
	Exited  RuntimeState = "exited"
	Unknown RuntimeState = "unknown"
)

// Instance is one instance of a container as the runtime shows it.
type Instance struct {
	ID, Name, Sandbox string
	State             RuntimeState
	RestartCount      int
	// Hash of the specification it was made from; 0 when not recorded.
	Hash       uint64
	ExitCode   int32
	CreatedAt  time.Time
	FinishedAt time.Time
	// NeverRan: it has exited without having been started.
	NeverRan bool
	// PreStop: its annotations name a hook.
	PreStop bool
}

// Volumes is the state of the pod's volumes.
type Volumes struct {
	// Listed: volume knows of the pod.
	Listed bool
	// Ready: all are mounted.
	Ready bool
	// Withdrawing: they are being unmounted.
	Withdrawing bool
	// Gone: volume has nothing of the pod, and said so after it was last told
	// anything.
	Gone bool
	// Waiting says what is waited for, in words.
	Waiting string
	// LimitExceeded is why the node has no room for one of the pod's volumes; empty
	// otherwise.
	LimitExceeded string
}

// Resources is what the pod holds.
type Resources struct {
	// Held: resource has what the pod needs ready, its cgroup above all; no
	// sandbox is made before.
	Held bool
	// Unready is what resource waits for before that; empty for its own work.
	Unready string
	// Read: what resource allocated to the containers is known here; no container is
	// started before.
	Read bool
	// Lost: resource answers, and does not know the pod although it should.
	Lost bool
	// Gone: nothing is held, said after Release was accepted.
	Gone bool
	// Asked identifies the resources that resource knows the pod asks for; empty
	// while it is not known.
	Asked string
	// Allocation counts how often what the pod may have changed, for the generation
	// Generation; Settled is the newest that resource knows the containers to have.
	Allocation, Settled uint64
	// Assumed: Settled is taken from resource's answer to Settle; its feed does not show it yet.
	Assumed    bool
	Generation int64
	// OwnCPUs are the CPUs of containers that have their own, by name; SharedCPUs those of
	// all others, empty when containers are not pinned.
	OwnCPUs    map[string]string
	SharedCPUs string
	// Blocked is why containers may not have the newest allocation yet.
	Blocked string
	// Error says what holds a release up.
	Error    string
	Eviction *Eviction
}

// Eviction is resource's verdict that the pod must go.
type Eviction struct {
	Reason, Message string
	// Disruption: for the node's sake, not for a limit of the pod's own.
	Disruption bool
	Grace      time.Duration
	At         time.Time
}

// Probes are the verdicts about one instance of a container.
type Probes struct {
	Started, LivenessFailed, StartupFailed bool
}

// Network is whether the runtime can give pods a network.
type Network struct {
	Ready   bool
	Message string
}

// Handler is the runtime handler of the pod's RuntimeClass.
type Handler struct {
	Name string
	// Waiting: the RuntimeClass is not known yet, or does not exist.
	Waiting string
	// Unread: it has not been read yet, which is no event.
	Unread bool
}

// Flight is an action under way.
type Flight struct {
	Action Action
	Since  time.Time
	// Cancelled: its context has ended; the result is awaited.
	Cancelled bool
	// Queued: it has not begun, for others are before it.
	Queued bool
}

// Shutdown is the end of the node; zero while it goes on.
type Shutdown struct {
	// Active: the node is going down; nothing is taken up any more.
	Active bool
	// End: it is this pod's turn to end, within Grace.
	End   bool
	Grace time.Duration
}

// Settings are values from the configuration.
type Settings struct {
	Crash restart.Policy
	// KeepDead is how many dead instances of a container are kept: at least
	// one, all when negative.
	KeepDead int
	// DeadAge is how old a dead instance has to be to count and to be removed.
	DeadAge time.Duration
}
