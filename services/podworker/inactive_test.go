// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// TestInactivePodsAreNamed: resource hears with the admission of a pod which others do not
// count beside it, though what they hold has not been given back.
func TestInactivePodsAreNamed(t *testing.T) {
	n := newNode(t)
	n.live()
	job := web("job", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	forced, stays := web("forced"), web("stays")
	for _, p := range []*v1.Pod{job, forced, stays} {
		n.desire(p)
	}
	n.until("running", func() bool {
		return n.running("job") && n.running("forced") && n.running("stays") && n.settled(job.UID) && n.settled(forced.UID) && n.settled(stays.UID)
	})
	n.must(fault.Set("podworker.release=pause;podworker.stop=pause"))
	t.Cleanup(func() { n.must(fault.Set("")) })
	n.rt.Exit(n.rt.Container("job", "web").GetId(), 0)
	n.until("its containers have ended", func() bool { return n.state(job.UID).GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_TERMINATED })
	n.forget(forced.UID)
	n.until("ending, and running still", func() bool {
		return n.state(forced.UID).GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_TERMINATING && n.running("forced")
	})
	next := web("next")
	n.desire(next)
	n.until("the next runs", func() bool { return n.running("next") && n.settled(next.UID) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if want := []string{string(forced.UID), string(job.UID)}; !slices.Equal(n.inactive, want) {
		t.Errorf("inactive pods %v, want %v", n.inactive, want)
	}
}
