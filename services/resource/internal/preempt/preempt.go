// SPDX-License-Identifier: Apache-2.0

// Package preempt chooses the pods that make room for a critical one, as the kubelet
// does: few, of the lowest QoS class, and close to what is missing. It is pure.
package preempt

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
)

// The reason and message of verdicts, in the kubelet's words.
const (
	Reason  = "Preempting"
	Message = "Preempted in order to admit critical pod"
)

// Victims are the pods of running that make room for p where short is missing, in the
// order in which they are ended: BestEffort, Burstable, Guaranteed. The error, with the
// kubelet's text, is that all pods that may be preempted hold too little.
func Victims(p *v1.Pod, running []*v1.Pod, short []admit.Shortage) ([]*v1.Pod, error) {
	class := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, other := range running {
		if preemptable(p, other) {
			all = append(all, other)
			class[pod.QOS(other)] = append(class[pod.QOS(other)], other)
		}
	}
	if rest := less(short, all); len(rest) > 0 {
		return nil, fmt.Errorf("no set of running pods found to reclaim resources: %s", text(rest))
	}
	best, burstable, guaranteed := class[v1.PodQOSBestEffort], class[v1.PodQOSBurstable], class[v1.PodQOSGuaranteed]
	// Of a class, only what is missing when all of the classes below it are gone.
	guaranteed = closest(guaranteed, less(short, best, burstable))
	burstable = closest(burstable, less(short, best, guaranteed))
	best = closest(best, less(short, burstable, guaranteed))
	return slices.Concat(best, burstable, guaranteed), nil
}

// preemptable: pods that are not critical make room for those that are, and others for
// those of higher priority.
func preemptable(p, other *v1.Pod) bool {
	if pod.IsCritical(p) && !pod.IsCritical(other) {
		return true
	}
	return p.Spec.Priority != nil && other.Spec.Priority != nil && *p.Spec.Priority > *other.Spec.Priority
}

// closest takes from pods, one by one, the one that leaves least missing, until nothing
// is.
func closest(pods []*v1.Pod, short []admit.Shortage) []*v1.Pod {
	var taken []*v1.Pod
	for left := slices.Clone(pods); len(short) > 0 && len(left) > 0; {
		best := 0
		for i := range left {
			if a, b := distance(left[i], short), distance(left[best], short); a < b || a == b && smaller(left[i], left[best]) {
				best = i
			}
		}
		short = less(short, left[best:best+1])
		taken = append(taken, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return taken
}

// distance is the sum of the squares of the parts that are missing still.
func distance(p *v1.Pod, short []admit.Shortage) float64 {
	sum := 0.0
	for _, s := range short {
		if left := s.Amount - admit.Request(p, s.Name); left > 0 {
			part := float64(left) / float64(s.Amount)
			sum += part * part
		}
	}
	return sum
}

// smaller reports whether a requests less memory than b, or as much and less CPU.
func smaller(a, b *v1.Pod) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if m, n := admit.Request(a, name), admit.Request(b, name); m != n {
			return m < n
		}
	}
	return false
}

// less is what of short is missing without some pods.
func less(short []admit.Shortage, gone ...[]*v1.Pod) []admit.Shortage {
	var rest []admit.Shortage
	for _, s := range short {
		for _, p := range slices.Concat(gone...) {
			s.Amount -= admit.Request(p, s.Name)
		}
		if s.Amount > 0 {
			rest = append(rest, s)
		}
	}
	return rest
}

func text(short []admit.Shortage) string {
	var b strings.Builder
	for _, s := range short {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", s.Name, s.Amount)
	}
	return "[" + b.String() + "]"
}
