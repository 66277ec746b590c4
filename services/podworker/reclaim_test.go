// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
	"github.com/sextant-node/sextant/test/fakecri"
)

// unused counts how often unused images were to be removed.
type unused struct{ times atomic.Int32 }

func (u *unused) RemoveUnused(context.Context) error {
	u.times.Add(1)
	return nil
}

// TestReclaim: on resource's request the dead containers of a pod that is over go, and
// those of a pod that runs stay; images go if they were asked for. The answer is the
// request's time, and a request that failed is carried out again.
func TestReclaim(t *testing.T) {
	n := newNode(t)
	n.live()
	over := web("over", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	n.desire(over)
	runs := web("runs")
	n.desire(runs)
	n.until("up", func() bool {
		return n.running("over") && n.running("runs") && n.settled(over.UID) && n.settled(runs.UID)
	})
	n.clock.Step(time.Second)
	n.rt.Exit(n.rt.Container("over", "web").GetId(), 0)
	n.rt.Exit(n.rt.Container("runs", "web").GetId(), 1)
	n.until("one is over and one runs again", func() bool { return n.released(over.UID) && n.running("runs") })
	if got := len(n.rt.Containers()); got != 3 {
		t.Fatalf("%d containers", got)
	}
	u := &unused{}
	r := newReclaimer(n.loop, u, func() (images.Used, bool) { return images.Used{}, true }, n.clock)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ask := func(second int64, of *resourcev1.Reclaim) {
		t.Helper()
		of.Time = timestamppb.New(time.Unix(second, 5))
		n.set(n.capacity.Set(context.Background(), "node", &resourcev1.NodeResources{CgroupVersion: 2, Reclaim: of}))
		n.pass("answered", 100*time.Millisecond, func() bool {
			state, _ := n.nodeState.Get(nodeKey)
			return state.GetReclaimed().AsTime().Equal(of.GetTime().AsTime())
		})
	}
	ask(1, &resourcev1.Reclaim{Images: true})
	if got := len(n.rt.Containers()); got != 3 || u.times.Load() != 1 {
		t.Errorf("images alone: %d containers, images %d times", got, u.times.Load())
	}
	defer fault.Set("") //nolint:errcheck // nothing to parse
	if err := fault.Set("podworker.reclaim=1*error(no)"); err != nil {
		t.Fatal(err)
	}
	began := n.clock.Now()
	ask(2, &resourcev1.Reclaim{Containers: true})
	if took := n.clock.Since(began); took < layerTime {
		t.Errorf("answered %s after the containers: their layers may be there still", took)
	}
	if got := n.rt.Containers(); len(got) != 2 || u.times.Load() != 1 {
		t.Errorf("containers alone: %v, images %d times", got, u.times.Load())
	}
	for _, c := range n.rt.Containers() {
		if c.GetLabels()["io.kubernetes.pod.name"] != "runs" {
			t.Errorf("left: %v", c)
		}
	}
}

// nowhere publishes nothing.
type nowhere struct{}

func (nowhere) Set(context.Context, string, *podworkerv1.Images) (feed.Revision, error) {
	return feed.Revision{}, nil
}
func (nowhere) SetComplete(context.Context, bool) {}

// TestImagesWithoutTheAPIServer: a node that was started without its API server knows which
// images it uses, once config has said that it cannot be reached.
func TestImagesWithoutTheAPIServer(t *testing.T) {
	n := newNode(t)
	n.pods.SetComplete(context.Background(), false)
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI}))
	n.live()
	n.desire(static("one"))
	n.until("a static pod runs", func() bool { return n.settled(static("one").UID) })
	if _, known := n.loop.usedImages(); known {
		t.Error("known before the API server was heard")
	}
	n.desire(web("kept"))
	n.set(n.sources.Set(context.Background(), pod.SourceAPI, &configv1.Source{Name: pod.SourceAPI, Error: "connection refused"}))
	n.until("the pod of before runs", func() bool { return n.settled(web("kept").UID) })
	if used, known := n.loop.usedImages(); !known || !used["fake/sleep"] {
		t.Errorf("known %v: no image is removed, and pods are evicted in their place", known)
	}
}

