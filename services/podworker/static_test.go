// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// static is one version of a static pod's manifest: each has a UID of its own,
// and all have one name.
func static(version string, edits ...func(*v1.Pod)) *v1.Pod {
	p := web("a", edits...)
	p.UID = types.UID(version)
	p.Annotations = map[string]string{pod.ConfigSourceAnnotation: pod.SourceFile, pod.ConfigHashAnnotation: version}
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "VERSION", Value: version}}
	return p
}

func TestRefusedStaticPodComesLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_REJECTED, Reason: "OutOfcpu", Message: "too much"}
	}
	n.live()
	p := static("one")
	n.desire(p)
	n.until("refused", func() bool { return n.lifecycle("one", podworkerv1.Lifecycle_LIFECYCLE_REJECTED) })
	n.pass("refused again", time.Second, func() bool {
		return len(n.admissions()) > 1 && n.lifecycle("one", podworkerv1.Lifecycle_LIFECYCLE_REJECTED)
	})
	n.die()
	n.mu.Lock()
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
	}
	n.mu.Unlock()
	n.live()
	n.pass("up", time.Second, func() bool {
		return n.settled("one") && n.running("a")
	})
	if v := n.state("one").GetVerdict(); v != nil {
		t.Errorf("an admitted pod has the verdict %v", v)
	}
}

// apiAway is a start of config without its API server: the manifest folder was
// read, the API server was not, so that config.pods is not complete.
func (n *node) apiAway() {
	n.pods.SetComplete(context.Background(), false)
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI, Error: "connection refused"}))
	n.readManifests()
}

// apiBack: the API server has said again which pods there are.
func (n *node) apiBack() {
	n.pods.SetComplete(context.Background(), true)
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI, Complete: true}))
	n.readManifests()
}

// readManifests is what config says after each step that took a manifest away.
func (n *node) readManifests() {
	revision, _, _ := n.pods.State()
	n.set(n.sources.Set(context.Background(), pod.SourceFile, &configv1.Source{
		Name: pod.SourceFile, Complete: true, PodsRevision: revision.Proto(),
	}))
}

// TestManifestWrittenAgain: a pod whose manifest was removed and written again
// ends and begins again under its UID, once, also when podworker is killed in the
// middle; its restart count goes on.
func TestManifestWrittenAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	p := static("one")
	n.desire(p)
	n.until("up", func() bool { return n.settled(p.UID) && n.running("a") })
	n.die()
	n.live()
	n.until("up after a kill", func() bool { return n.settled(p.UID) && n.running("a") })
	if got := n.rt.Container("a", "web").GetMetadata().GetAttempt(); got != 0 {
		t.Fatalf("attempt %d before", got)
	}
	for i := range uint32(3) {
		n.rewritten(p)
		n.until("going", func() bool { return !n.settled(p.UID) || !n.running("a") })
		if i > 0 {
			n.die()
			n.live()
		}
		n.pass("up again", time.Second, func() bool {
			return n.settled(p.UID) && n.running("a") && n.rt.Container("a", "web").GetMetadata().GetAttempt() == i+1
		})
		n.die()
		n.live()
		n.pass("up after a kill", time.Second, func() bool { return n.settled(p.UID) && n.running("a") })
		if got := n.rt.Container("a", "web").GetMetadata().GetAttempt(); got != i+1 {
			t.Errorf("attempt %d, want %d", got, i+1)
		}
	}
	if n := n.sandboxesOf("a"); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
}

// rewritten is what config says of a pod whose manifest was removed and written
// again between two readings.
func (n *node) rewritten(p *v1.Pod) {
	n.clock.Step(time.Second)
	raw, err := p.Marshal()
	n.must(err)
	n.set(n.pods.Set(context.Background(), string(p.UID), &configv1.DesiredPod{
		Pod: raw, Source: pod.SourceFile, SeenAt: timestamppb.New(n.clock.Now()), BegunAt: timestamppb.New(n.clock.Now()),
	}))
}

// TestAManifestIsMendedWhileItsPodWaits: while the API server is away the pod of a manifest,
// perhaps the API server itself, waits for its admission; that of the mended manifest takes
// its place, and nothing is left of the former.
func TestAManifestIsMendedWhileItsPodWaits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apiAway()
	n.answer = func(p *v1.Pod, _ bool) *resourcev1.AdmitResponse {
		if p.UID == "one" {
			return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Message: "no room yet"}
		}
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
	}
	n.live()
	n.desire(static("one"))
	n.until("waits", func() bool { return len(n.admissions()) > 0 })
	n.desire(static("two"))
	n.forget("one")
	n.readManifests()
	n.pass("the mended one runs", time.Second, func() bool {
		return n.settled("two") && n.running("a") && n.state("one") == nil
	})
}

// TestOtherSourcesAreNotJudged: that the folder was read says nothing of pods of
// the API server.
// TestAUIDThatIsNoName: nothing is made, or removed, for a pod whose UID leads out of
// the folder of pods.
func TestAUIDThatIsNoName(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.live()
	odd, other := web("a"), web("b")
	odd.UID = "../elsewhere"
	n.desire(odd)
	n.desire(other)
	n.until("the other pod runs", func() bool { return n.settled(other.UID) })
	if _, err := os.Stat(filepath.Join(n.dir, "kubelet", "elsewhere")); err == nil || n.state(odd.UID) != nil || n.sandboxesOf("a") > 0 {
		t.Errorf("something was made: %v, %v", err, n.state(odd.UID))
	}
}

