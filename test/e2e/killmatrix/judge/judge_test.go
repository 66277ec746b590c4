// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

var then = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pod() *corev1.Pod {
	p := &corev1.Pod{}
	yes := true
	p.Namespace, p.Name, p.UID = "a", "p", "u"
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		PodIP:      "10.0.0.1",
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: then}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", ContainerID: "x", Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}},
		}},
	}
	return p
}

// later is a second after then.
func later() metav1.Time { return metav1.NewTime(then.Add(time.Second)) }

func expect(t *testing.T, name, prefix string, found []judge.Finding, kind judge.Kind) {
	t.Helper()
	if kind == "" && len(found) > 0 || kind != "" && (len(found) != 1 || found[0].Kind != kind || !strings.HasPrefix(found[0].What, prefix)) {
		t.Errorf("%s: %v, want %q", name, found, kind)
	}
}

func TestSteady(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		kind   judge.Kind
	}{
		"nothing":           {func(*corev1.Pod) {}, ""},
		"phase":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, judge.Flip},
		"condition":         {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, judge.Flip},
		"there and back":    {func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = later() }, judge.Flip},
		"missing condition": {func(p *corev1.Pod) { p.Status.Conditions = nil }, judge.Flip},
		"new condition": {func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget})
		}, judge.Flip},
		"readiness":         {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, judge.Flip},
		"startup":           {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Started = new(bool) }, judge.Flip},
		"address":           {func(p *corev1.Pod) { p.Status.PodIP = "" }, judge.Flip},
		"restart":           {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, judge.Restart},
		"container":         {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "y" }, judge.Restart},
		"missing container": {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, judge.Flip},
		"pod":               {func(p *corev1.Pod) { p.UID = "v" }, judge.Restart},
		"deletion":          {func(p *corev1.Pod) { p.DeletionTimestamp = &then }, judge.Restart},
	} {
		now := pod()
		tt.change(now)
		expect(t, name, "a/p: ", judge.Steady(pod(), now), tt.kind)
	}
}

func TestProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		before, now func(*corev1.Pod)
		kind        judge.Kind
	}{
		"nothing": {func(*corev1.Pod) {}, func(*corev1.Pod) {}, ""},
		"starts": {func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}
		}, func(*corev1.Pod) {}, ""},
		"ends": {func(*corev1.Pod) {}, func(p *corev1.Pod) {
			p.DeletionTimestamp = &then
			p.Status.Phase = corev1.PodSucceeded
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses[0].Ready = false
			p.Status.ContainerStatuses[0].Started = new(bool)
		}, ""},
		"falls over":        {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, judge.Flip},
		"begins again":      {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, judge.Flip},
		"not Ready again":   {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, judge.Flip},
		"not started again": {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Started = new(bool) }, judge.Flip},
		"restart":           {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }, judge.Restart},
		"restart as it ends": {func(p *corev1.Pod) { p.DeletionTimestamp = &then }, func(p *corev1.Pod) {
			p.DeletionTimestamp = &then
			p.Status.ContainerStatuses[0].ContainerID = "y"
		}, judge.Restart},
		"made again before it ran": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].ContainerID = "y"
		}, ""},
		"restarted before it was seen": {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].RestartCount = 1
		}, judge.Restart},
	} {
		before, now := pod(), pod()
		tt.before(before)
		tt.now(now)
		expect(t, name, "a/p: ", judge.Progress(before, now), tt.kind)
	}
}

func TestNode(t *testing.T) {
	node := func() *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.UID = "n", "u"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: then}}
		return n
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		kind   judge.Kind
	}{
		"heartbeat":      {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = later() }, ""},
		"not ready":      {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, judge.Flip},
		"there and back": {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = later() }, judge.Flip},
		"taint":          {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, judge.Flip},
		"another":        {func(n *corev1.Node) { n.UID = "v" }, judge.Flip},
	} {
		now := node()
		tt.change(now)
		expect(t, name, "node n: ", judge.Node(node(), now), tt.kind)
	}
}

