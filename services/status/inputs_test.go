// SPDX-License-Identifier: Apache-2.0

package status

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/feedtest"
)

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// desiredPods is what config serves, and what status knows of it.
func desiredPods(t *testing.T) (*feed.Owner[*configv1.DesiredPod], *inputs) {
	t.Helper()
	owner, pods := reads(t.Context(), &way{Local: feedtest.Local{}, hangs: map[string]bool{}, pulls: map[string]int{}}, house.ConfigPods, decodeDesired)
	return owner, &inputs{pods: pods}
}

// TestOneSpecification: what podworker runs is the pod that config serves where both have the
// same specification, whatever their metadata and status, and is podworker's own where not.
func TestOneSpecification(t *testing.T) {
	owner, in := desiredPods(t)
	packed := func(image string, change func(*v1.Pod)) []byte {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}}}
		if change != nil {
			change(p)
		}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	serve := func(data []byte) {
		t.Helper()
		if _, err := owner.Set(t.Context(), "u1", &configv1.DesiredPod{Pod: data, Source: "file"}); err != nil {
			t.Fatal(err)
		}
		if err := in.pods.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(data []byte) *v1.Pod {
		t.Helper()
		w, err := in.decodeWorker("u1", &podworkerv1.PodState{Uid: "u1", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_SYNCING, Pod: data})
		if err != nil {
			t.Fatal(err)
		}
		return w.Pod
	}
	if p := runs(packed("v1", nil)); p == nil || p.Spec.Containers[0].Image != "v1" {
		t.Errorf("a pod that config does not serve: %v", p)
	}
	serve(packed("v1", func(p *v1.Pod) {
		p.ResourceVersion, p.Labels = "7", map[string]string{"a": "b"}
		p.Status.Phase = v1.PodRunning
	}))
	served, _ := in.pods.Get("u1")
	if p := runs(packed("v1", nil)); p != served.pod {
		t.Errorf("the same specification is kept twice: %v", p)
	}
	if p := runs(packed("v0", nil)); p == served.pod || p.Spec.Containers[0].Image != "v0" {
		t.Errorf("another specification: %v", p)
	}
	kept := runs(packed("v1", nil))
	serve(packed("v2", nil))
	if kept.Spec.Containers[0].Image != "v1" {
		t.Errorf("what podworker runs became %v as config serves another", kept)
	}
	if p := runs(nil); p != nil {
		t.Errorf("an orphan has %v", p)
	}
	for _, broken := range []string{"\xff", "\x12\x05ab", "\x0a"} {
		if hash := specOf([]byte(broken)); hash != 0 {
			t.Errorf("%q has a specification of hash %d", broken, hash)
		}
	}
}

// TestRecordsAreLean: labels and annotations are left out where the runtime's own data say the
// same, and kept where they alone tell the name or the number of restarts.
func TestRecordsAreLean(t *testing.T) {
	labels := map[string]string{pod.PodNameLabel: "web", pod.PodNamespaceLabel: "default", pod.PodUIDLabel: "u1", pod.ContainerNameLabel: "c"}
	for _, c := range []struct {
		about, name, restarts string
		attempt               uint32
		lean                  bool
	}{
		{"alike", "c", "2", 2, true},
		{"more restarts than attempts", "c", "5", 2, false},
		{"another name", "runtime's", "2", 2, false},
	} {
		status := &runtimeapi.ContainerStatus{
			Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Labels:   labels, Annotations: map[string]string{pod.RestartCountAnnotation: c.restarts},
		}
		r, err := decodeRecord("u1", &plegv1.PodRecord{Containers: [][]byte{encode(t, status)}})
		if err != nil {
			t.Fatal(err)
		}
		if lean := r.Containers[0].GetLabels() == nil && r.Containers[0].GetAnnotations() == nil; lean != c.lean {
			t.Errorf("%s: lean %v", c.about, lean)
		}
	}
}

