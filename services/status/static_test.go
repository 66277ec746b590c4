// SPDX-License-Identifier: Apache-2.0

package status

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
)

// manifest makes a version of a static pod the only one that manifests ask for.
func (h *home) manifest(uid string) *v1.Pod {
	h.t.Helper()
	p := spec("job-n1", uid)
	p.Annotations = map[string]string{pod.ConfigHashAnnotation: uid, pod.ConfigSourceAnnotation: pod.SourceFile}
	h.mu.Lock()
	clear(h.static)
	h.static[uid] = p
	h.mu.Unlock()
	h.refresh(house.Config)
	return p
}

// noManifest removes all manifests.
func (h *home) noManifest() {
	h.mu.Lock()
	clear(h.static)
	h.mu.Unlock()
	h.refresh(house.Config)
}

// ended makes a pod end by itself, for good.
func (h *home) ended(p *v1.Pod, exit int32) {
	h.t.Helper()
	record := h.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_EXITED, exit)
	h.work(p, func(t *testPod) {
		t.record, t.verdicts = record, nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED
	})
}

// revived makes podworker take a static pod up again, in a sandbox to come.
func (h *home) revived(p *v1.Pod) {
	h.t.Helper()
	h.work(p, func(t *testPod) {
		t.state.Lifecycle, t.state.StartedAt = podworkerv1.Lifecycle_LIFECYCLE_SYNCING, timestamppb.New(time.Now().Add(time.Minute))
		t.state.Waits = []*podworkerv1.ContainerWait{{Container: "c", Reason: "ContainerCreating"}}
		if t.record != nil { // the former instance is there still
			t.state.Containers = []*podworkerv1.ContainerFacts{{Container: "c", Replaced: "c-" + string(p.UID)}}
		}
	})
}

// TestEndedStaticPodBeginsAnew: a static pod that is never started again has ended,
// well or not, and its manifest is edited, or removed and written again as it was. Its
// mirror is another, which begins with nothing of how the former one ended, also when
// the API server was away or this service was killed in between.
func TestEndedStaticPodBeginsAnew(t *testing.T) {
	t.Parallel()
	nothing := func(*home) {}
	for _, tt := range []struct {
		name          string
		exit          int32
		want          v1.PodPhase
		version       string
		before, after func(h *home)
	}{
		{"edited", 0, v1.PodSucceeded, "v2", nothing, nothing},
		{"edited after a failure", 1, v1.PodFailed, "v2", nothing, nothing},
		{"edited without the API server", 1, v1.PodFailed, "v2", func(h *home) { h.cluster.Away(true) }, func(h *home) { h.cluster.Away(false) }},
		{"edited, status killed", 0, v1.PodSucceeded, "v2", nothing, func(h *home) { h.stopStatus(); h.startStatus() }},
		{"written again", 0, v1.PodSucceeded, "v1", nothing, nothing},
		{"written again after a failure", 1, v1.PodFailed, "v1", nothing, nothing},
		{"written again without the API server", 0, v1.PodSucceeded, "v1", func(h *home) { h.cluster.Away(true) }, func(h *home) { h.cluster.Away(false) }},
		{"written again, status killed", 1, v1.PodFailed, "v1", (*home).stopStatus, (*home).startStatus},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t, nil)
			mirror := func() *v1.Pod { return h.cluster.Pod("default", "job-n1") }
			first := h.manifest("v1")
			h.up(first)
			h.eventually("the mirror is ready", func() bool { return isReady(mirror()) })
			h.ended(first, tt.exit)
			h.eventually("the end is told", func() bool { return mirror().Status.Phase == tt.want })
			h.quiet()
			was := mirror().UID
			tt.before(h)
			again := h.manifest(tt.version)
			h.revived(again)
			tt.after(h)
			anew := func() bool {
				m := mirror()
				return m != nil && m.UID != was && m.Annotations[pod.ConfigMirrorAnnotation] == tt.version && len(m.Status.ContainerStatuses) > 0
			}
			h.eventually("another mirror", anew)
			if s := mirror().Status; pod.IsTerminalPhase(s.Phase) || s.ContainerStatuses[0].State.Waiting == nil {
				t.Errorf("the new mirror begins as %s with %+v", s.Phase, s.ContainerStatuses)
			}
			record := h.container(again, "later", runtimeapi.ContainerState_CONTAINER_RUNNING, 0)
			h.work(again, func(t *testPod) {
				t.state.Waits, t.record = nil, record
				t.verdicts = &proberv1.PodVerdicts{Uid: string(again.UID), Verdicts: []*proberv1.Verdict{{
					Container: "c", ContainerId: "later", Kind: proberv1.ProbeKind_PROBE_KIND_READINESS, Result: proberv1.Result_RESULT_SUCCESS,
				}}}
			})
			h.eventually("it is ready", func() bool { return anew() && isReady(mirror()) && mirror().Status.Phase == v1.PodRunning })
			h.quiet()
			if n := len(h.cluster.Requests("create", "pods")); n != 2 {
				t.Errorf("%d mirrors were made", n)
			}
		})
	}
}

