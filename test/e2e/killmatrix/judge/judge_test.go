package judge_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

func pod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "a", "p", "u"
	p.Status = corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ContainerID: "x", Ready: true}},
	}
	return p
}

func TestSteady(t *testing.T) {
	if found := judge.Steady(pod(), pod()); len(found) > 0 {
		t.Errorf("nothing changed: %v", found)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		kind   judge.Kind
	}{
		"phase":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, judge.Flip},
		"condition":         {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, judge.Flip},
		"missing condition": {func(p *corev1.Pod) { p.Status.Conditions = nil }, judge.Flip},
		"readiness":         {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, judge.Flip},
		"restart":           {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, judge.Restart},
		"container":         {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "y" }, judge.Restart},
		"pod":               {func(p *corev1.Pod) { p.UID = "v" }, judge.Restart},
	} {
		now := pod()
		tt.change(now)
		found := judge.Steady(pod(), now)
		if len(found) != 1 || found[0].Kind != tt.kind || !strings.HasPrefix(found[0].What, "a/p: ") {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestRuntime(t *testing.T) {
	sandbox := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u"}, State: state}
	}
	container := func(name string, state runtimeapi.ContainerState) *runtimeapi.Container {
		return &runtimeapi.Container{State: state, Labels: map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": "u"}}
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
}

func TestTable(t *testing.T) {
	rounds := []judge.Round{
		{Fault: "kill -9", To: "bus", Recovery: 400 * time.Millisecond},
		{Fault: "kill -9", To: "bus", Recovery: 600 * time.Millisecond},
		{Fault: "kill -9", To: "pleg", Findings: []judge.Finding{{judge.Stuck, "x"}, {judge.Flip, "y"}}},
	}
	narrow := regexp.MustCompile(" +").ReplaceAllString(judge.Table(rounds, judge.Kinds()), " ")
	want := "fault to times flips restarts duplicates lost stuck new pod Ready p50 p99 max\n" +
		"kill -9 (all) 3 1 0 0 0 1 0.40 s 0.60 s 0.60 s\n" +
		"kill -9 bus 2 0 0 0 0 0 0.40 s 0.60 s 0.60 s\n" +
		"kill -9 pleg 1 1 0 0 0 1 - - -\n"
	if narrow != want {
		t.Errorf("table\n%s\nwant\n%s", narrow, want)
	}
	narrow = regexp.MustCompile(" +").ReplaceAllString(judge.Table(rounds[2:], []judge.Kind{judge.Flip}), " ")
	if want := "fault to times flips\nkill -9 (all) 1 1\nkill -9 pleg 1 1\n"; narrow != want {
		t.Errorf("table\n%s\nwant\n%s", narrow, want)
	}
	if !judge.Bad(rounds) || judge.Bad(rounds[:2]) {
		t.Error("what is bad")
	}
}
