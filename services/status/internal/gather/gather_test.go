// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
}

func running(id string, start int) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: "c", ContainerID: "containerd://" + id,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(start)}},
	}
}

func ended(id string, finish int) v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: "c", ContainerID: "containerd://" + id,
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at(finish)}},
	}
}

func status(phase v1.PodPhase, containers ...v1.ContainerStatus) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, ContainerStatuses: containers}
}

func cri(id string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}
}

const (
	criRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
	criExited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

// TestHold: a part of the node that is away or behind makes no status worse.
func TestHold(t *testing.T) {
	steady := func() Input {
		return Input{
			Desired: &v1.Pod{}, DesiredSynced: true,
			Worker:        &Worker{Pod: &v1.Pod{}, Facts: podstatus.Facts{Lifecycle: podstatus.Syncing}},
			RecordsSynced: true, RecordsComplete: true,
			Record: &Record{Containers: []*runtimeapi.ContainerStatus{cri("a", criRunning)}},
			Last:   status(v1.PodRunning, running("a", 0)),
			Node:   podstatus.Node{RuntimeName: "containerd"}, Now: now,
		}
	}
	tests := []struct {
		name   string
		change func(*Input)
		want   Hold
	}{
		{"everything is there", func(*Input) {}, Go},
		{"podworker does not know the pod", func(in *Input) { in.Worker = nil }, HoldUnknown},
		{"config never answered", func(in *Input) { in.DesiredSynced = false }, HoldDesired},
		{"a pod of the API server that config does not list yet", func(in *Input) { in.Desired, in.Worker.Source = nil, pod.SourceAPI }, HoldUnlisted},
		{"a static pod that config does not list yet", func(in *Input) { in.Desired, in.Worker.Source = nil, pod.SourceFile }, Go},
		{"a pod that the API server does not have any more", func(in *Input) {
			in.Desired, in.Worker.Source, in.DesiredComplete = nil, pod.SourceAPI, true
		}, Go},
		{"pleg never answered", func(in *Input) { in.RecordsSynced = false }, HoldRecords},
		{"runtime not known", func(in *Input) { in.Node.RuntimeName = "" }, HoldRuntime},
		{"orphan without a specification", func(in *Input) { in.Worker.Pod, in.Desired = nil, nil }, HoldUnknown},
		{"pleg restarts and is not complete", func(in *Input) { in.RecordsComplete = false }, Go},
		{"containers gone, podworker silent", func(in *Input) { in.Record = nil }, HoldWorker},
		{"containers gone, podworker answers", func(in *Input) { in.Record, in.WorkerAnswers = nil, true }, Go},
		{"containers gone at the API server too", func(in *Input) {
			in.Record = nil
			in.Last = status(v1.PodRunning, ended("a", 1))
		}, Go},
		{"after a restart: containers gone, known from the API server only", func(in *Input) {
			in.Record, in.Last, in.API = nil, nil, status(v1.PodRunning, running("a", 0))
		}, HoldWorker},
		{"another instance of the container", func(in *Input) {
			in.Record.Containers = []*runtimeapi.ContainerStatus{cri("b", criRunning)}
		}, HoldWorker},
		{"stopped says podworker, the record is older", func(in *Input) {
			in.Worker.Facts.Lifecycle = podstatus.Terminated
		}, HoldStopped},
		{"stopped, and the record says so", func(in *Input) {
			in.Worker.Facts.Lifecycle = podstatus.Terminated
			in.Record.Containers[0] = cri("a", criExited)
		}, Go},
		{"stopped, and removed", func(in *Input) {
			in.Worker.Facts.Lifecycle, in.Record, in.RecordAnswers = podstatus.Released, nil, true
		}, Go},
		{"stopped, and the record is from before the start", func(in *Input) {
			in.Worker.Facts.Lifecycle, in.Record, in.Last = podstatus.Terminated, nil, nil
			in.Worker.Facts.Containers = map[string]podstatus.ContainerFacts{"c": {}}
		}, HoldStopped},
		{"stopped, and the record is from before the restart", func(in *Input) {
			in.Worker.Facts.Lifecycle, in.Record, in.Last = podstatus.Terminated, nil, status(v1.PodRunning, ended("a", 0))
			in.Worker.Facts.Containers = map[string]podstatus.ContainerFacts{"c": {RestartCount: 1}}
		}, HoldStopped},
		{"stopped, and the last status said so", func(in *Input) {
			in.Worker.Facts.Lifecycle, in.Record, in.Last = podstatus.Released, nil, status(v1.PodRunning, ended("a", 1))
			in.Worker.Facts.Containers = map[string]podstatus.ContainerFacts{"c": {}}
		}, Go},
		{"stopped before anything started", func(in *Input) {
			in.Worker.Facts.Lifecycle, in.Record, in.Last = podstatus.Terminated, nil, nil
			in.Worker.Facts.Containers = map[string]podstatus.ContainerFacts{"c": {Unstarted: true}}
		}, Go},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := steady()
			tt.change(&in)
			if _, got := Gather(in); got != tt.want {
				t.Errorf("hold %q, want %q", got, tt.want)
			}
		})
	}
}

