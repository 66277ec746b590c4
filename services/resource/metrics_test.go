// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"math"
	"testing"

	"github.com/sextant-node/sextant/test/measure"
)

// TestCgroupMetrics: each cgroup is made once, changed as often as it is, and
// removed once; a service that starts again finds them and changes them.
func TestCgroupMetrics(t *testing.T) {
	const durations = "kubelet_cgroup_manager_duration_seconds"
	count := func(r *rig, operation string) float64 {
		n := measure.Value(t, r.kit.Metrics, durations+`{operation_type="`+operation+`"}`)
		if math.IsNaN(n) {
			return 0
		}
		return n
	}
	r := newRig(t, nil)
	r.settle()
	if version := measure.Value(t, r.kit.Metrics, "kubelet_cgroup_version"); version != 1 && version != 2 {
		t.Errorf("cgroup version %v", version)
	}
	r.Eventually("the tree", func() bool { return count(r, "create") == 4 }) // root, kubepods, two classes
	if count(r, "destroy") != 0 {
		t.Error("something was removed")
	}
	updates := count(r, "update")
	r.admit(burstable("a", "1"), false)
	if made, changed := count(r, "create"), count(r, "update"); made != 5 || changed != updates+1 {
		t.Errorf("a pod: %v made, %v changed, want 5 and %v", made, changed, updates+1)
	}
	r.admit(burstable("a", "1"), false)
	if made := count(r, "create"); made != 5 {
		t.Errorf("the same pod again: %v made", made)
	}
	r.stop()
	r.start(nil)
	r.Eventually("the pod's cgroup is made sure of", func() bool { return count(r, "update") >= 5 })
	if made := count(r, "create"); made != 0 {
		t.Errorf("after a restart %v were made", made)
	}
	r.release("a")
	r.Eventually("removed", func() bool { return count(r, "destroy") == 1 })
}

func TestRejectionMetrics(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	r.admit(burstable("cpu", "40"), false)
	labels := burstable("labels", "1")
	labels.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	r.admit(labels, false)
	measure.Expect(t, r.kit.Metrics, map[string]float64{
		`kubelet_admission_rejections_total{reason="OutOfcpu"}`: 1,
		`kubelet_admission_rejections_total{reason="Other"}`:    1,
	})
}
