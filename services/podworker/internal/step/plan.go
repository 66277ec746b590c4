// SPDX-License-Identifier: Apache-2.0

package step

import (
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
	// Sized: resource has said what the pod is allocated, and the sizes of its containers in
	// Facts go by it.
	Sized bool
	// Waits of containers, in the order of the spec.
	Waits []ContainerWait
	// Wait of the pod as a whole; nil when it is where it should be.
	Wait   *Wait
	Events []Event
	// WakeAt is when to step again if nothing happens before; zero for never.
	WakeAt time.Time
}

// Event is a Kubernetes Event about the pod, or about one container of it.
type Event struct {
	// Container is empty for an event about the pod.
	Container string
	Warning   bool
	Reason    string
	Message   string
}