func TestRuntime(t *testing.T) {
	sandbox := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u"}, State: state}
	}
	container := func(name string, state runtimeapi.ContainerState) *runtimeapi.Container {
		return &runtimeapi.Container{State: state, Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: map[string]string{"io.kubernetes.pod.uid": "u"}}
	}
	ready, off := runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	runs, exited := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	fine := []*runtimeapi.Container{container("a", runs), container("a", exited), container("b", runs)}
	if found := judge.Runtime([]*runtimeapi.PodSandbox{sandbox(ready), sandbox(off)}, fine); len(found) > 0 {
		t.Errorf("nothing is twice: %v", found)
	}
	found := judge.Runtime([]*runtimeapi.PodSandbox{sandbox(ready), sandbox(ready)}, append(fine, container("b", runs)))
	if len(found) != 2 || found[0].Kind != judge.Duplicate || found[1].Kind != judge.Duplicate {
		t.Errorf("two are twice: %v", found)
	}
	second := container("a", exited)
	second.Metadata.Attempt = 1
	expect(t, "second attempt", "container a", judge.Runtime(nil, []*runtimeapi.Container{second}), judge.Restart)
}

func TestLeftovers(t *testing.T) {
	sandbox := []*runtimeapi.PodSandbox{{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}}
	now := time.Now()
	for what, gone := range map[string]map[string]time.Time{"there": {}, "just gone": {"p": now.Add(-time.Minute)}, "another": {"q": {}}} {
		if found := judge.Leftovers(sandbox, gone, now); len(found) > 0 {
			t.Errorf("%s: %v", what, found)
		}
	}
	found := judge.Leftovers(sandbox, map[string]time.Time{"p": now.Add(-10 * time.Minute)}, now)
	expect(t, "left", "the sandbox of pod p is there 10m0s", found, judge.Lost)
}

func TestCensus(t *testing.T) {
	event := func(id string, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: id, ContainerEventType: kind,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u"}},
			ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}},
		}
	}
	started, stopped := runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	var c judge.Census
	for _, e := range []*runtimeapi.ContainerEventResponse{event("s", started), event("x", started), event("x", started), event("y", stopped)} {
		expect(t, "first", "", c.Saw(e), "")
	}
	expect(t, "second", "the container c of p u was started 2 times", c.Saw(event("y", started)), judge.Duplicate)
}

func TestTable(t *testing.T) {
	rounds := []judge.Round{
		{Fault: "kill -9", To: "bus", Recovery: 400 * time.Millisecond, Calm: 300 * time.Millisecond},
		{Fault: "kill -9", To: "bus", Recovery: 600 * time.Millisecond},
		{Fault: "kill -9", To: "prober", Probe: 2 * time.Second, Findings: []judge.Finding{{Kind: judge.Stuck, What: "x"}, {Kind: judge.Flip, What: "y"}}},
		{Fault: "the end", To: "churn", Findings: []judge.Finding{{Kind: judge.Lost, What: "z"}}},
	}
	narrow := regexp.MustCompile(" +").ReplaceAllString(judge.Table(rounds, judge.Kinds()), " ")
	want := "fault to times flips restarts duplicates lost stuck late new pod Ready p50 p99 max undisturbed p50 p99 first probe max\n" +
		"kill -9 (all) 3 1 0 0 0 1 0 0.40 s 0.60 s 0.60 s 0.30 s 0.30 s 2.00 s\n" +
		"kill -9 bus 2 0 0 0 0 0 0 0.40 s 0.60 s 0.60 s 0.30 s 0.30 s -\n" +
		"kill -9 prober 1 1 0 0 0 1 0 - - - - - 2.00 s\n" +
		"the end churn 1 0 0 0 1 0 0 - - - - - -\n"
	if narrow != want {
		t.Errorf("table\n%s\nwant\n%s", narrow, want)
	}
	narrow = regexp.MustCompile(" +").ReplaceAllString(judge.Table(rounds[2:3], []judge.Kind{judge.Flip}), " ")
	if want := "fault to times flips\nkill -9 prober 1 1\n"; narrow != want {
		t.Errorf("table\n%s\nwant\n%s", narrow, want)
	}
}
