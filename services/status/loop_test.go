// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/services/status/internal/report"
	"github.com/sextant-node/sextant/test/feedtest"
)

// rounds is the loop of pods on synthetic time, between the owners of what it reads.
type rounds struct {
	*home // its makers of pods and records
	loop  *podLoop
	node  *knownNode
	way   *way

	pods        *feed.Owner[*configv1.DesiredPod]
	workers     *feed.Owner[*podworkerv1.PodState]
	records     *feed.Owner[*plegv1.PodRecord]
	verdicts    *feed.Owner[*proberv1.PodVerdicts]
	mirrors     *feed.Owner[*configv1.Object]
	sources     *feed.Owner[*configv1.Source]
	allocations *feed.Owner[*resourcev1.PodAllocation]
}

// knownNode is a node that is registered.
type knownNode struct {
	mu sync.Mutex
	ip string
	// between is called once, by the next call of now or Standalone. The loop calls them
	// after it has looked a pod up, and before it decides.
	between atomic.Pointer[func()]
}

func (n *knownNode) HostIPs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return []string{n.ip}
}
func (*knownNode) Owner() plan.Node { return plan.Node{Name: "n1", UID: "n"} }
func (n *knownNode) Standalone() bool {
	n.now()
	return false
}
func (*knownNode) Known() bool { return true }

// now is the clock of the loop.
func (n *knownNode) now() time.Time {
	if f := n.between.Swap(nil); f != nil {
		(*f)()
	}
	return time.Now()
}

// way is the way to the owners; those that hang are connected and do not answer.
type way struct {
	feedtest.Local
	mu    sync.Mutex
	hangs map[string]bool
	pulls map[string]int
}

func (w *way) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	name := req.GetFeed()
	w.mu.Lock()
	hangs := w.hangs[name]
	w.pulls[name]++
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return w.Local.Pull(ctx, req)
}

func (w *way) hang(name string, hangs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs[name] = hangs
}

func (w *way) pulled(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pulls[name]
}

// reads makes an owner that is complete, and a replica of it that is run.
func reads[M proto.Message, T any](ctx context.Context, w *way, f house.FeedOf[M], keep func(string, M) (T, error)) (*feed.Owner[M], *feed.Replica[T]) {
	owner := feed.NewOwner[M](f.Name, "e1", nil)
	owner.SetComplete(ctx, true)
	w.Local[f.Name] = owner
	return owner, feed.NewReplica(feed.ReplicaConfig{Feed: f.Name, Puller: w, Poll: 50 * time.Millisecond}, feed.Decoder(keep))
}

func inRounds(t *testing.T, test func(r *rounds)) {
	t.Helper()
	inRoundsAfter(t, nil, test)
}