// TestAMirrorSaysHowItsPodEnded: podworker has ended a static pod without a manifest before pleg has
// read that, and is done with it as soon as it has. The mirror stays until then, and says how.
func TestAMirrorSaysHowItsPodEnded(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	mirror := func() *v1.Pod { return h.cluster.Pod("default", "job-n1") }
	p := h.manifest("v1")
	h.up(p)
	h.eventually("the mirror is ready", func() bool { return isReady(mirror()) })
	h.noManifest()
	h.work(p, func(t *testPod) { t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED })
	h.quiet()
	if m := mirror(); m == nil || !isReady(m) {
		t.Fatalf("the mirror of a pod that runs by all that is known: %+v", m)
	}
	h.ended(p, 0)
	h.eventually("the mirror is gone", func() bool { return mirror() == nil })
	told := h.cluster.Requests("patch", "pods/status")
	if last := told[len(told)-1]; !strings.Contains(last.Body, `"phase":"Succeeded"`) {
		t.Errorf("the last that was said of it: %s", last.Body)
	}
}

// TestMirrorAfterTheAPIServerIsBack: a static pod is edited while the API server is
// away. Its mirror is of the new version, ready, after the return; how soon is tested in
// internal/report, on synthetic time.
func TestMirrorAfterTheAPIServerIsBack(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	first := h.manifest("v1")
	h.up(first)
	h.eventually("the mirror is ready", func() bool { return isReady(h.cluster.Pod("default", "job-n1")) })
	h.quiet()
	h.cluster.Away(true)
	second := h.manifest("v2")
	h.ended(first, 0)
	h.up(second)
	tries := len(h.cluster.Requests("patch", "pods/status"))
	h.quietly(func() bool { return len(h.cluster.Requests("patch", "pods/status"))-tries >= 7 }) // of how it has ended; tried as rarely as ever
	h.cluster.Away(false)
	h.eventually("a mirror of the new version", func() bool {
		m := h.cluster.Pod("default", "job-n1")
		return m != nil && m.Annotations[pod.ConfigMirrorAnnotation] == "v2" && isReady(m)
	})
}

// TestAMirrorIsReplacedWhileAManifestURLIsAway: podworker was started while the server of
// staticPodURL is away, and cannot know all pods. A static pod of a file is edited: its mirror
// is of the new version once that has begun, and not before.
func TestAMirrorIsReplacedWhileAManifestURLIsAway(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	ready := func(version string) bool {
		m := h.cluster.Pod("default", "job-n1")
		return isReady(m) && m.Annotations[pod.ConfigMirrorAnnotation] == version
	}
	first := h.manifest("v1")
	h.up(first)
	h.eventually("the mirror is ready", func() bool { return ready("v1") })
	h.quiet()
	h.kill(house.PodWorker)
	h.mu.Lock()
	h.searching = true
	h.mu.Unlock()
	h.start(house.PodWorker)
	second := h.manifest("v2")
	h.quiet()
	if !ready("v1") {
		t.Error("the mirror of v1 went while that runs")
	}
	h.ended(first, 0)
	h.up(second)
	h.eventually("a mirror of the new version", func() bool { return ready("v2") })
}

// TestAPodOfAnotherAgent: the first status of a pod is made while config has not heard the
// API server, and lists what it was once told. What the API server says stays when it is
// heard: another agent has said it, or an earlier process of which the journal is lost.
func TestAPodOfAnotherAgent(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	p := h.cluster.Put(spec("web", "u1"))
	h.up(p)
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	h.quiet()
	h.anotherAgent("u1", func() *v1.Pod { return h.cluster.Pod("default", "web") }, &h.unheard)
}

// anotherAgent has another agent write what a pod is, while status and config are not there.
// Both start, status without a journal, and config knows nothing of the pod at the API server
// as long as a flag of its says so. What the other agent wrote must stay.
func (h *home) anotherAgent(uid string, object func() *v1.Pod, unknown *bool) {
	h.t.Helper()
	h.stopStatus()
	if err := os.RemoveAll(h.paths.StateOf(house.Status)); err != nil {
		h.t.Fatal(err)
	}
	h.kill(house.Config)
	set := func(value bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		*unknown = value
	}
	set(true)
	then := h.longAgo(object())
	h.start(house.Config)
	h.startStatus()
	h.eventually("a status without the API server's", func() bool { _, ok := h.svc.pods.reports.Get(uid); return ok })
	set(false)
	h.refresh(house.Config)
	h.quiet()
	h.still(object(), then)
}

// longAgo writes to the API server that a pod has been as it is for an hour.
func (h *home) longAgo(p *v1.Pod) (then metav1.Time) {
	then = metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	p.Status.StartTime = &then
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].LastTransitionTime = then
	}
	h.cluster.Put(p)
	return then
}

// still fails if a pod has not been as it is since then.
func (h *home) still(p *v1.Pod, then metav1.Time) {
	h.t.Helper()
	if !p.Status.StartTime.Equal(&then) {
		h.t.Errorf("started at %s, want %s", p.Status.StartTime, then)
	}
	for _, c := range p.Status.Conditions {
		if !c.LastTransitionTime.Equal(&then) {
			h.t.Errorf("%s became %s at %s, want %s", c.Type, c.Status, c.LastTransitionTime, then)
		}
	}
}

// TestAMirrorOfAnotherAgent: the first status of a static pod is made before config has
// heard of its mirror, which another agent made. What that says stays when it is heard.
func TestAMirrorOfAnotherAgent(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	mirror := func() *v1.Pod { return h.cluster.Pod("default", "job-n1") }
	p := h.manifest("v1")
	h.up(p)
	h.eventually("the mirror is ready", func() bool { return isReady(mirror()) })
	h.quiet()
	h.anotherAgent("v1", mirror, &h.strange)
}
