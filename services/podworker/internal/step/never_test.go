// SPDX-License-Identifier: Apache-2.0

package step

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestGraceForEver: people write 2^63-1 seconds for "never". It is long, not negative.
func TestGraceForEver(t *testing.T) {
	const year = 365 * 24 * time.Hour
	never := int64(math.MaxInt64)
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "app", "default", "uid-1"
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "img"}}
	p.Spec.TerminationGracePeriodSeconds, p.Spec.ActiveDeadlineSeconds = &never, &never
	if got := containerGrace(p); got < year {
		t.Errorf("the grace of a container is %s", got)
	}
	if got := probeGrace(&v1.Probe{TerminationGracePeriodSeconds: &never}, p); got < year {
		t.Errorf("the grace of a probe is %s", got)
	}
	w := newWorld(p)
	for range 20 {
		w.stepOnce()
		for key := range w.in.Flights {
			if err := w.end(key, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.refresh()
	}
	if s := w.in.Facts.State; s != Syncing {
		t.Fatalf("%s, for its deadline is not over yet", s)
	}
	w.deleteIn(never)
	w.stepOnce()
	end := w.in.Facts.Termination
	if end == nil || end.Grace < year || end.Deadline.Sub(w.now) < year {
		t.Errorf("ends with %+v", end)
	}
}