// inRoundsAfter has the statuses that an earlier process journaled. The owners of the feeds
// in hang do not answer until the test says so.
func inRoundsAfter(t *testing.T, journaled map[string]*v1.PodStatus, test func(r *rounds), hang ...string) {
	t.Helper()
	restored := map[string]journal.Pod{}
	for uid, s := range journaled {
		data, err := s.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		restored[uid] = journal.Pod{Namespace: "default", Name: uid, Status: data}
	}
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &rounds{
			home: &home{t: t}, node: &knownNode{ip: "192.0.2.1"},
			way: &way{Local: feedtest.Local{}, hangs: map[string]bool{}, pulls: map[string]int{}},
		}
		for _, name := range hang {
			r.way.hang(name, true)
		}
		in := &inputs{}
		r.pods, in.pods = reads(ctx, r.way, house.ConfigPods, decodeDesired)
		r.workers, in.workers = reads(ctx, r.way, house.PodWorkerPods, in.decodeWorker)
		r.records, in.records = reads(ctx, r.way, house.PlegPods, decodeRecord)
		r.verdicts, in.verdicts = reads(ctx, r.way, house.ProberVerdicts, decodeVerdicts)
		r.allocations, in.allocations = reads(ctx, r.way, house.ResourcePods, decodeAllocation)
		_, in.statuses = reads(ctx, r.way, house.ConfigStatuses, decodeStatus)
		r.mirrors, in.mirrors = reads(ctx, r.way, house.ConfigMirrors, decodeMirror)
		_, in.kubelet = reads(ctx, r.way, house.ConfigKubelet, decodeKubelet)
		r.sources, in.sources = reads(ctx, r.way, house.ConfigSources, feed.Whole[*configv1.Source])
		runtime, named := reads(ctx, r.way, house.PlegRuntime, decodeRuntime)
		in.runtime = named
		r.must(r.sources.Set(ctx, "api", &configv1.Source{Name: "api", Complete: true}))
		r.must(runtime.Set(ctx, runtimeKey, &plegv1.RuntimeState{Name: "containerd"}))

		kept, _, err := journal.Open(store.Config{Path: filepath.Join(folder, "status.db"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		zero := func() float64 { return 0 }
		r.loop = newPodLoop(&podLoop{
			Keys: signal.NewKeys(),
			in:   in, journal: kept, reports: feed.NewOwner[*statusv1.PodReport](house.StatusPods.Name, "e1", nil), node: r.node,
			desk:    report.NewDesk(time.Now, func(string) {}),
			started: newStartTimes(time.Now(), newMetrics(prometheus.NewRegistry(), zero, zero)),
			beat:    func() {}, log: slog.New(slog.DiscardHandler), now: r.node.now,
		}, restored)
		r.loop.watch()
		var group sync.WaitGroup
		for _, run := range []func(context.Context) error{
			in.pods.Run, in.workers.Run, in.records.Run, in.verdicts.Run, in.allocations.Run, in.statuses.Run, in.mirrors.Run, in.kubelet.Run, in.sources.Run, in.runtime.Run, r.loop.Run,
		} {
			group.Go(func() {
				if err := run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		test(r)
		cancel()
		group.Wait()
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (r *rounds) must(_ feed.Revision, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// meanwhile calls a function once, after the loop has looked a pod or a mirror up and before
// it decides. The test fails if the loop looks at none.
func (r *rounds) meanwhile(happens func()) {
	r.node.between.Store(&happens)
	r.t.Cleanup(func() {
		if r.node.between.Load() != nil {
			r.t.Error("nothing was looked at")
		}
	})
}

// pass lets time go by.
func (r *rounds) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// comes lets an owner answer that hung, and reads its answer.
func (r *rounds) comes(name string, pull func(context.Context) error) {
	r.t.Helper()
	r.way.hang(name, false)
	if err := pull(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

// runs makes a pod that runs here. The API server has a status of it, or none.
func (r *rounds) runs(uid string, status ...v1.PodStatus) *v1.Pod {
	r.t.Helper()
	p := spec(uid, uid)
	for _, s := range status {
		p.Status = s
	}
	data, err := p.Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := r.t.Context()
	r.must(r.pods.Set(ctx, uid, &configv1.DesiredPod{Pod: data, Source: "api", SeenAt: timestamppb.Now()}))
	r.must(r.workers.Set(ctx, uid, &podworkerv1.PodState{
		Uid: uid, Namespace: p.Namespace, Name: p.Name, Pod: data, Source: "api",
		Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_SYNCING, AdmittedAt: timestamppb.Now(),
	}))
	r.must(r.records.Set(ctx, uid, r.container(p, "c-"+uid, runtimeapi.ContainerState_CONTAINER_RUNNING, 0)))
	return p
}

// probed makes the container of a pod ready, or not.
func (r *rounds) probed(uid string, ready bool) {
	r.t.Helper()
	result := proberv1.Result_RESULT_FAILURE
	if ready {
		result = proberv1.Result_RESULT_SUCCESS
	}
	r.must(r.verdicts.Set(r.t.Context(), uid, &proberv1.PodVerdicts{Uid: uid, Verdicts: []*proberv1.Verdict{{
		Container: "c", ContainerId: "c-" + uid, Kind: proberv1.ProbeKind_PROBE_KIND_READINESS, Result: result,
	}}}))
}

// status is what status.pods says of a pod; nil for nothing.
func (r *rounds) status(uid string) *v1.PodStatus {
	r.t.Helper()
	item, ok := r.loop.reports.Get(uid)
	if !ok {
		return nil
	}
	s := &v1.PodStatus{}
	if err := s.Unmarshal(item.GetStatus()); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestAPodThatComesMeanwhile: the answer of config comes while status looks at a pod that it
// had not found in config.pods. That pod is not known to be absent: the times of its status
// stay those that the API server has.
func TestAPodThatComesMeanwhile(t *testing.T) {
	then := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	ready := v1.PodStatus{Phase: v1.PodRunning, StartTime: &then, Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: then},
	}, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", ContainerID: "containerd://c-web", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: then}}},
	}}
	inRoundsAfter(t, nil, func(r *rounds) {
		r.runs("web", ready)
		r.probed("web", true)
		r.comes(house.PlegPods.Name, r.loop.in.records.Pull)
		r.pass(time.Second)
		r.meanwhile(func() { r.comes(house.ConfigPods.Name, r.loop.in.pods.Pull) })
		r.loop.Mark([]string{"web"})
		r.pass(5 * time.Second)
		got := r.status("web")
		if got == nil {
			t.Error("no status")
			return
		}
		for _, c := range got.Conditions {
			if c.Type == v1.PodReady && !c.LastTransitionTime.Equal(&then) {
				t.Errorf("Ready since %s, want %s", c.LastTransitionTime, then)
			}
		}
		if !got.StartTime.Equal(&then) {
			t.Errorf("started at %s, want %s", got.StartTime, then)
		}
	}, house.ConfigPods.Name, house.PlegPods.Name)
}

// TestAManifestThatComesMeanwhile: the answer of config comes while status looks at a mirror
// of which it had found no static pod. That pod is not known to be absent: its mirror stays.
func TestAManifestThatComesMeanwhile(t *testing.T) {
	inRoundsAfter(t, nil, func(r *rounds) {
		m, p := spec("job-n1", "m"), spec("job-n1", "s")
		m.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "s"}
		data, err := m.Marshal()
		if err != nil {
			t.Error(err)
		}
		r.must(r.mirrors.Set(t.Context(), "default/job-n1", &configv1.Object{Kind: "Pod", Namespace: "default", Name: "job-n1", Object: data}))
		if data, err = p.Marshal(); err != nil {
			t.Error(err)
		}
		r.must(r.pods.Set(t.Context(), "s", &configv1.DesiredPod{Pod: data, Source: "file", SeenAt: timestamppb.Now()}))
		r.must(r.sources.Set(t.Context(), "file", &configv1.Source{Name: "file", Complete: true}))
		r.meanwhile(func() {
			r.comes(house.ConfigPods.Name, r.loop.in.pods.Pull)
			r.comes(house.ConfigSources.Name, r.loop.in.sources.Pull)
			r.meanwhile(func() { // the first look after that
				if n := r.loop.desk.Pending(); n > 0 {
					t.Errorf("%d writes are wanted of a mirror that is as it should be", n)
				}
			})
		})
		r.comes(house.ConfigMirrors.Name, r.loop.in.mirrors.Pull)
		r.pass(0)
	}, house.ConfigPods.Name, house.ConfigSources.Name, house.ConfigMirrors.Name)
}

// TestANeighbourThatHangs: podworker, or pleg, is stopped while containers of 200 pods
// end, and does not say what became of them. Their statuses are held, and told when it
// goes on. Those of others follow their readiness all the time.
func TestANeighbourThatHangs(t *testing.T) {
	for _, tt := range []struct {
		name, feed string
		end        func(r *rounds, p *v1.Pod)
		back       func(r *rounds, p *v1.Pod)
	}{
		{
			"podworker", house.PodWorkerPods.Name,
			func(r *rounds, p *v1.Pod) {
				r.must(r.records.Set(t.Context(), string(p.UID), r.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_EXITED, 0)))
			},
			func(*rounds, *v1.Pod) {},
		},
		{
			"pleg", house.PlegPods.Name,
			func(r *rounds, p *v1.Pod) {
				r.must(r.workers.Set(t.Context(), string(p.UID), &podworkerv1.PodState{
					Uid: string(p.UID), Namespace: p.Namespace, Name: p.Name, Source: "api", Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_TERMINATED,
				}))
			},
			func(r *rounds, p *v1.Pod) {
				r.must(r.records.Set(t.Context(), string(p.UID), r.container(p, "c-"+string(p.UID), runtimeapi.ContainerState_CONTAINER_EXITED, 0)))
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inRounds(t, func(r *rounds) {
				var ending []*v1.Pod
				for i := range 200 {
					p := r.runs(fmt.Sprint("e", i))
					ending = append(ending, p)
				}
				r.runs("web")
				r.probed("web", true)
				r.pass(5 * time.Second)
				r.way.hang(tt.feed, true)
				for _, p := range ending {
					tt.end(r, p)
				}
				r.pass(5 * time.Second)
				before := r.way.pulled(tt.feed)
				for i := range 60 {
					r.probed("web", i%2 == 1)
					r.pass(200 * time.Millisecond)
					if got := isReady(&v1.Pod{Status: *r.status("web")}); got != (i%2 == 1) {
						t.Fatalf("change %d: Ready is %t after 200 ms", i, got)
					}
					r.pass(300 * time.Millisecond)
				}
				if n := r.way.pulled(tt.feed) - before; n > 40 {
					t.Errorf("it was asked %d times in 30 s", n)
				}
				for _, p := range ending {
					if got := r.status(string(p.UID)).Phase; got != v1.PodRunning {
						t.Fatalf("%s is %s on a guess", p.Name, got)
					}
					tt.back(r, p)
				}
				r.way.hang(tt.feed, false)
				r.pass(retryHeld + askLimit)
				for _, p := range ending {
					if s := r.status(string(p.UID)); s.ContainerStatuses[0].State.Terminated == nil {
						t.Fatalf("%s: %+v after its neighbour is back", p.Name, s.ContainerStatuses)
					}
				}
			})
		})
	}
}

// TestJournalIsBehind: status was killed after it had written that a pod runs and before
// that was in its journal, in the second in which the pod was created. The container is
// gone when status is back: the pod does not become Pending again.
func TestJournalIsBehind(t *testing.T) {
	created := metav1.Unix(1, 0)
	scheduled := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: created}}
	journaled := &v1.PodStatus{Phase: v1.PodPending, Conditions: scheduled, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}}
	inRoundsAfter(t, map[string]*v1.PodStatus{"web": journaled}, func(r *rounds) {
		p := spec("web", "web")
		p.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: scheduled, ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", ContainerID: "containerd://c-web", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: created}}},
		}}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		r.must(r.pods.Set(t.Context(), "web", &configv1.DesiredPod{Pod: data, Source: "api", SeenAt: timestamppb.Now()}))
		r.pass(5 * time.Second) // config lists what podworker has
		r.must(r.workers.Set(t.Context(), "web", &podworkerv1.PodState{
			Uid: "web", Namespace: p.Namespace, Name: p.Name, Pod: data, Source: "api",
			Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_TERMINATING, AdmittedAt: timestamppb.Now(),
		}))
		r.must(r.records.Set(t.Context(), "web", &plegv1.PodRecord{Uid: "web"}))
		r.pass(5 * time.Second)
		if s := r.status("web"); s == nil || s.Phase == v1.PodPending {
			t.Errorf("%+v", s)
		}
		if s := r.loop.desk.Object("web"); s == nil {
			t.Error("nothing is known of the pod: the test proves nothing")
		}
	})
}

// TestTheHealthOfDevices follows what resource says of them.
func TestTheHealthOfDevices(t *testing.T) {
	inRounds(t, func(r *rounds) {
		r.runs("web")
		for _, health := range []string{"Healthy", "Unhealthy", "Unknown"} {
			r.must(r.allocations.Set(t.Context(), "web", &resourcev1.PodAllocation{Uid: "web", DeviceHealth: []*resourcev1.DeviceHealth{
				{Container: "c", Resource: "example.com/gpu", Id: "a", Health: health}, {Container: "c", Resource: "example.com/gpu", Id: "b", Health: "Healthy"},
				{Container: "c", Resource: "claim:nic", Id: "a", Health: health, Message: "link of " + health},
			}}))
			r.pass(5 * time.Second)
			want := []v1.ResourceStatus{
				{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: v1.ResourceHealthStatus(health)}, {ResourceID: "b", Health: "Healthy"}}},
				{Name: "claim:nic", Resources: []v1.ResourceHealth{{ResourceID: "a", Health: v1.ResourceHealthStatus(health), Message: new("link of " + health)}}},
			}
			if d := cmp.Diff(want, r.status("web").ContainerStatuses[0].AllocatedResourcesStatus); d != "" {
				t.Error(d)
			}
		}
		r.must(r.allocations.Set(t.Context(), "web", &resourcev1.PodAllocation{Uid: "web"}))
		r.pass(5 * time.Second)
		if left := r.status("web").ContainerStatuses[0].AllocatedResourcesStatus; len(left) > 0 {
			t.Errorf("%v after resource has no more to say", left)
		}
	})
}

