// SPDX-License-Identifier: Apache-2.0

// Package judge is what the kill matrix thinks of what the API server and the
// runtime showed: values in, verdicts out.
package judge

import "time"

// Round is one fault and what came of it.
type Round struct {
	// Fault is what was done, such as "kill -9"; To is to whom: one service, two
	// with a plus between them, or a part beside the node.
	Fault, To string
	// Recovery is from the fault to Ready of a pod made at that moment; where a
	// fault lasts, from its end. 0 if that pod did not get there, or none was made.
	Recovery time.Duration
	// Calm is how long a pod of the same kind took right after, with nothing
	// done to anybody: what the machine gives at that time. 0 if none was made.
	Calm time.Duration
	// Probe is the longest that any pod waited for its first probe after the
	// prober that was killed had begun again. 0 for other faults.
	Probe time.Duration
	// Findings are what must not have happened, in words.
	Findings []Finding
}

// Kind sorts findings.
type Kind string

// The kinds of findings.
const (
	Flip      Kind = "flips"      // a condition, a phase or anything else of a status changed
	Restart   Kind = "restarts"   // a container started again, or another runs in its place
	Duplicate Kind = "duplicates" // two containers or sandboxes where one belongs
	Lost      Kind = "lost"       // a pod that was deleted did not go, or went before its containers; a state file was given up
	Stuck     Kind = "stuck"      // a pod that was made did not get Ready, or a service did not serve again
	Late      Kind = "late"       // a probe came later than its period allows

	Unmounted Kind = "unmounted" // a mount of a running pod is gone, or another is in its place
	Changed   Kind = "changed"   // a volume holds something else than before
	Orphan    Kind = "orphans"   // something is left of a pod that is gone

	Taken Kind = "taken" // a running container has another device, claim or CPU than before
	Twice Kind = "twice" // two containers have the same device or CPU of their own
)

// Kinds are those that any fault may bring about, in the order of the table.
func Kinds() []Kind { return []Kind{Flip, Restart, Duplicate, Lost, Stuck, Late} }

// VolumeKinds are those where volumes are looked at as well.
func VolumeKinds() []Kind {
	return []Kind{Unmounted, Changed, Orphan, Flip, Restart, Duplicate, Lost, Stuck}
}

// DeviceKinds are those where devices, claims and CPUs are looked at as well.
func DeviceKinds() []Kind {
	return []Kind{Taken, Twice, Orphan, Flip, Restart, Duplicate, Lost, Stuck}
}

// Finding is one thing that must not have happened.
type Finding struct {
	Kind Kind
	What string
}
