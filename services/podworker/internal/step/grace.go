// SPDX-License-Identifier: Apache-2.0

package step

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// specGrace is terminationGracePeriodSeconds; 30 s where nothing says so.
func specGrace(p *v1.Pod) time.Duration {
	if p == nil || p.Spec.TerminationGracePeriodSeconds == nil {
		return 30 * time.Second
	}
	return pod.Seconds(*p.Spec.TerminationGracePeriodSeconds)
}

// containerGrace is what a single container of a pod that stays gets.
func containerGrace(pod *v1.Pod) time.Duration { return max(specGrace(pod), minPodGrace) }

// grace is what a pod being terminated gets as things are now.
func (v view) grace() time.Duration {
	if v.f.Termination.Cause == Orphan {
		return minPodGrace
	}
	grace := specGrace(v.pod)
	if v.pod != nil && v.pod.DeletionTimestamp != nil && v.pod.DeletionGracePeriodSeconds != nil {
		grace = pod.Seconds(*v.pod.DeletionGracePeriodSeconds)
	}
	if e := v.in.Resources.Eviction; e != nil { // also for a pod that was ending before
		grace = min(grace, e.Grace)
	}
	if v.in.Shutdown.End {
		grace = min(grace, v.in.Shutdown.Grace)
	}
	return max(grace, minPodGrace)
}
