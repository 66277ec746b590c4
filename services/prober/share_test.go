// SPDX-License-Identifier: Apache-2.0

package prober_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hanging makes a pod with probes that are never answered, each within a day.
func (r *rig) hanging(uid string, probes int) {
	r.Helper()
	var containers []v1.Container
	var running []*runtimeapi.ContainerStatus
	for i := range probes {
		name := fmt.Sprint("c", i)
		probe := r.probe("hang-" + uid)
		probe.TimeoutSeconds = 86400
		containers = append(containers, v1.Container{Name: name, ReadinessProbe: probe})
		running = append(running, &runtimeapi.ContainerStatus{Id: uid + name, Metadata: &runtimeapi.ContainerMetadata{Name: name}})
	}
	r.desire(uid, containers...)
	r.observe(uid, running...)
}

// TestOnePodThatHangs: a pod's probes that are not answered delay none of another pod,
// and those of the same pod that wait are asked when there is an answer.
func TestOnePodThatHangs(t *testing.T) {
	r := newRig(t)
	release := r.app.stuck("hang-greedy")
	defer release()
	r.hanging("greedy", 260)
	r.Eventually("its share is asked", func() bool { return r.app.answering("hang-greedy") == 8 })
	r.want("good", func(c *v1.Container) { c.ReadinessProbe, c.LivenessProbe = r.probe("ready"), r.probe("live") })
	r.runs("good", "g", 0)
	r.becomes("good", readiness, success)
	r.becomes("good", liveness, success)
	if n := r.app.asked("hang-greedy"); n != 8 {
		t.Errorf("%d probes of one pod at once", n)
	}
	release()
	r.Eventually("all are asked", func() bool { return r.app.asked("hang-greedy") == 260 })
}

// TestManyPodsThatHang: as many as take all that may run at once.
func TestManyPodsThatHang(t *testing.T) {
	r := newRig(t)
	const pods = 40
	for i := range pods {
		uid := fmt.Sprint("greedy", i)
		defer r.app.stuck("hang-" + uid)()
		r.hanging(uid, 8)
	}
	r.Eventually("as many as may are asked", func() bool { return r.app.askedInAll() == pods+256 })
	r.want("good", func(c *v1.Container) { c.ReadinessProbe, c.LivenessProbe = r.probe("ready"), r.probe("live") })
	r.runs("good", "g", 0)
	r.becomes("good", readiness, success)
	r.becomes("good", liveness, success)
	if n := r.app.askedInAll(); n != pods+256+2 {
		t.Errorf("%d requests", n)
	}
}

// TestAPodThatHangsAndGoes: what is asked of it ends with it, and what waits is not
// asked. It takes nothing from those that come after it.
func TestAPodThatHangsAndGoes(t *testing.T) {
	r := newRig(t)
	defer r.app.stuck("hang-greedy")()
	r.hanging("greedy", 20)
	r.Eventually("its share is asked", func() bool { return r.app.answering("hang-greedy") == 8 })
	r.pods.Delete(r.Context(), "greedy")
	r.Eventually("the requests end", func() bool { return r.app.answering("hang-greedy") == 0 })
	r.want("good", func(c *v1.Container) { c.ReadinessProbe = r.probe("ready") })
	r.runs("good", "g", 0)
	r.becomes("good", readiness, success)
	if n := r.app.asked("hang-greedy"); n != 8 {
		t.Errorf("%d probes were begun, some after the pod was gone", n)
	}
	if events := r.said(); len(events) > 0 {
		t.Errorf("events: %v", events)
	}
}
