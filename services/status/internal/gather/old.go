// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// Merge is the status a rendering starts from and the one to compare with the API
// server's: what this node said last, with what others have written there since.
// Either may be nil.
func Merge(last, api *v1.PodStatus) *v1.PodStatus {
	switch {
	case last == nil && api == nil:
		return nil
	case last == nil:
		return api.DeepCopy()
	case api == nil:
		return last.DeepCopy()
	}
	out := last.DeepCopy()
	out.NominatedNodeName = api.NominatedNodeName
	out.ResourceClaimStatuses = api.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	kept := out.Conditions[:0]
	shared := false
	for _, c := range out.Conditions {
		if podstatus.OwnedByNode(c.Type) || c.Type == v1.DisruptionTarget {
			kept = append(kept, c)
			shared = shared || c.Type == v1.DisruptionTarget
		}
	}
	out.Conditions = kept
	for _, c := range api.Conditions {
		if !podstatus.OwnedByNode(c.Type) && (c.Type != v1.DisruptionTarget || !shared) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// Later reports whether a describes a later moment of a pod than b: it is terminal
// and b is not, counts more restarts, or mentions a later time; of the same second, it is
// further on. Times of conditions others write do not count. It judges a journaled status
// against the API server's after a start: was another node agent at work in between, or
// was the journal behind what had been written?
func Later(a, b *v1.PodStatus) bool {
	if at, bt := pod.IsTerminalPhase(a.Phase), pod.IsTerminalPhase(b.Phase); at != bt {
		return at
	}
	if ar, br := restarts(a), restarts(b); ar != br {
		return ar > br
	}
	if at, bt := latest(a), latest(b); !at.Equal(bt) {
		return at.After(bt)
	}
	return slices.Compare(progress(a), progress(b)) > 0
}

// progress is how far a pod of no terminal phase is: whether it runs, how many of its
// containers have been made, and how many of them have ended.
func progress(s *v1.PodStatus) []int {
	p := make([]int, 3)
	if s.Phase == v1.PodRunning {
		p[0] = 1
	}
	for _, list := range statuses(s) {
		for i := range list {
			if list[i].ContainerID != "" {
				p[1]++
			}
			if list[i].State.Terminated != nil {
				p[2]++
			}
		}
	}
	return p
}

func restarts(s *v1.PodStatus) (n int32) {
	for _, list := range statuses(s) {
		for i := range list {
			n += list[i].RestartCount
		}
	}
	return n
}

func statuses(s *v1.PodStatus) [][]v1.ContainerStatus {
	return [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses}
}

// latest is the latest time a status mentions, in whole seconds.
func latest(s *v1.PodStatus) (t time.Time) {
	see := func(m metav1.Time) {
		if at := m.Truncate(time.Second); at.After(t) {
			t = at
		}
	}
	for _, c := range s.Conditions {
		if podstatus.OwnedByNode(c.Type) {
			see(c.LastTransitionTime)
		}
	}
	for _, list := range statuses(s) {
		for i := range list {
			if r := list[i].State.Running; r != nil {
				see(r.StartedAt)
			}
			for _, e := range []*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if e != nil {
					see(e.FinishedAt)
				}
			}
		}
	}
	return t
}

// lost reports whether a container that the old status knows as running is missing
// from what is observed.
func lost(old *v1.PodStatus, o podstatus.Observed) bool {
	if old == nil {
		return false
	}
	have := make(map[string]bool, len(o.Containers))
	for _, c := range o.Containers {
		have[c.GetId()] = true
	}
	for _, list := range statuses(old) {
		for i := range list {
			_, id, _ := strings.Cut(list[i].ContainerID, "://")
			if list[i].State.Running != nil && !have[id] {
				return true
			}
		}
	}
	return false
}

// over reports whether a container that the old status knows as running has ended,
// for good if its policy has the last word.
func over(in podstatus.Input) bool {
	if in.Old == nil {
		return false
	}
	codes := map[string]int32{}
	for _, c := range in.Observed.Containers {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			codes[c.GetId()] = c.GetExitCode()
		}
	}
	for i := range in.Old.ContainerStatuses {
		s := &in.Old.ContainerStatuses[i]
		_, id, _ := strings.Cut(s.ContainerID, "://")
		code, exited := codes[id]
		if s.State.Running == nil || !exited {
			continue
		}
		if c, _ := pod.FindContainer(in.Pod, s.Name); c != nil && !restart.Restartable(in.Pod, c, restart.Exit{Code: code}) {
			return true
		}
	}
	return false
}

// unseen reports whether podworker made a container of which neither the record nor
// the former status says how it ended.
func unseen(facts podstatus.Facts, old *v1.PodStatus, record *Record) bool {
	told := map[string]int32{} // by container, the newest end and one
	if record != nil {
		for _, c := range record.Containers {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				name := c.GetMetadata().GetName()
				told[name] = max(told[name], int32(c.GetMetadata().GetAttempt())+1)
			}
		}
	}
	if old != nil {
		for _, list := range statuses(old) {
			for i := range list {
				if list[i].State.Terminated != nil {
					told[list[i].Name] = max(told[list[i].Name], list[i].RestartCount+1)
				}
			}
		}
	}
	for name, f := range facts.Containers {
		if !f.Unstarted && told[name] < f.RestartCount+1 {
			return true
		}
	}
	return false
}