func TestDecodeWorker(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	_, in := desiredPods(t)
	w, err := in.decodeWorker("u1", &podworkerv1.PodState{
		Uid: "u1", Namespace: "default", Name: "web", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_TERMINATING,
		Reason: "Evicted", Message: "The node was low on resource: memory.",
		Verdict:   &podworkerv1.Verdict{Kind: "Evicted", Disruption: true, Time: timestamppb.New(at)},
		StartedAt: timestamppb.New(at), AdmittedAt: timestamppb.New(at.Add(time.Second)), AllContainersRestarting: true,
		Waits: []*podworkerv1.ContainerWait{
			{Container: "crash", Reason: "CrashLoopBackOff", BackOff: durationpb.New(10 * time.Second), RetryAt: timestamppb.New(at)},
			{Container: "pull", Reason: "ImagePullBackOff", BackOff: durationpb.New(20 * time.Second), LastError: "ErrImagePull: no"},
			{Container: "config", Reason: "CreateContainerConfigError", Message: `configmap "app" not found`},
		},
		Containers: []*podworkerv1.ContainerFacts{{Container: "crash", RestartCount: 3}, {Container: "new", Unstarted: true}},
		Messages:   []*podworkerv1.ContainerMessage{{ContainerId: "abc", Message: "out of luck"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := podstatus.Facts{
		Lifecycle: podstatus.Terminating, StartTime: at, AllContainersRestarting: true,
		Verdict: &podstatus.Verdict{
			Kind: podstatus.VerdictEvicted, Reason: "Evicted", Message: "The node was low on resource: memory.", Disruption: true, Time: at,
		},
		Containers: map[string]podstatus.ContainerFacts{
			"crash":  {RestartCount: 3, Backoff: &podstatus.Backoff{Kind: podstatus.BackoffRestart, Delay: 10 * time.Second, Until: at}},
			"pull":   {Backoff: &podstatus.Backoff{Kind: podstatus.BackoffPull, Delay: 20 * time.Second, LastError: "ErrImagePull: no"}},
			"config": {Waiting: &podstatus.Waiting{Reason: "CreateContainerConfigError", Message: `configmap "app" not found`}},
			"new":    {Unstarted: true},
		},
	}
	if diff := cmp.Diff(want, w.Facts); diff != "" {
		t.Error(diff)
	}
	if w.Messages["abc"] != "out of luck" || w.Pod != nil {
		t.Errorf("messages %v, pod %v", w.Messages, w.Pod)
	}
	for lifecycle := range podworkerv1.Lifecycle_name {
		_, err := in.decodeWorker("u1", &podworkerv1.PodState{Lifecycle: podworkerv1.Lifecycle(lifecycle)})
		if (err != nil) != (lifecycle == 0) {
			t.Errorf("lifecycle %d: %v", lifecycle, err)
		}
	}
}

func TestDecodeVerdicts(t *testing.T) {
	verdict := func(id string, kind proberv1.ProbeKind, result proberv1.Result) *proberv1.Verdict {
		return &proberv1.Verdict{ContainerId: id, Kind: kind, Result: result}
	}
	got, err := decodeVerdicts("u1", &proberv1.PodVerdicts{Verdicts: []*proberv1.Verdict{
		verdict("a", proberv1.ProbeKind_PROBE_KIND_STARTUP, proberv1.Result_RESULT_SUCCESS),
		verdict("a", proberv1.ProbeKind_PROBE_KIND_READINESS, proberv1.Result_RESULT_FAILURE),
		verdict("b", proberv1.ProbeKind_PROBE_KIND_LIVENESS, proberv1.Result_RESULT_SUCCESS),
		verdict("c", proberv1.ProbeKind_PROBE_KIND_READINESS, proberv1.Result_RESULT_UNSPECIFIED),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]podstatus.ProbeVerdict{
		"a": {Startup: podstatus.ProbeSuccess, Readiness: podstatus.ProbeFailure},
		"b": {Liveness: podstatus.ProbeSuccess}, "c": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRuntime(t *testing.T) {
	r, err := decodeRuntime("runtime", &plegv1.RuntimeState{
		Name: "containerd", Version: "2.2.0", Responding: true, Since: timestamppb.Now(),
		Status: encode(t, &runtimeapi.StatusResponse{
			Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: "NetworkReady", Reason: "No", Message: "CNI"}}},
			RuntimeHandlers: []*runtimeapi.RuntimeHandler{
				{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "old"},
			},
			Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Asked || r.Conditions[0].Reason != "No" || !*r.Handlers[0].Features.UserNamespaces || *r.Handlers[0].Features.RecursiveReadOnlyMounts || *r.Handlers[1].Features.UserNamespaces || !*r.SupplementalGroupsPolicy {
		t.Errorf("%+v", r)
	}
	if r, err := decodeRuntime("runtime", &plegv1.RuntimeState{Error: "no such socket"}); err != nil || r.Asked {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDecodeResources(t *testing.T) {
	r, err := decodeResources("node", &resourcev1.NodeResources{
		Capacity: map[string]string{"cpu": "2", "memory": "4Gi"}, Allocatable: map[string]string{"cpu": "1900m"},
		Disk: &resourcev1.Pressure{UnderPressure: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if q := r.Allocatable[v1.ResourceCPU]; q.MilliValue() != 1900 || !r.DiskPressure || r.MemoryPressure {
		t.Errorf("%+v", r)
	}
	_, err = decodeResources("node", &resourcev1.NodeResources{Allocatable: map[string]string{"cpu": "many"}})
	if err == nil || !strings.Contains(err.Error(), `allocatable: cpu: "many"`) {
		t.Errorf("error %v", err)
	}
}

// TestDecodeDamaged: what does not decode is an error and no crash.
func TestDecodeDamaged(t *testing.T) {
	garbage := []byte("\xff\xff\xff")
	for name, err := range map[string]error{
		"pod":       second(decodeDesired("", &configv1.DesiredPod{Pod: garbage})),
		"no pod":    second(decodeDesired("", &configv1.DesiredPod{})),
		"node":      second(decodeNode("", &configv1.Object{Kind: "Node", Object: garbage})),
		"sandbox":   second(decodeRecord("", &plegv1.PodRecord{Sandboxes: [][]byte{garbage}})),
		"container": second(decodeRecord("", &plegv1.PodRecord{Containers: [][]byte{garbage}})),
		"status":    second(decodeRuntime("", &plegv1.RuntimeState{Status: garbage})),
	} {
		if err == nil {
			t.Errorf("%s: taken although damaged", name)
		}
	}
	if n, err := decodeNode("", &configv1.Object{Kind: "ConfigMap", Object: garbage}); n != nil || err != nil {
		t.Errorf("what is not ours to read: %v, %v", n, err)
	}
}

func second[T any](_ T, err error) error { return err }

// heard notes what it is told of starts.
type heard struct {
	seen   []float64
	totals [][2]float64 // SLI, total
}

func (h *heard) running(seen time.Duration) { h.seen = append(h.seen, seen.Seconds()) }

func (h *heard) known(_ *v1.Pod, sli, total time.Duration) {
	h.totals = append(h.totals, [2]float64{sli.Seconds(), total.Seconds()})
}

func TestStartTimes(t *testing.T) {
	base := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return base.Add(time.Duration(seconds * float64(time.Second))) }
	var got heard
	s := newStartTimes(base, &got)
	wanted := func(created, seen float64) *desired {
		return &desired{
			pod:  &v1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(created))}},
			item: &configv1.DesiredPod{SeenAt: timestamppb.New(at(seen))},
		}
	}
	pull := func(reason, container string, when float64) {
		s.event(&eventv1.Event{Object: &eventv1.ObjectReference{Uid: "new", FieldPath: container}, Reason: reason, Time: timestamppb.New(at(when))})
	}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at(1))}}
	half := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{State: runs}, {}}}
	whole := &v1.PodStatus{
		Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{State: runs}, {State: runs}},
		InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{StartedAt: metav1.NewTime(at(7)), FinishedAt: metav1.NewTime(at(9))},
		}}},
	}
	s.rendered("old", wanted(-9, -5), whole, at(1))
	s.reported("old", wanted(-9, -5), whole, at(1))
	s.rendered("new", wanted(1, 2), &v1.PodStatus{Phase: v1.PodPending}, at(2))
	s.reported("new", wanted(1, 2), nil, at(2))
	pull("Pulling", "a", 3)
	pull("Pulling", "a", 4) // tried again
	pull("Pulling", "b", 4)
	pull("Pulled", "a", 5)
	pull("Pulled", "b", 6)
	pull("Pulled", "b", 19) // of a restart
	pull("Pulled", "c", 19) // was present
	pull("Pulling", "d", 6.5)
	pull("Pulled", "d", 7)
	pull("Started", "a", 8)
	s.rendered("new", wanted(1, 2), half, at(10))
	s.reported("new", wanted(1, 2), half, at(10))
	s.rendered("new", wanted(1, 2), whole, at(11))
	s.reported("new", wanted(1, 2), whole, at(12))
	s.rendered("new", wanted(1, 2), whole, at(60))
	s.reported("new", wanted(1, 2), whole, at(60))
	s.rendered("failed", wanted(1, 2), &v1.PodStatus{Phase: v1.PodFailed}, at(3))
	s.reported("gone", nil, whole, at(3))
	if want := (heard{[]float64{8}, [][2]float64{{11 - 3.5 - 2, 11}}}); !reflect.DeepEqual(want, got) {
		t.Errorf("running, SLI and total: %v, want %v", got, want)
	}
	s.forget("new")
	if _, ok := s.pods["new"]; ok {
		t.Error("not forgotten")
	}
}
