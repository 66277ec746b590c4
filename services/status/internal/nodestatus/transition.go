// SPDX-License-Identifier: Apache-2.0

package nodestatus

import v1 "k8s.io/api/core/v1"

// ReasonRebooted is the reason of the event about another boot ID.
const ReasonRebooted = "Rebooted"

// Event is a change of the node worth an event about it.
type Event struct{ Type, Reason, Message string }

var transitions = []struct {
	kind               v1.NodeConditionType
	becameTrue, became string // reason for True, for anything else
}{
	{v1.NodeMemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	{v1.NodeDiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	{v1.NodePIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
	{v1.NodeReady, "NodeReady", "NodeNotReady"},
}

// Transitions are the events a new status is worth, against the one before.
func Transitions(name string, old, new v1.NodeStatus) (events []Event) {
	for _, t := range transitions {
		now, was := find(new.Conditions, t.kind), find(old.Conditions, t.kind)
		if now == nil || (was != nil && was.Status == now.Status) {
			continue
		}
		reason := t.became
		if now.Status == v1.ConditionTrue {
			reason = t.becameTrue
		}
		if was == nil && t.kind == v1.NodeReady && now.Status != v1.ConditionTrue {
			continue // it never was
		}
		events = append(events, normal(name, reason))
	}
	if was, now := old.NodeInfo.BootID, new.NodeInfo.BootID; was != "" && now != "" && was != now {
		events = append(events, Event{v1.EventTypeWarning, ReasonRebooted, "Node " + name + " has been rebooted, boot id: " + now})
	}
	return events
}

// Schedulable is the event a change of spec.unschedulable is worth.
func Schedulable(name string, unschedulable bool) Event {
	if unschedulable {
		return normal(name, "NodeNotSchedulable")
	}
	return normal(name, "NodeSchedulable")
}

// Starting is the event of the first start after a boot.
func Starting() Event { return Event{v1.EventTypeNormal, "Starting", "Starting kubelet."} }

func normal(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, "Node " + name + " status is now: " + reason}
}
