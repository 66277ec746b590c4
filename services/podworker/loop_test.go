// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakeclock"
	"github.com/sextant-node/sextant/test/fakecri"
)

// TestSleepIsShort: a round that asks for a time is followed by another within a minute or
// so, for the clock may have been set since.
func TestSleepIsShort(t *testing.T) {
	t.Parallel()
	clock, m := clocktesting.NewFakeClock(time.Now()), newMailbox()
	ctx, cancel := context.WithCancel(t.Context())
	var rounds atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.each(ctx, clock, func() (at time.Time, last bool) {
			rounds.Add(1)
			return clock.Now().Add(10 * time.Hour), false
		})
	}()
	m.poke()
	fakeclock.Pass(t, clock, "another round", func() bool { return rounds.Load() > 1 })
	cancel()
	<-done
}

const released = podworkerv1.Lifecycle_LIFECYCLE_RELEASED

func TestStartAndDelete(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	if !n.heard("Started") {
		t.Errorf("no event Started: %q", n.told())
	}
	n.desire(n.deleted(p, 30))
	n.until("released", func() bool { return n.lifecycle(p.UID, released) })
	if n.running("a") {
		t.Error("released while its container runs")
	}
	n.forget(p.UID)
	n.until("forgotten", func() bool {
		return n.state(p.UID) == nil && len(n.rt.Containers()) == 0 && len(n.rt.Sandboxes()) == 0
	})
	if got := n.rt.Count(fakecri.Match{Method: "StartContainer"}); got != 1 {
		t.Errorf("%d containers started, want 1", got)
	}
	for _, dir := range []string{"kubelet/pods", "pods"} {
		if left, err := os.ReadDir(filepath.Join(n.dir, dir)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

func TestCrashBackoffSurvivesKill(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a", command("exit 1"))
	n.desire(p)
	starts := func() int { return n.rt.Count(fakecri.Match{Method: "StartContainer"}) }
	n.until("first back-off", func() bool { return starts() == 2 && n.waiting(p.UID, "CrashLoopBackOff") })
	n.clock.Step(10 * time.Second)
	n.until("second back-off", func() bool {
		return starts() == 3 && strings.HasPrefix(n.firstWait(p.UID).GetMessage(), "back-off 20s")
	})
	retry := n.firstWait(p.UID).GetRetryAt().AsTime()
	n.die()
	n.clock.Step(5 * time.Second)
	n.live()
	n.until("back-off again", func() bool { return n.waiting(p.UID, "CrashLoopBackOff") })
	if got := n.firstWait(p.UID).GetRetryAt().AsTime(); got.Sub(retry).Abs() > time.Second {
		t.Errorf("next try at %v, was %v before the kill", got, retry)
	}
	if starts() != 3 {
		t.Errorf("%d starts, want 3", starts())
	}
	n.clock.Step(15 * time.Second)
	n.until("third restart", func() bool { return starts() == 4 })
}

func TestDeleteWithGrace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "fake/ignore-term" })
	n.desire(p)
	n.until("running", func() bool { return n.settled(p.UID) })
	id := n.rt.Container("a", "web").GetId()
	n.desire(n.deleted(p, 60))
	n.until("TERM", func() bool { return strings.Join(n.rt.Signals(id), " ") == "TERM" })
	// A second, shorter deletion shortens what is under way.
	n.desire(n.deleted(p, 3))
	n.until("shorter stop", func() bool {
		return n.state(p.UID).GetGraceSeconds() == 3 && n.flying(p.UID, step.Key("stop/"+id))
	})
	// The runtime may set its timer late, after the clock has gone on.
	n.within("KILL", 500*time.Millisecond, 8*time.Second, func() bool {
		s := n.rt.Signals(id)
		return len(s) > 0 && s[len(s)-1] == "KILL"
	})
	n.until("released", func() bool { return n.lifecycle(p.UID, released) })
}

