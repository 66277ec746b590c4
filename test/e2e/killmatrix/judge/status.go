// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notes collects findings about one object.
type notes struct {
	name  string
	found []Finding
}

func (n *notes) add(kind Kind, format string, args ...any) {
	n.found = append(n.found, Finding{kind, n.name + ": " + fmt.Sprintf(format, args...)})
}

// Steady compares a version of a pod with the one before it, both of a pod that
// nobody touched: no part of its status may change. A condition that went and came
// back between two versions shows in the time of its last transition.
func Steady(before, now *corev1.Pod) []Finding {
	n := &notes{name: now.Namespace + "/" + now.Name}
	if before.UID != now.UID {
		n.add(Restart, "another pod under the same name")
	}
	if now.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		n.add(Restart, "is deleted")
	}
	if before.Status.Phase != now.Status.Phase {
		n.add(Flip, "phase %s became %s", before.Status.Phase, now.Status.Phase)
	}
	n.conditions(podConditions(before), podConditions(now))
	n.containers(before, now, func(old, c corev1.ContainerStatus) {
		if old.Ready != c.Ready {
			n.add(Flip, "container %s ready %v became %v", c.Name, old.Ready, c.Ready)
		}
		if started(old) != started(c) {
			n.add(Flip, "container %s started %v became %v", c.Name, started(old), started(c))
		}
	})
	if len(n.found) == 0 && !equality.Semantic.DeepEqual(before.Status, now.Status) {
		n.add(Flip, "status %s\nbecame %s", before.Status.String(), now.Status.String())
	}
	return n.found
}

// Progress compares a version of a pod that comes and goes with the one before
// it: it may get on, but never back, and its containers start once.
func Progress(before, now *corev1.Pod) []Finding {
	n := &notes{name: now.Namespace + "/" + now.Name}
	leaving := now.DeletionTimestamp != nil
	if phases[before.Status.Phase] > phases[now.Status.Phase] || !leaving && phases[now.Status.Phase] > phases[corev1.PodRunning] {
		n.add(Flip, "phase %s became %s", before.Status.Phase, now.Status.Phase)
	}
	was := podConditions(before)
	for kind, c := range podConditions(now) {
		if old, had := was[kind]; had && !leaving && old.status == metav1.ConditionTrue && c.status != old.status {
			n.add(Flip, "%s %s became %s", kind, old.status, c.status)
		}
	}
	n.containers(before, now, func(old, c corev1.ContainerStatus) {
		if !leaving && (old.Ready && !c.Ready || started(old) && !started(c)) {
			n.add(Flip, "container %s ready %v started %v became %v %v", c.Name, old.Ready, started(old), c.Ready, started(c))
		}
	})
	return n.found
}

var phases = map[corev1.PodPhase]int{"": 0, corev1.PodPending: 0, corev1.PodRunning: 1, corev1.PodSucceeded: 2, corev1.PodFailed: 2}

func started(c corev1.ContainerStatus) bool { return c.Started != nil && *c.Started }

// begun reports whether a container ran: one that was only made may be made again.
func begun(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
}

// stateOf is a container's state in a word or two.
func stateOf(c corev1.ContainerStatus) string {
	switch s := c.State; {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("ended with %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
	case s.Waiting != nil:
		return "waits: " + s.Waiting.Reason
	}
	return "no state"
}

// containers finds those that were started again or replaced, and hands the
// others, as they were and as they are, to each.
func (n *notes) containers(before, now *corev1.Pod, each func(old, c corev1.ContainerStatus)) {
	was := map[string]corev1.ContainerStatus{}
	for _, c := range statuses(before) {
		was[c.Name] = c
	}
	for _, c := range statuses(now) {
		old, had := was[c.Name]
		delete(was, c.Name)
		switch {
		case c.RestartCount > 0 && (!had || old.RestartCount != c.RestartCount),
			had && begun(old) && old.ContainerID != c.ContainerID:
			n.add(Restart, "container %s was %s (%d, %s) and is %s (%d, %s)", c.Name, old.ContainerID, old.RestartCount, stateOf(old), c.ContainerID, c.RestartCount, stateOf(c))
		case had:
			each(old, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		n.add(Flip, "container %s is missing", name)
	}
}

func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// Node compares a version of the node with the one before it: its conditions,
// what it has, and its taints stay as they are.
func Node(before, now *corev1.Node) []Finding {
	n := &notes{name: "node " + now.Name}
	if before.UID != now.UID {
		n.add(Flip, "another node under the same name")
	}
	n.conditions(nodeConditions(before), nodeConditions(now))
	for what, pair := range map[string][2]any{
		"taints":      {before.Spec.Taints, now.Spec.Taints},
		"capacity":    {before.Status.Capacity, now.Status.Capacity},
		"allocatable": {before.Status.Allocatable, now.Status.Allocatable},
		"addresses":   {before.Status.Addresses, now.Status.Addresses},
	} {
		if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
			n.add(Flip, "%s %v became %v", what, pair[0], pair[1])
		}
	}
	return n.found
}

// condition is what pods' and nodes' conditions have in common.
type condition struct {
	status metav1.ConditionStatus
	since  metav1.Time
}

func podConditions(p *corev1.Pod) map[string]condition {
	all := map[string]condition{}
	for _, c := range p.Status.Conditions {
		all[string(c.Type)] = condition{metav1.ConditionStatus(c.Status), c.LastTransitionTime}
	}
	return all
}

func nodeConditions(n *corev1.Node) map[string]condition {
	all := map[string]condition{}
	for _, c := range n.Status.Conditions {
		all[string(c.Type)] = condition{metav1.ConditionStatus(c.Status), c.LastTransitionTime}
	}
	return all
}

func (n *notes) conditions(was, are map[string]condition) {
	for _, kind := range slices.Sorted(maps.Keys(are)) {
		old, had := was[kind]
		switch now := are[kind]; {
		case !had:
			n.add(Flip, "%s is new, and %s", kind, now.status)
		case old.status != now.status:
			n.add(Flip, "%s %s became %s", kind, old.status, now.status)
		case !old.since.Equal(&now.since):
			n.add(Flip, "%s %s since %s, before that since %s", kind, now.status, now.since, old.since)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(was)) {
		if _, has := are[kind]; !has {
			n.add(Flip, "%s is missing", kind)
		}
	}
}
