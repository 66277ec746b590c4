// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

// sized is a pod of a generation whose container asks for so much CPU.
func sized(generation int64, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}},
		}}},
	}
}

// TestGeneration: a generation that asks for other resources is said to be observed once the
// node has judged them (KEP-5067), and every other one at once.
func TestGeneration(t *testing.T) {
	observed := func(generation int64) *v1.PodStatus {
		s := status(v1.PodRunning)
		s.ObservedGeneration = generation
		return s
	}
	resize := func(state podstatus.ResizeState, generation int64) []podstatus.Resize {
		return []podstatus.Resize{{State: state, ObservedGeneration: generation}}
	}
	for _, tt := range []struct {
		name    string
		desired *v1.Pod
		worker  *v1.Pod
		change  func(*Input)
		want    int64
	}{
		{"podworker has not heard of it", sized(2, "2"), sized(1, "1"), func(*Input) {}, 1},
		{"podworker has heard of it and nobody has judged it", sized(2, "2"), sized(2, "1"), func(*Input) {}, 1},
		{"a former wish waits", sized(3, "3"), sized(3, "1"), func(in *Input) {
			in.Last, in.Worker.Facts.Resizes = observed(2), resize(podstatus.ResizeDeferred, 2)
		}, 2},
		{"a former one is being carried out", sized(3, "3"), sized(3, "2"), func(in *Input) {
			in.Last, in.Worker.Facts.Resizes = observed(2), resize(podstatus.ResizeInProgress, 2)
		}, 2},
		{"before the first status", sized(2, "2"), sized(2, "1"), func(in *Input) { in.Last = nil }, 0},
		{"after a restart", sized(2, "2"), sized(2, "1"), func(in *Input) { in.Last, in.API = nil, observed(1) }, 1},
		{"deferred", sized(2, "2"), sized(2, "1"), func(in *Input) {
			in.Worker.Facts.Resizes = resize(podstatus.ResizeDeferred, 2)
		}, 2},
		{"infeasible", sized(2, "2"), sized(2, "1"), func(in *Input) {
			in.Worker.Facts.Resizes = resize(podstatus.ResizeInfeasible, 2)
		}, 2},
		{"granted", sized(2, "2"), sized(2, "2"), func(in *Input) {
			in.Worker.Facts.Resizes = resize(podstatus.ResizeInProgress, 2)
		}, 2},
		{"done", sized(2, "2"), sized(2, "2"), func(*Input) {}, 2},
		{"written before already", sized(2, "2"), sized(2, "1"), func(in *Input) { in.Last = observed(2) }, 2},
		{"no resize", sized(2, "1"), sized(1, "1"), func(*Input) {}, 2},
		{"the pod ends", sized(2, "2"), sized(2, "1"), func(in *Input) {
			in.Worker.Facts.Lifecycle = podstatus.Terminating
		}, 2},
		{"an orphan", sized(2, "2"), nil, func(*Input) {}, 2},
		{"config does not have it any more", nil, sized(2, "1"), func(in *Input) { in.DesiredComplete = true }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{
				Desired: tt.desired, DesiredSynced: true, RecordsSynced: true, RecordsComplete: true, Last: observed(1),
				Worker: &Worker{Pod: tt.worker, Facts: podstatus.Facts{Lifecycle: podstatus.Syncing}},
				Node:   podstatus.Node{RuntimeName: "containerd"}, Now: now, WorkerAnswers: true,
			}
			tt.change(&in)
			got, hold := Gather(in)
			if hold != Go {
				t.Fatalf("held: %s", hold)
			}
			if got.Pod.Generation != tt.want {
				t.Errorf("generation %d, want %d", got.Pod.Generation, tt.want)
			}
			rendered := podstatus.Render(got)
			if rendered.ObservedGeneration != tt.want {
				t.Errorf("observedGeneration %d, want %d", rendered.ObservedGeneration, tt.want)
			}
			for _, c := range rendered.Conditions {
				if c.ObservedGeneration > tt.want {
					t.Errorf("condition %s of generation %d, want %d", c.Type, c.ObservedGeneration, tt.want)
				}
			}
		})
	}
}