func TestImageFailsThenComes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.rt.Withhold("registry/app:1")
	n.live()
	p := web("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "registry/app:1" })
	n.desire(p)
	n.until("error", func() bool { return n.waiting(p.UID, "ErrImagePull") })
	n.clock.Step(5 * time.Second)
	n.until("back-off", func() bool { return n.waiting(p.UID, "ImagePullBackOff") && n.heard("BackOff") })
	n.rt.Provide(fakecri.Image{Ref: "registry/app:1"})
	n.clock.Step(5 * time.Second)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
}

func TestDeleteDuringPull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	stall := n.rt.Stall(fakecri.Match{Method: "PullImage"})
	defer stall.Release()
	n.live()
	p := web("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "registry/big:1" })
	n.desire(p)
	n.until("pull and sandbox", func() bool { return stall.Caught() == 1 && n.sandboxesOf("a") == 1 })
	n.desire(n.deleted(p, 30))
	n.until("released", func() bool { return n.lifecycle(p.UID, released) })
	if got := n.rt.Count(fakecri.Match{Method: "CreateContainer"}); got != 0 {
		t.Errorf("%d containers made of a pod being deleted", got)
	}
}

func TestAdoptionWithDamagedJournal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
	id := n.rt.Container("a", "web").GetId()
	n.die()
	n.must(os.WriteFile(filepath.Join(n.dir, "state", journal.FileName), []byte("not a database, however long it is"), 0o600))
	n.live()
	n.until("adopted", func() bool { return n.settled(p.UID) })
	if got := n.rt.Container("a", "web"); got.GetId() != id || !n.running("a") {
		t.Errorf("container %s runs, want %s", got.GetId(), id)
	}
	if got, want := fmt.Sprint(n.admissions()), "[a running=false a running=true]"; got != want {
		t.Errorf("admissions %s, want %s", got, want)
	}
}

func TestRunningPodIsNotJudgedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.settled(p.UID) })
	n.mu.Lock()
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "NodeAffinity"}
	}
	n.mu.Unlock()
	n.die()
	n.live()
	n.until("settled", func() bool { _, complete, _ := n.states.State(); return complete && n.settled(p.UID) })
	if !n.running("a") || len(n.admissions()) != 1 {
		t.Errorf("running %t after admissions %v", n.running("a"), n.admissions())
	}
}

func TestOrphanGoesOnceConfigIsComplete(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.settled(p.UID) })
	n.die()
	n.must(os.RemoveAll(filepath.Join(n.dir, "state")))
	n.set(n.sources.Set(context.Background(), "api", &configv1.Source{Name: "api"}))
	n.forget(p.UID)
	n.pods.SetComplete(context.Background(), false)
	n.live()
	n.until("waits for config", func() bool { return n.state(p.UID).GetWait().GetOwner() == "config" })
	if !n.running("a") {
		t.Error("stopped on the word of an incomplete config")
	}
	n.set(n.sources.Set(context.Background(), "api", &configv1.Source{Name: "api", Complete: true}))
	n.pods.SetComplete(context.Background(), true)
	n.until("gone", func() bool { return n.state(p.UID) == nil && len(n.rt.Sandboxes()) == 0 })
}

func TestPlegAway(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	stall := n.rt.Stall(fakecri.Match{Method: "RunPodSandbox"})
	p := web("a")
	n.desire(p)
	n.until("sandbox under way", func() bool { return stall.Caught() == 1 })
	n.pleg.leave(true)
	stall.Release()
	n.until("waits for pleg", func() bool { return n.state(p.UID).GetWait().GetOwner() == "pleg" })
	n.pleg.leave(false)
	n.pass("running", time.Second, func() bool { return n.running("a") && n.settled(p.UID) })
	if got := n.rt.Count(fakecri.Match{Method: "RunPodSandbox"}); got != 1 {
		t.Errorf("%d sandboxes made, want 1", got)
	}
}