// TestAPodThatIsNotUnderstood: config lists a static pod, in words that podworker,
// which has just started, does not understand. It goes on, and another pod that
// is gone ends all the same.
func TestAPodThatIsNotUnderstood(t *testing.T) {
	n := newNode(t)
	n.live()
	odd, other := static("odd"), web("b")
	n.desire(odd)
	n.desire(other)
	n.readManifests()
	n.until("running", func() bool { return n.settled("odd") && n.settled(other.UID) })
	n.die()
	n.set(n.pods.Set(context.Background(), "odd", &configv1.DesiredPod{Pod: []byte("\xffnot a pod"), Source: pod.SourceFile}))
	n.readManifests()
	n.live()
	n.forget(other.UID)
	n.until("the other pod is gone", func() bool { return n.state(other.UID) == nil && n.sandboxesOf("b") == 0 })
	n.until("everything was looked at", func() bool { _, complete, _ := n.states.State(); return complete })
	if !n.running("a") || n.released("odd") {
		t.Errorf("a pod that config lists was ended:\n%s", n.dump())
	}
	n.forget("odd")
	n.readManifests()
	n.pass("gone with its manifest", time.Second, func() bool { return n.state("odd") == nil && n.sandboxesOf("a") == 0 })
}

func TestOtherSourcesAreNotJudged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apiAway()
	n.live()
	p, s := web("b"), static("one")
	n.desire(p)
	n.desire(s)
	n.until("up", func() bool { return n.settled(p.UID) && n.settled(s.UID) })
	n.forget(p.UID)
	n.forget(s.UID)
	n.readManifests()
	n.pass("the static pod goes", time.Second, func() bool { return n.state(s.UID) == nil })
	if !n.running("b") || !n.lifecycle(p.UID, podworkerv1.Lifecycle_LIFECYCLE_SYNCING) {
		t.Errorf("the other pod is %v", n.state(p.UID))
	}
}

// TestEditedStaticPod edits a manifest a hundred times at random intervals, often
// more than once within the grace period, with podworker killed and pleg away now
// and then: there are never two live instances of its container, and in the end
// the last version runs and nothing of the others is left.
func TestEditedStaticPod(t *testing.T) {
	t.Parallel()
	t.Run("API server there", func(t *testing.T) { editStaticPod(t, func(*node) {}) })
	t.Run("API server away", func(t *testing.T) { editStaticPod(t, (*node).apiAway) })
}

func editStaticPod(t *testing.T, prepare func(*node)) {
	r := rand.New(rand.NewPCG(22, 1))
	n := newNode(t)
	prepare(n)
	var two atomic.Pointer[string]
	n.rt.Lie(fakecri.Match{Method: "StartContainer"}, func(_, _ proto.Message) {
		var live []string
		for _, c := range n.rt.Containers() {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				live = append(live, c.GetId())
			}
		}
		if len(live) > 1 {
			text := fmt.Sprint(live)
			two.Store(&text)
		}
	})
	n.live()
	// The former version takes its time to end, or ends at once.
	images := []string{"fake/ignore-term", "fake/sleep"}
	edit := func(version string) *v1.Pod {
		return static(version, func(p *v1.Pod) {
			grace := int64(r.IntN(8))
			p.Spec.TerminationGracePeriodSeconds = &grace
			p.Spec.Containers[0].Image = images[r.IntN(len(images))]
		})
	}
	last := types.UID("v0")
	n.desire(edit(string(last)))
	for i := range 100 {
		version := fmt.Sprintf("v%d", i+1)
		// config publishes both changes; readers may see either first.
		if r.IntN(2) == 0 {
			n.desire(edit(version))
			n.forget(last)
		} else {
			n.forget(last)
			n.desire(edit(version))
		}
		n.readManifests()
		last = types.UID(version)
		switch r.IntN(8) {
		case 0:
			n.die()
			n.live()
		case 1:
			n.pleg.leave(true)
			n.clock.Step(time.Second)
			n.pleg.leave(false)
		case 2:
			n.pass("it runs", time.Second, func() bool { return n.settled(last) })
		}
		n.clock.Step(time.Duration(r.IntN(4000)) * time.Millisecond)
	}
	n.pass("the last version alone", time.Second, func() bool {
		return n.settled(last) && n.running("a") && len(n.rt.Sandboxes()) == 1
	})
	n.apiBack() // without it, what a killed process left on the disk may be an unknown pod's
	n.pass("nothing of the others", time.Second, func() bool { return len(n.states.Keys()) == 1 })
	if live := two.Load(); live != nil {
		t.Errorf("two live copies: %s", *live)
	}
	if uid := n.rt.Container("a", "web").GetLabels()[pod.PodUIDLabel]; uid != string(last) {
		t.Errorf("%s runs, want %s", uid, last)
	}
}