// TestImagesOfEndedPods are removed once the runtime has no container of them, though the API
// server has the pods still. Those of a pod that is to start stay.
func TestImagesOfEndedPods(t *testing.T) {
	pods := map[string]*v1.Pod{}
	var stored []fakecri.Image
	for _, name := range []string{"over", "evicted", "refused", "waits"} {
		pods[name] = web(name, func(p *v1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.RestartPolicy = "fake/sleep:"+name, v1.RestartPolicyNever
		})
		stored = append(stored, fakecri.Image{Ref: "fake/sleep:" + name})
	}
	pods["evicted"].Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"} // in a former life of the node
	n := newNode(t, stored...)
	n.answer = func(p *v1.Pod, _ bool) *resourcev1.AdmitResponse {
		answer := &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
		switch p.Name {
		case "refused":
			answer.Decision, answer.Reason = resourcev1.Decision_DECISION_REJECTED, "OutOfcpu"
		case "waits":
			answer.Decision, answer.Message = resourcev1.Decision_DECISION_NOT_YET, "a plugin is away"
		}
		return answer
	}
	n.live()
	for _, p := range pods {
		n.desire(p)
	}
	over := pods["over"].UID
	n.until("one runs, and two have ended", func() bool {
		return n.running("over") && n.settled(over) && n.released(pods["evicted"].UID) &&
			n.lifecycle(pods["refused"].UID, podworkerv1.Lifecycle_LIFECYCLE_REJECTED)
	})
	keeper := images.New(images.Deps{
		Runtime: n.cri, Images: n.ic, Feed: nowhere{}, Config: n.loop.config.Config,
		Used: func() (images.Used, bool) { return n.loop.usedImages() }, Clock: n.clock, Log: slog.New(slog.DiscardHandler),
	})
	left := func() string {
		n.until("it is known what is in use", func() bool { _, known := n.loop.usedImages(); return known })
		n.must(keeper.RemoveUnused(context.Background()))
		resp, err := n.ic.ListImages(context.Background(), &runtimeapi.ListImagesRequest{})
		n.must(err)
		var tags []string
		for _, image := range resp.GetImages() {
			for _, name := range image.GetRepoTags() {
				if _, tag, ok := strings.Cut(name, "fake/sleep:"); ok {
					tags = append(tags, tag)
				}
			}
		}
		slices.Sort(tags)
		return strings.Join(tags, " ")
	}
	if got := left(); got != "over waits" {
		t.Errorf("left: %q, while one runs and one is to start", got)
	}
	n.clock.Step(time.Second)
	n.rt.Exit(n.rt.Container("over", "web").GetId(), 0)
	n.until("over", func() bool { return n.released(over) })
	if got := left(); got != "over waits" {
		t.Errorf("left: %q, while the runtime has the dead container", got)
	}
	n.loop.discard()
	n.until("the container is gone", func() bool {
		record, _ := n.loop.in.Records.Get(string(over))
		return record == nil || len(record.Containers) == 0
	})
	n.die()
	n.live()
	n.until("the next life knows what the pods are", func() bool { return n.released(over) && n.state(pods["waits"].UID) != nil })
	if got := left(); got != "waits" {
		t.Errorf("left: %q, without a container", got)
	}
}

// TestImagesBesideAPodThatCannotBeRead: a runtime that does not answer for one pod keeps the
// images of that pod, and no others.
func TestImagesBesideAPodThatCannotBeRead(t *testing.T) {
	n := newNode(t, fakecri.Image{Ref: "fake/sleep:hung"}, fakecri.Image{Ref: "fake/sleep:unused"})
	n.live()
	p := web("hung", func(p *v1.Pod) { p.Spec.Containers[0].Image = "fake/sleep:hung" })
	n.desire(p)
	n.until("up", func() bool { return n.running("hung") && n.settled(p.UID) })
	keeper := images.New(images.Deps{
		Runtime: n.cri, Images: n.ic, Feed: nowhere{}, Config: n.loop.config.Config, Unread: n.loop.in.unread,
		Used: func() (images.Used, bool) { return n.loop.usedImages() }, Clock: n.clock, Log: slog.New(slog.DiscardHandler),
	})
	n.rest() // no reading of the pod is under way, which would take the place of this one
	n.set(n.records.Set(context.Background(), string(p.UID), &plegv1.PodRecord{Uid: string(p.UID), Error: "the shim does not answer"}))
	n.until("it cannot be read", n.loop.in.unread)
	n.must(keeper.RemoveUnused(context.Background()))
	resp, err := n.ic.ListImages(context.Background(), &runtimeapi.ListImagesRequest{})
	n.must(err)
	var left []string
	for _, image := range resp.GetImages() {
		left = append(left, image.GetRepoTags()...)
	}
	if text := strings.Join(left, " "); !strings.Contains(text, "fake/sleep:hung") || strings.Contains(text, "fake/sleep:unused") {
		t.Errorf("left: %s", text)
	}
}
