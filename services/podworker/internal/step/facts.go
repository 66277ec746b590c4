// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"maps"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// State is where a pod is in its life (see the package's diagram).
type State string

// The states.
const (
	// Pending: seen, not admitted yet. The zero State is read as Pending.
	Pending State = "pending"
	// Syncing: admitted; the runtime is brought to the specification.
	Syncing State = "syncing"
	// Terminating: being stopped; nothing is started any more.
	Terminating State = "terminating"
	// Terminated: nothing runs or will run; volumes and allocations may remain.
	Terminated State = "terminated"
	// Released: everything is given back; dead containers may remain.
	Released State = "released"
	// Rejected: refused at admission; nothing ever ran.
	Rejected State = "rejected"
)

// Facts is what is known of a pod from earlier steps. All but Memory belongs in
// the journal.
type Facts struct {
	State State `json:"state,omitempty"`
	// StartedAt is when the pod was first taken up.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Begun is the Desired.Begun that the pod was taken up with.
	Begun time.Time `json:"begun,omitzero"`
	// Admitted is the one admission decision.
	Admitted *Admission `json:"admitted,omitempty"`
	// Rejected is why the pod was refused.
	Rejected *Rejection `json:"rejected,omitempty"`
	// Termination is set from Terminating on.
	Termination *Termination `json:"termination,omitempty"`
	// Containers by name.
	Containers map[string]Container `json:"containers,omitempty"`
	// Pulls by the key of the action.
	Pulls map[Key]PullFacts `json:"pulls,omitempty"`
	// Kills are the containers that must stop, by container ID.
	Kills map[string]Kill `json:"kills,omitempty"`
	// RestartAll is set while a RestartAllContainers rule is carried out.
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// RestartedAll is when the last such rule began to be carried out.
	RestartedAll time.Time `json:"restartedAll,omitzero"`
	// Boot is the boot of the machine that the back-offs are of.
	Boot string `json:"boot,omitempty"`
	// Updated is the allocation that containers were given last, until resource
	// knows.
	Updated uint64 `json:"updated,omitempty"`
	// Departing is when the removal of the pod's containers and sandboxes began: no source of
	// pods listed it any more. Zero before that.
	Departing time.Time `json:"departing,omitzero"`

	Memory `json:"-"`
}

// Admission is the answer of resource, kept for ever.
type Admission struct {
	At           time.Time `json:"at"`
	CgroupParent string    `json:"cgroupParent,omitempty"`
}

// Rejection is the refusal of resource.
type Rejection struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	// Asked is when a static pod was refused last, and Again how often after the
	// first time.
	Asked time.Time `json:"asked,omitzero"`
	Again int       `json:"again,omitempty"`
}

// Cause says why a pod is ended.
type Cause string

// The causes.
const (
	// Deleted: the API object has a deletion timestamp.
	Deleted Cause = "deleted"
	// Removed: config is complete and does not list the pod any more.
	Removed Cause = "removed"
	// Orphan: only the runtime knows the pod.
	Orphan Cause = "orphan"
	// Evicted: resource's verdict.
	Evicted Cause = "evicted"
	// NoRoom: the node has no room for one of its volumes.
	NoRoom Cause = "no-room"
	// Deadline: activeDeadlineSeconds passed.
	Deadline Cause = "deadline"
	// NodeDown: the node is shut down.
	NodeDown Cause = "node-down"
	// Finished: all containers ran and none runs again.
	Finished Cause = "finished"
)

// Termination is the ending of a pod.
type Termination struct {
	Cause   Cause     `json:"cause"`
	Started time.Time `json:"started"`
	// Grace only ever shrinks; Deadline is when it is used up.
	Grace    time.Duration `json:"grace"`
	Deadline time.Time     `json:"deadline"`
	// Unseen: what runs of the pod is not known since the end began. Its grace begins when it is.
	Unseen bool `json:"unseen,omitempty"`
	// Outcome is set when the node decided it against the owner's wish.
	Outcome *Outcome `json:"verdict,omitempty"`
	// Exceeded says that the event ExceededGracePeriod is out.
	Exceeded bool `json:"exceeded,omitempty"`
}

// Outcome is an end the node decided on; its words go into the pod's status.
type Outcome struct {
	// Kind is "Evicted", "Preempted", "Shutdown", "DeadlineExceeded" or "Rejected".
	Kind       string    `json:"kind"`
	Reason     string    `json:"reason"`
	Message    string    `json:"message,omitempty"`
	Disruption bool      `json:"disruption,omitempty"`
	At         time.Time `json:"at"`
}

// Container is what is known of one container of the spec.
type Container struct {
	// Instances is how many were ever made: the next restart count.
	Instances int `json:"instances,omitempty"`
	// Last is the newest instance, kept when the runtime forgets it.
	Last *Last `json:"last,omitempty"`
	// ByProbe is of version 0.1.0, which looked at no restart rule after a probe's kill.
	ByProbe string `json:"byProbe,omitempty"`
	// Replaced is the ID of an instance killed for another to take its place: its
	// definition changed, a probe failed and the policy restarts what fails, or the
	// pod ended and starts over. It is started again whatever its exit code.
	Replaced string `json:"replaced,omitempty"`
	// Crash is the restart back-off, valid for CrashKey only.
	Crash    restart.Backoff `json:"crash,omitzero"`
	CrashKey string          `json:"crashKey,omitempty"`
	// Size is what the newest instance was given; nil when it is not known.
	Size *pod.Size `json:"size,omitempty"`
	// Reset is the restart count of the first instance after all containers were restarted
	// last; 0 if they never were.
	Reset int `json:"reset,omitempty"`
}

