// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Restore is the state made of pods accepted in an earlier life.
func Restore(pods []*Pod) State {
	s := State{Pods: make(map[types.UID]*Pod, len(pods))}
	for _, p := range pods {
		s.Pods[p.Pod.UID] = p
	}
	return s
}

// sorted lists those of the pods that match, by origin, full name and UID.
func sorted(pods map[types.UID]*Pod, match func(*Pod) bool) []*Pod {
	var all []*Pod
	for _, p := range pods {
		if match(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, order)
	return all
}

func order(a, b *Pod) int {
	return cmp.Or(
		cmp.Compare(a.Origin, b.Origin),
		cmp.Compare(pod.FullName(a.Pod), pod.FullName(b.Pod)),
		cmp.Compare(a.Pod.UID, b.Pod.UID),
	)
}

// Diff is what to publish to come from one state to another.
type Diff struct {
	// Removed go first: a pod that takes another's place finds it leaving.
	Removed []types.UID
	// Changed are new and changed pods, by origin and name.
	Changed []*Pod
	// Reported are pods of which only the status at the API server has changed, in
	// nothing that the node decides by.
	Reported []*Pod
}

// Compare returns what differs between the pods of two states; next was made of was where
// it says so (State.Only).
func Compare(was, next State) Diff {
	var d Diff
	var news []*Pod
	if next.Only != nil {
		for _, uid := range next.Only {
			news = append(news, next.Pods[uid])
		}
		slices.SortFunc(news, order)
	} else {
		for uid := range was.Pods {
			if _, ok := next.Pods[uid]; !ok {
				d.Removed = append(d.Removed, uid)
			}
		}
		slices.Sort(d.Removed)
		news = sorted(next.Pods, func(p *Pod) bool { return was.Pods[p.Pod.UID] != p })
	}
	for _, p := range news {
		if had := was.Pods[p.Pod.UID]; had != nil && sameButStatus(had, p) {
			d.Reported = append(d.Reported, p)
		} else {
			d.Changed = append(d.Changed, p)
		}
	}
	return d
}

// sameButStatus reports whether two versions of a pod differ at most in the status that
// the API server has, and in none of it that the node decides by.
func sameButStatus(a, b *Pod) bool {
	return a.Origin == b.Origin && a.Source == b.Source && a.Begun.Equal(b.Begun) &&
		(a.Mirror == nil) == (b.Mirror == nil) &&
		fingerprint(a.Pod) == fingerprint(b.Pod) && fingerprint(a.Mirror) == fingerprint(b.Mirror)
}

// fingerprint is a pod without its resourceVersion and status, but for what the node
// decides by: a pod that is over is not run again, the probes of a pod on the host's
// network go to its hostIP, and resource claims made for the pod are named there.
func fingerprint(p *v1.Pod) string {
	if p == nil {
		return ""
	}
	part := *p
	part.ResourceVersion, part.Status = "", v1.PodStatus{}
	if pod.IsTerminalPhase(p.Status.Phase) {
		part.Status.Phase = p.Status.Phase
	}
	part.Status.ResourceClaimStatuses, part.Status.ExtendedResourceClaimStatus = p.Status.ResourceClaimStatuses, p.Status.ExtendedResourceClaimStatus
	if p.Spec.HostNetwork {
		part.Status.HostIP = p.Status.HostIP
	}
	data, err := part.Marshal()
	if err != nil {
		return err.Error()
	}
	return string(data)
}