// TestOOMKilledAfterTheExit: the runtime says Error, and then resource that the kernel killed a
// process of the container for want of memory. That stands when resource does not know of it
// any more.
func TestOOMKilledAfterTheExit(t *testing.T) {
	inRounds(t, func(r *rounds) {
		p := r.runs("web")
		exited := r.container(p, "c-web", runtimeapi.ContainerState_CONTAINER_EXITED, 0)
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(exited.GetContainers()[0], c); err != nil {
			t.Fatal(err)
		}
		c.ExitCode, c.Reason = 137, "Error"
		exited.Containers[0] = encode(t, c)
		r.must(r.records.Set(t.Context(), "web", exited))
		for _, step := range []struct {
			killed []string
			want   string
		}{
			{nil, "Error"}, {[]string{"c-other"}, "Error"}, {[]string{"c-web"}, "OOMKilled"}, {nil, "OOMKilled"},
		} {
			r.must(r.allocations.Set(t.Context(), "web", &resourcev1.PodAllocation{Uid: "web", OomKilled: step.killed}))
			r.pass(5 * time.Second)
			if s := r.status("web").ContainerStatuses[0].State.Terminated; s == nil || s.Reason != step.want {
				t.Errorf("resource says %q: %v, want %s", step.killed, s, step.want)
			}
		}
	})
}

// TestEveryPodIsLookedAtAgain: whatever else there is to do, and whoever is held.
func TestEveryPodIsLookedAtAgain(t *testing.T) {
	inRounds(t, func(r *rounds) {
		r.runs("quiet")
		held := r.runs("held")
		r.runs("busy")
		r.pass(5 * time.Second)
		r.way.hang(house.PodWorkerPods.Name, true)
		r.must(r.records.Set(t.Context(), "held", r.container(held, "c-held", runtimeapi.ContainerState_CONTAINER_EXITED, 0)))
		r.node.mu.Lock()
		r.node.ip = "192.0.2.2" // nothing is marked for that
		r.node.mu.Unlock()
		for i := range 2 * int(resync/time.Second) {
			r.probed("busy", i%2 == 0)
			r.pass(time.Second / 2)
		}
		if got := r.status("quiet").HostIP; got != "192.0.2.2" {
			t.Errorf("a pod that nothing happened to was not looked at: %s", got)
		}
	})
}