// PullFacts is the back-off of an image's pulls; a success ends it, but a
// failure soon after goes on from there.
type PullFacts struct {
	Image   string          `json:"image"`
	Backoff restart.Backoff `json:"backoff,omitzero"`
	// Looked is when the image was last looked for during the back-off.
	Looked time.Time `json:"looked,omitzero"`
	// Reason the last pull failed with; empty when it did not.
	Reason string `json:"reason,omitempty"`
}

// Last is the newest instance of a container that was seen.
type Last struct {
	ID      string `json:"id"`
	Sandbox string `json:"sandbox,omitempty"`
	// Exit is set once it was seen dead.
	Exit *Exit `json:"exit,omitempty"`
}

// Exit is how an instance ended.
type Exit struct {
	Code int32 `json:"code"`
	// At is when, as the runtime says; when it was seen, if that lay ahead.
	At time.Time `json:"at"`
}

// Kill is a container that must stop.
type Kill struct {
	Container string `json:"container"`
	// Message of the event Killing; empty for the usual one.
	Message string `json:"message,omitempty"`
	// Deadline is when the grace is used up, and Grace what it was when that was set.
	Deadline time.Time     `json:"deadline"`
	Grace    time.Duration `json:"grace,omitempty"`
	// HookDone: the preStop hook ran, or none is due.
	HookDone bool `json:"hookDone,omitempty"`
	// Told: the event Killing is out.
	Told bool `json:"told,omitempty"`
}

// RestartAll is a RestartAllContainers rule being carried out.
type RestartAll struct {
	// At is read by version 0.1.0 alone, should the node go back to it.
	At time.Time `json:"at"`
	// Sources are the containers whose exit asked for it.
	Sources []string `json:"sources"`
}

// Memory is what need not outlive the process: all of it is found out again.
type Memory struct {
	// Failures of actions, by key, until they succeed.
	Failures map[Key]Failure
	// Images that were made present for the next instance of a container, or for
	// an image volume, by the pull's key.
	Images map[Key]Image
	// Declared is the fingerprint of the pod that volume was told.
	Declared uint64
	// WithdrawAccepted and ReleaseAccepted: volume and resource have taken the command.
	WithdrawAccepted, ReleaseAccepted bool
	// Stopped sandboxes, Dead containers, and what of both is Removed, by ID: the
	// runtime answered that it did it, whatever an older record shows.
	Stopped, Dead, Removed map[string]bool
	// Pinned are the CPUs that containers were given last, by ID.
	Pinned map[string]string
	// Sandboxed is when the last sandbox was made.
	Sandboxed time.Time
	// LookedAgain is when another record was asked for because the pod could not be
	// released.
	LookedAgain time.Time
	// Resizing is the allocation that failures of a resize are about.
	Resizing uint64
	// NotYet is resource's last "not yet".
	NotYet *NotYet
	// Unfit is resource's refusal of a pod that it had lost, when nothing of it ran.
	Unfit *Rejection
	// Cleaned: nothing of the pod is left on the disk.
	Cleaned bool
	// Told is the last event emitted per topic, for deduplication. ToldAt is its time,
	// for topics that are repeated while the condition persists.
	Told   map[string]string
	ToldAt map[string]time.Time
	// Wait is the wait of the last plan: its Since stays while it lasts.
	Wait *Wait
}

// Image is a reference that a pull ended with.
type Image struct{ Image, Ref string }

// NotYet is an admission that waits for something that will come.
type NotYet struct {
	// Reason is empty where the wait is no news to the user.
	Reason, Message string
	At              time.Time
}

// String returns "reason: message", or the message alone without a reason.
func (n *NotYet) String() string {
	if n.Reason == "" {
		return n.Message
	}
	return n.Reason + ": " + n.Message
}

// Failure is an action that failed last time.
type Failure struct {
	Reason, Message string
	// Cause is the error of the call that failed, with its gRPC code; empty if there was none.
	Cause string
	At    time.Time
	// Retry is when it may be tried again.
	Retry time.Time
	// Count of failures in a row.
	Count int
	// Away: nothing was tried, for who had to act was not there. The containers
	// say nothing of it; the pod says whom it waits for.
	Away bool
	// Reported: the runtime has reported success since, and a newer record has yet to show it.
	Reported bool
}

// clone copies the facts so that a plan can change them.
func (f Facts) clone() Facts {
	c := f
	if f.Admitted != nil {
		c.Admitted = new(*f.Admitted)
	}
	if f.Rejected != nil {
		c.Rejected = new(*f.Rejected)
	}
	if f.Termination != nil {
		c.Termination = new(*f.Termination)
	}
	c.Containers = cloneMap(f.Containers)
	c.Kills = cloneMap(f.Kills)
	c.Failures = cloneMap(f.Failures)
	c.Images = cloneMap(f.Images)
	c.Pulls = cloneMap(f.Pulls)
	c.Removed = cloneMap(f.Removed)
	c.Stopped = cloneMap(f.Stopped)
	c.Dead = cloneMap(f.Dead)
	c.Pinned = cloneMap(f.Pinned)
	c.Told = cloneMap(f.Told)
	c.ToldAt = cloneMap(f.ToldAt)
	c.State = cmp.Or(c.State, Pending)
	return c
}

// departs says since when the pod departs: from now on, if it has not.
func (f *Facts) departs(now time.Time) time.Time {
	if f.Departing.IsZero() || f.Departing.After(now) { // the clock was set back
		f.Departing = now
	}
	return f.Departing
}

// cloneMap copies a map; of one that is empty it leaves the room behind that it had for what
// was in it: 1 KiB for failures, in each of many pods.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if len(m) == 0 {
		return map[K]V{}
	}
	return maps.Clone(m)
}