func TestObserved(t *testing.T) {
	in := Input{
		DesiredSynced: true, RecordsSynced: true, RecordsComplete: false, Node: podstatus.Node{RuntimeName: "r"},
		Desired: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 2}},
		Worker: &Worker{
			Pod:      &v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: v1.PodSpec{NodeName: "n"}},
			Messages: map[string]string{"dead": "out of luck", "live": "early"},
		},
		Record: &Record{Containers: []*runtimeapi.ContainerStatus{cri("dead", criExited), cri("live", criRunning)}},
	}
	got, hold := Gather(in)
	if hold != Go {
		t.Fatalf("held: %s", hold)
	}
	if m := got.Observed.Containers[0].Message; m != "out of luck" {
		t.Errorf("termination message %q", m)
	}
	if m := got.Observed.Containers[1].Message; m != "" {
		t.Errorf("message of a running container %q", m)
	}
	if in.Record.Containers[0].Message != "" {
		t.Error("the shared record was written to")
	}
	in.Record.Containers[0].Message = "the runtime's"
	if got, _ := Gather(in); got.Observed.Containers[0].Message != "the runtime's: out of luck" {
		t.Errorf("termination message %q", got.Observed.Containers[0].Message)
	}
	if !got.Observed.Complete {
		t.Error("an item of the feed is a whole reading of its pod")
	}
	if got.Pod.Generation != 2 || got.Pod.Spec.NodeName != "n" {
		t.Errorf("pod has generation %d, node %q: want config's metadata, podworker's specification", got.Pod.Generation, got.Pod.Spec.NodeName)
	}
	in.Record.Err = "runtime does not answer"
	if got, _ = Gather(in); got.Observed.Complete {
		t.Error("a record with an error is not a whole reading")
	}
}

// TestTheMessageOfARemovedContainer: podworker has removed a container, and its message with it,
// which the record has still.
func TestTheMessageOfARemovedContainer(t *testing.T) {
	end := ended("dead", 3)
	end.State.Terminated.ContainerID, end.State.Terminated.ExitCode, end.State.Terminated.Message = end.ContainerID, 4, "not yet"
	next := running("live", 5)
	next.LastTerminationState, end.State = end.State, v1.ContainerState{}
	c := cri("dead", criExited)
	c.ExitCode, c.FinishedAt = 4, at(3).UnixNano()
	in := Input{
		DesiredSynced: true, RecordsSynced: true, Node: podstatus.Node{RuntimeName: "containerd"}, Desired: &v1.Pod{},
		Worker: &Worker{Pod: &v1.Pod{}}, Record: &Record{Containers: []*runtimeapi.ContainerStatus{cri("live", criRunning), c}}, Last: status(v1.PodRunning, next),
	}
	got, hold := Gather(in)
	if hold != Go || got.Observed.Containers[1].Message != "not yet" {
		t.Errorf("hold %q, message %q", hold, got.Observed.Containers[1].Message)
	}
	c.FinishedAt = at(9).UnixNano()
	if got, _ := Gather(in); got.Observed.Containers[1].Message != "" {
		t.Errorf("another end has the message %q", got.Observed.Containers[1].Message)
	}
}

func TestMerge(t *testing.T) {
	last := status(v1.PodRunning, running("a", 0))
	last.Conditions = []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue},
		{Type: "example.com/gate", Status: v1.ConditionFalse},
	}
	api := status(v1.PodPending)
	api.NominatedNodeName = "other"
	api.Conditions = []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionFalse},
		{Type: "example.com/gate", Status: v1.ConditionTrue},
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"},
	}
	got := Merge(last, api)
	want := []v1.PodCondition{last.Conditions[0], api.Conditions[1], api.Conditions[2]}
	if len(got.Conditions) != len(want) {
		t.Fatalf("conditions %v, want %v", got.Conditions, want)
	}
	for i := range want {
		if got.Conditions[i] != want[i] {
			t.Errorf("condition %d: %v, want %v", i, got.Conditions[i], want[i])
		}
	}
	if got.Phase != v1.PodRunning || got.NominatedNodeName != "other" {
		t.Errorf("phase %s, nominated node %q", got.Phase, got.NominatedNodeName)
	}
	if Merge(nil, nil) != nil || Merge(nil, api).Phase != v1.PodPending || Merge(last, nil).Phase != v1.PodRunning {
		t.Error("one side missing")
	}
	if len(last.Conditions) != 2 || last.Conditions[1].Status != v1.ConditionFalse {
		t.Error("the last status was written to")
	}
}

func TestLater(t *testing.T) {
	restarted := func(n int32, s v1.ContainerStatus) v1.ContainerStatus { s.RestartCount = n; return s }
	crashed := restarted(1, v1.ContainerStatus{LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at(9)}}})
	conditioned := func(s *v1.PodStatus) *v1.PodStatus {
		s.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}, {Type: v1.PodReady, LastTransitionTime: at(5)}}
		return s
	}
	tests := []struct {
		name string
		a, b *v1.PodStatus
		want bool
	}{
		{"terminal beats running", status(v1.PodFailed), status(v1.PodRunning, running("a", 5)), true},
		{"running does not beat terminal", status(v1.PodRunning, running("a", 5)), status(v1.PodFailed), false},
		{"more restarts", status(v1.PodRunning, restarted(2, running("b", 1))), status(v1.PodRunning, restarted(1, running("a", 5))), true},
		{"later start", status(v1.PodRunning, running("a", 5)), status(v1.PodRunning, running("a", 4)), true},
		{"the same", status(v1.PodRunning, running("a", 5)), status(v1.PodRunning, running("a", 5)), false},
		{"nothing yet", status(v1.PodPending), status(v1.PodRunning, running("a", 0)), false},
		{"a start of the same second", status(v1.PodRunning, running("a", 5)), status(v1.PodPending, restarted(0, v1.ContainerStatus{})), true},
		{"runs, of the same second", conditioned(status(v1.PodRunning)), conditioned(status(v1.PodPending)), true},
		{"pending, of the same second", conditioned(status(v1.PodPending)), conditioned(status(v1.PodRunning)), false},
		{"last end counts", status(v1.PodRunning, restarted(1, running("a", 5))), status(v1.PodRunning, crashed), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Later(tt.a, tt.b); got != tt.want {
				t.Errorf("Later = %v, want %v", got, tt.want)
			}
		})
	}
}