func TestSandboxDies(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.settled(p.UID) })
	n.rt.KillSandbox(n.rt.Sandboxes()[0].GetId())
	n.pass("a new one", time.Second, func() bool {
		c := n.rt.Container("a", "web")
		return n.running("a") && c.GetMetadata().GetAttempt() == 1 && n.settled(p.UID)
	})
	if !n.heard("SandboxChanged") || n.sandboxesOf("a") != 1 {
		t.Errorf("%d sandboxes, events %q", n.sandboxesOf("a"), n.told())
	}
}

func TestStaticPodWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	static := func(uid string) *v1.Pod {
		return web("a", func(p *v1.Pod) {
			p.UID = types.UID(uid)
			p.Annotations = map[string]string{pod.ConfigSourceAnnotation: pod.SourceFile}
			p.Spec.Containers[0].Image = "fake/ignore-term"
		})
	}
	former, next := static("one"), static("two")
	n.desire(former)
	n.until("running", func() bool { return n.settled("one") })
	id := n.rt.Container("a", "web").GetId()
	n.desire(next)
	n.until("the next waits", func() bool { return n.state("two").GetWait().GetStep() == "predecessor" })
	n.forget("one")
	n.until("stopping", func() bool { return strings.Join(n.rt.Signals(id), "") == "TERM" })
	n.pass("never two", 5*time.Second, func() bool {
		if n.sandboxesOf("a") > 1 {
			t.Fatal("two live sandboxes of one name")
		}
		return n.settled("two")
	})
}

func TestLivenessVerdict(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a")
	n.desire(p)
	n.until("running", func() bool { return n.settled(p.UID) })
	id := n.rt.Container("a", "web").GetId()
	n.set(n.verdicts.Set(context.Background(), string(p.UID), &proberv1.PodVerdicts{Uid: string(p.UID), Verdicts: []*proberv1.Verdict{
		{Container: "web", ContainerId: id, Kind: proberv1.ProbeKind_PROBE_KIND_LIVENESS, Result: proberv1.Result_RESULT_FAILURE},
	}}))
	n.until("the next instance", func() bool {
		c := n.rt.Container("a", "web")
		return c.GetId() != id && n.running("a") && n.settled(p.UID)
	})
	if got := n.rt.Count(fakecri.Match{Method: "StopContainer"}); got != 1 {
		t.Errorf("%d stops, want 1", got)
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.answer = func(p *v1.Pod, _ bool) *resourcev1.AdmitResponse {
		if p.Name == "no" {
			return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "OutOfcpu", Message: "too much"}
		}
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Reason: "Device", Message: "plugin x is not there"}
	}
	n.live()
	no, later := web("no"), web("later")
	n.desire(no)
	n.desire(later)
	n.until("refused", func() bool {
		s := n.state(no.UID)
		return s.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_REJECTED && s.GetReason() == "OutOfcpu" && n.heard("OutOfcpu")
	})
	n.until("waits", func() bool {
		w := n.state(later.UID).GetWait()
		return w.GetOwner() == "resource" && strings.Contains(w.GetMessage(), "plugin x")
	})
	n.mu.Lock()
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
	}
	n.mu.Unlock()
	n.clock.Step(time.Second)
	n.set(n.capacity.Set(context.Background(), "node", &resourcev1.NodeResources{Capacity: map[string]string{"example.com/x": "1"}}))
	n.until("admitted", func() bool { return n.running("later") })
	n.forget(no.UID)
	n.until("forgotten", func() bool { return n.state(no.UID) == nil })
}

func TestConfigMapComesLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := web("a", func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cfg"}}}}
	})
	n.set(n.objects.Set(context.Background(), "ConfigMap/default/cfg", &configv1.Object{Kind: "ConfigMap", Namespace: "default", Name: "cfg", Absent: true}))
	n.desire(p)
	n.until("config error", func() bool { return n.waiting(p.UID, "CreateContainerConfigError") })
	cfg := &v1.ConfigMap{Data: map[string]string{"KEY": "value"}}
	cfg.Name, cfg.Namespace = "cfg", "default"
	raw, err := cfg.Marshal()
	n.must(err)
	n.clock.Step(time.Second) // less than the back-off
	n.set(n.objects.Set(context.Background(), "ConfigMap/default/cfg", &configv1.Object{Kind: "ConfigMap", Namespace: "default", Name: "cfg", Object: raw}))
	n.until("running", func() bool { return n.running("a") && n.settled(p.UID) })
}

func TestLeftoversOnDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, dir := range []string{"kubelet/pods/uid-x/containers/web", "pods/default_old_uid-y/web"} {
		n.must(os.MkdirAll(filepath.Join(n.dir, dir), 0o750))
	}
	n.live()
	n.until("clean", func() bool {
		left, err := filepath.Glob(filepath.Join(n.dir, "*/*uid-*"))
		n.must(err)
		more, err := filepath.Glob(filepath.Join(n.dir, "kubelet/pods/*"))
		n.must(err)
		return len(left)+len(more) == 0
	})
}

func TestHundredPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	const count = 100
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, web(fmt.Sprintf("p%d", i)))
		n.desire(pods[i])
	}
	n.until("all running", func() bool {
		for _, p := range pods {
			if !n.settled(p.UID) {
				return false
			}
		}
		return true
	})
	n.die()
	n.live()
	n.until("complete after a kill", func() bool { _, complete, _ := n.states.State(); return complete })
	if got := n.rt.Count(fakecri.Match{Method: "StartContainer"}); got != count {
		t.Errorf("%d containers started, want %d", got, count)
	}
	for _, p := range pods {
		n.desire(n.deleted(p, 30))
	}
	n.until("all released", func() bool {
		for _, p := range pods {
			if !n.lifecycle(p.UID, released) {
				return false
			}
		}
		return true
	})
}

// TestRestartCountIsNotAheadOfTheRecord: while pleg has not seen the newest
// instance, its restart count is not told.
func TestRestartCountIsNotAheadOfTheRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	stall := n.rt.Stall(fakecri.Match{Method: "CreateContainer"})
	p := web("a")
	n.desire(p)
	n.until("start under way", func() bool { return stall.Caught() == 1 })
	n.pleg.leave(true)
	stall.Release()
	n.until("waits for pleg", func() bool { return n.state(p.UID).GetWait().GetOwner() == "pleg" })
	if got := n.state(p.UID).GetContainers()[0]; !got.GetUnstarted() {
		t.Errorf("before the record shows it: %v", got)
	}
	n.pleg.leave(false)
	n.pass("seen", time.Second, func() bool { return n.settled(p.UID) && !n.state(p.UID).GetContainers()[0].GetUnstarted() })
}

// TestEphemeralContainerWithoutItsTarget: one that is to see the processes of a
// container which never ran says so, and starts once it can.
func TestEphemeralContainerWithoutItsTarget(t *testing.T) {
	t.Parallel()
	n := newNode(t, fakecri.Image{Ref: "fake/sleep"})
	n.live()
	debug := func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "fake/sleep"}}
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "fake/sleep"}, TargetContainerName: "web",
		}}
	}
	p := web("a", debug)
	n.desire(p)
	n.until("it is told", func() bool {
		for _, w := range n.state(p.UID).GetWaits() {
			if w.GetContainer() == "debug" && w.GetReason() == "CreateContainerConfigError" && w.GetMessage() == "unable to find target container web" {
				return n.heard("Failed")
			}
		}
		return false
	})
	n.until("the init container runs", func() bool {
		return n.rt.Container("a", "init").GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && n.rt.Container("a", "init") != nil
	})
	n.rt.Exit(n.rt.Container("a", "init").GetId(), 0)
	n.pass("it starts", time.Second, func() bool {
		c := n.rt.Container("a", "debug")
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && n.running("a")
	})
	options := n.rt.ContainerConfig(n.rt.Container("a", "debug").GetId()).GetLinux().GetSecurityContext().GetNamespaceOptions()
	if web := n.rt.Container("a", "web").GetId(); options.GetPid() != runtimeapi.NamespaceMode_TARGET || options.GetTargetId() != web {
		t.Errorf("namespaces %v, want those of %s", options, web)
	}
}
