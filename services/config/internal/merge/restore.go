package merge

import (
	"cmp"
	"slices"

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
	slices.SortFunc(all, func(a, b *Pod) int {
		return cmp.Or(
			cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(pod.FullName(a.Pod), pod.FullName(b.Pod)),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	return all
}

// Diff is what to publish to come from one state to another.
type Diff struct {
	// Removed go first: a pod that takes another's place finds it leaving.
	Removed []types.UID
	// Changed are new and changed pods, by origin and name.
	Changed []*Pod
}

// Compare tells what differs between the pods of two states.
func Compare(was, next State) Diff {
	var d Diff
	for uid := range was.Pods {
		if _, ok := next.Pods[uid]; !ok {
			d.Removed = append(d.Removed, uid)
		}
	}
	slices.Sort(d.Removed)
	d.Changed = sorted(next.Pods, func(p *Pod) bool { return was.Pods[p.Pod.UID] != p })
	return d
}
