// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// noon is when the tests take place; ago and soon are around it.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-d)) }

// syncing is a pod that is taken up, with what it waits for.
func syncing(wait *podworkerv1.Wait, waits ...*podworkerv1.ContainerWait) *podworkerv1.PodState {
	return &podworkerv1.PodState{
		Uid: "u", Namespace: "ns", Name: "web", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_SYNCING, Wait: wait, Waits: waits,
	}
}

func reported(t *testing.T, ready bool, containers ...v1.ContainerStatus) *statusv1.PodReport {
	t.Helper()
	status := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: containers}
	if ready {
		status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	data, err := status.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return &statusv1.PodReport{Uid: "u", Namespace: "ns", Name: "web", Status: data, Reported: true}
}

func running(started bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "app", Started: &started, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}
}

func TestExplain(t *testing.T) {
	for name, tc := range map[string]struct {
		state    *podworkerv1.PodState
		report   *statusv1.PodReport
		record   *plegv1.PodRecord
		verdicts []*proberv1.Verdict
		volumes  []*volumev1.Volume
		pulls    []*podworkerv1.Pull
		health   []*resourcev1.DeviceHealth
		away     map[house.Service]string
		want     []string // "owner|step|container|last error|next retry", in order
	}{
		"nothing": {state: syncing(nil), report: reported(t, true)},
		"a volume": {
			state: syncing(&podworkerv1.Wait{Owner: "volume", Step: "mount", Message: "volume conf: x"}, &podworkerv1.ContainerWait{Container: "app", Reason: "ContainerCreating"}),
			volumes: []*volumev1.Volume{
				{Name: "ok", State: volumev1.VolumeState_VOLUME_STATE_MOUNTED},
				{Name: "conf", Plugin: "kubernetes.io/configmap", State: volumev1.VolumeState_VOLUME_STATE_PENDING, Step: "read ConfigMap ns/conf", Error: "not found", RetryAt: ago(-time.Second)},
			},
			want: []string{"volume|read ConfigMap ns/conf||not found|12:00:01"},
		},
		"a pull that fails": {
			state: syncing(&podworkerv1.Wait{Owner: "runtime", Step: "pull", Message: "no such image", RetryAt: ago(-time.Minute)},
				&podworkerv1.ContainerWait{Container: "app", Reason: "ImagePullBackOff", Message: "Back-off pulling image", LastError: "ErrImagePull: no such image"}),
			want: []string{"runtime|pull|app|ErrImagePull: no such image|12:01:00"},
		},
		"a crash loop": {
			state: syncing(&podworkerv1.Wait{Owner: "runtime", Step: "back-off", Message: "container app is held back", RetryAt: ago(-10 * time.Second)},
				&podworkerv1.ContainerWait{Container: "app", Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container"}),
			report: reported(t, false, v1.ContainerStatus{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}),
			want:   []string{"runtime|back-off|app|back-off 10s restarting failed container|12:00:10"},
		},
		"a probe": {
			state: syncing(nil), report: reported(t, false, running(true)),
			verdicts: []*proberv1.Verdict{{Container: "app", Kind: proberv1.ProbeKind_PROBE_KIND_READINESS, Result: proberv1.Result_RESULT_FAILURE, Message: "statuscode: 500", Since: ago(time.Minute)}},
			want:     []string{"container|readiness probe|app|statuscode: 500|"},
		},
		"a probe that has not decided": {state: syncing(nil), report: reported(t, false, running(false)), want: []string{"prober|startup probe|app||"}},
		"a runtime that does not answer": {
			state: syncing(&podworkerv1.Wait{Owner: "runtime", Step: "read", Message: "x"}), record: &plegv1.PodRecord{Uid: "u", Error: "deadline exceeded", ErrorSince: ago(time.Hour)},
			want: []string{"runtime|read||deadline exceeded|", "runtime|read|||"},
		},
		"an API server that is not told": {
			state: syncing(nil), report: func() *statusv1.PodReport { r := reported(t, true); r.Error = "connection refused"; return r }(),
			want: []string{"status|report||connection refused|"},
		},
		"a device plugin that has ended": {
			state: syncing(nil), report: reported(t, true),
			health: []*resourcev1.DeviceHealth{
				{Container: "app", Resource: "example.com/gpu", Id: "a", Health: "Unknown", Message: "the device plugin is not registered"},
				{Container: "app", Resource: "example.com/nic", Id: "b", Health: "Healthy"},
			},
			want: []string{"device plugin|health|app|the device plugin is not registered|"},
		},
		"podworker is away":    {report: reported(t, true), away: map[house.Service]string{house.PodWorker: "connection refused"}, want: []string{"podworker|answer||connection refused|"}},
		"refused at admission": {state: &podworkerv1.PodState{Uid: "u", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_REJECTED, Reason: "OutOfcpu", Message: "no room", Verdict: &podworkerv1.Verdict{Kind: "Rejected", Time: ago(0)}}, want: []string{"node|rejected|||"}},
		"being stopped": {
			state: &podworkerv1.PodState{Uid: "u", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_TERMINATING, TerminatingAt: ago(0), GraceSeconds: 30},
			want:  []string{"container|stop|||12:00:30"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &known{
				states: map[string]*podworkerv1.PodState{}, reports: map[string]*statusv1.PodReport{}, records: map[string]*plegv1.PodRecord{}, away: tc.away,
				verdicts: map[string]*proberv1.PodVerdicts{"u": {Verdicts: tc.verdicts}}, devices: map[string]*resourcev1.PodAllocation{"u": {DeviceHealth: tc.health}}, volumes: map[string]*volumev1.PodVolumes{"u": {Volumes: tc.volumes}},
				pulls: map[string]*podworkerv1.PodPulls{"u": {Pulls: tc.pulls}},
			}
			if tc.state != nil {
				k.states["u"] = tc.state
			}
			if tc.report != nil {
				k.reports["u"] = tc.report
			}
			if tc.record != nil {
				k.records["u"] = tc.record
			}
			a := k.explain("u")
			var got []string
			for _, c := range a.Causes {
				next := ""
				if !c.NextRetry.IsZero() {
					next = c.NextRetry.UTC().Format(time.TimeOnly)
				}
				got = append(got, strings.Join([]string{c.Owner, c.Step, c.Container, c.LastError, next}, "|"))
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestPodsNobodyTookUp(t *testing.T) {
	k := &known{desired: map[string]*v1.Pod{"u": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}}, away: map[house.Service]string{}}
	uids, err := k.find("web")
	if err != nil || len(uids) != 1 {
		t.Fatal(uids, err)
	}
	if a := k.explain("u"); a.Namespace != "ns" || a.Name != "web" || len(a.Causes) != 1 || a.Causes[0].Step != "take up" {
		t.Errorf("said %+v", a)
	}
	k.away[house.Config] = "connection refused"
	if _, err := k.find("other"); err == nil || !strings.Contains(err.Error(), "config does not answer: connection refused") {
		t.Errorf("of a pod that is not found: %v", err)
	}
}

func TestDescribePulls(t *testing.T) {
	grown := int64(3 << 19)
	got := describePulls(&podworkerv1.PodPulls{Pulls: []*podworkerv1.Pull{
		{Image: "example/big", Since: ago(12 * time.Second), StoreGrownBytes: &grown},
		{Image: "example/next", Since: ago(5 * time.Second), Queued: true},
	}}, noon)
	if want := "image example/big is being pulled for 12s (image store +1.5 MiB); image example/next waits for its turn to be pulled for 5s"; got != want {
		t.Errorf("said %q", got)
	}
	if got := describePulls(nil, noon); got != "" {
		t.Errorf("of nothing %q", got)
	}
}

func TestPrintAnswers(t *testing.T) {
	answers := []answer{
		{Namespace: "ns", Name: "web", UID: "u", Causes: []cause{{Owner: "volume", Step: "mount", Since: noon.Add(-time.Minute), Message: "volume conf", LastError: "not found", NextRetry: noon.Add(4 * time.Second)}}},
		{Namespace: "ns", Name: "fine", UID: "v", Causes: []cause{}},
	}
	var table, text strings.Builder
	if err := printAnswers(&table, &output{"table"}, answers, noon); err != nil {
		t.Fatal(err)
	}
	want := `POD      OWNER   STEP               SINCE  NEXT TRY  WHY
ns/web   volume  mount              60s    in 4s     volume conf; last error: not found
ns/fine  -       waits for nothing  -      -
`
	if table.String() != want {
		t.Errorf("printed\n%s", table.String())
	}
	if err := printAnswers(&text, &output{"json"}, answers, noon); err != nil {
		t.Fatal(err)
	}
	var back []answer
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil || len(back) != 2 || back[0].Causes[0].LastError != "not found" {
		t.Errorf("JSON %s, %v", text.String(), err)
	}
}
