package podworker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
	"github.com/sextant-node/sextant/test/fakecri"
)

// wire carries announcements inside the process, and tells of every one.
type wire struct {
	mu      sync.Mutex
	looks   map[string]map[int]func(feed.Revision)
	serial  int
	changed chan struct{}
}

func (b *wire) Announce(_ context.Context, name, _ string, revision feed.Revision) {
	b.mu.Lock()
	var looks []func(feed.Revision)
	for _, look := range b.looks[name] {
		looks = append(looks, look)
	}
	b.mu.Unlock()
	for _, look := range looks {
		look(revision)
	}
	b.tell()
}

func (b *wire) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *wire) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *wire) Listen(name string, look func(feed.Revision)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looks[name] == nil {
		b.looks[name] = map[int]func(feed.Revision){}
	}
	b.serial++
	id := b.serial
	b.looks[name][id] = look
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.looks[name], id)
	}
}

func (b *wire) Connected() bool { return true }

// node is a whole house in one process: a fake runtime, the real actuators, and
// small stand-ins that own the other services' feeds.
type node struct {
	t     *testing.T
	wire  *wire
	clock *clocktesting.FakeClock
	rt    *fakecri.Runtime
	cri   runtimeapi.RuntimeServiceClient
	ic    runtimeapi.ImageServiceClient
	dir   string
	local feed.Local

	pods        *feed.Owner[*configv1.DesiredPod]
	sources     *feed.Owner[*configv1.Source]
	objects     *feed.Owner[*configv1.Object]
	secrets     *feed.Owner[*configv1.Object]
	kubelet     *feed.Owner[*configv1.KubeletConfig]
	records     *feed.Owner[*plegv1.PodRecord]
	runtime     *feed.Owner[*plegv1.RuntimeState]
	verdicts    *feed.Owner[*proberv1.PodVerdicts]
	volumes     *feed.Owner[*volumev1.PodVolumes]
	allocations *feed.Owner[*resourcev1.PodAllocation]
	capacity    *feed.Owner[*resourcev1.NodeResources]
	reports     *feed.Owner[*statusv1.PodReport]

	// logind is what the node connects to; nil for nothing. boot is the boot ID.
	logind func(ctx context.Context) (host, error)
	boot   string

	mu       sync.Mutex
	answer   func(*v1.Pod, bool) *resourcev1.AdmitResponse
	admitted []string
	plegAway bool
	volAway  bool
	full     bool                   // resource has no room for a resize
	edit     func(*kubeconf.Config) // of the configuration; nil for none
	events   []string

	// Of the life of podworker that runs now.
	states    *feed.Owner[*podworkerv1.PodState]
	nodeState *feed.Owner[*podworkerv1.NodeState]
	loop      *loop
	life      *life
	// metrics of that life.
	metrics *prometheus.Registry
}

type life struct {
	cancel  context.CancelFunc
	done    chan struct{}
	journal *journal.Journal
}

func newOwner[M proto.Message](n *node, name string, complete bool) *feed.Owner[M] {
	o := feed.NewOwner[M](name, "epoch", n.wire)
	o.SetComplete(context.Background(), complete)
	n.local[name] = o
	return o
}

func newNode(t *testing.T, images ...fakecri.Image) *node {
	t.Helper()
	n := &node{
		t: t, wire: &wire{looks: map[string]map[int]func(feed.Revision){}, changed: make(chan struct{})},
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), dir: t.TempDir(), local: feed.Local{},
	}
	n.rt = fakecri.Start(t, fakecri.Config{Clock: n.clock, Images: images})
	conn := n.rt.Conn(t)
	n.cri, n.ic = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	n.pods = newOwner[*configv1.DesiredPod](n, house.ConfigPods, true)
	n.sources = newOwner[*configv1.Source](n, house.ConfigSources, true)
	n.objects = newOwner[*configv1.Object](n, house.ConfigObjects, true)
	n.secrets = newOwner[*configv1.Object](n, house.ConfigSecrets, true)
	n.kubelet = newOwner[*configv1.KubeletConfig](n, house.ConfigKubelet, true)
	n.records = newOwner[*plegv1.PodRecord](n, house.PlegPods, true)
	n.runtime = newOwner[*plegv1.RuntimeState](n, house.PlegRuntime, true)
	n.verdicts = newOwner[*proberv1.PodVerdicts](n, house.ProberVerdicts, true)
	n.volumes = newOwner[*volumev1.PodVolumes](n, house.VolumePods, true)
	n.allocations = newOwner[*resourcev1.PodAllocation](n, house.ResourcePods, true)
	n.capacity = newOwner[*resourcev1.NodeResources](n, house.ResourceNode, true)
	n.reports = newOwner[*statusv1.PodReport](n, house.StatusPods, true)
	n.set(n.capacity.Set(context.Background(), "node", &resourcev1.NodeResources{CgroupVersion: 2}))
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
	}
	n.configure()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { n.relist(ctx) })
	t.Cleanup(func() {
		n.die()
		cancel()
		watching.Wait()
	})
	return n
}

func (n *node) configure() {
	c := &kubeconf.Config{}
	kubeconf.SetDefaults(&c.Kubelet)
	none := ""
	c.Kubelet.Kind, c.Kubelet.APIVersion = kubeconf.Kind, kubeconf.APIVersion
	c.Kubelet.ResolverConfig = &none
	c.Kubelet.RegistryPullQPS = new(int32)
	serialize := false
	c.Kubelet.SerializeImagePulls = &serialize
	c.Node.Name = "n1"
	c.Node.MaxDeadContainersPerContainer, c.Node.MaxDeadContainers = 1, -1
	if n.edit != nil {
		n.edit(c)
	}
	raw, err := c.Marshal()
	n.must(err)
	n.set(n.kubelet.Set(context.Background(), "kubelet", &configv1.KubeletConfig{Generation: 1, Config: raw}))
	answer, err := n.cri.Status(context.Background(), &runtimeapi.StatusRequest{})
	n.must(err)
	packed, err := proto.Marshal(answer)
	n.must(err)
	n.set(n.runtime.Set(context.Background(), "runtime", &plegv1.RuntimeState{Responding: true, Status: packed}))
	n.set(n.sources.Set(context.Background(), "api", &configv1.Source{Name: "api", Complete: true}))
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) set(_ feed.Revision, err error) {
	n.t.Helper()
	n.must(err)
}

func newMirror[T any](n *node, name string, decode func(string, []byte) (T, error)) *feed.Mirror[T] {
	return feed.NewMirror(feed.MirrorConfig{Feed: name, Puller: n.local, Listener: n.wire, Log: slog.New(slog.DiscardHandler)}, decode)
}

// live starts podworker on the node's state folder.
func (n *node) live() {
	n.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("PODWORKER_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	in := &Inputs{
		Pods:        newMirror(n, house.ConfigPods, decodeDesired),
		Sources:     newMirror(n, house.ConfigSources, feed.Message[*configv1.Source]),
		Objects:     newMirror(n, house.ConfigObjects, decodeObject),
		Secrets:     newMirror(n, house.ConfigSecrets, decodeObject),
		Kubelet:     newMirror(n, house.ConfigKubelet, decodeConfiguration),
		Records:     newMirror(n, house.PlegPods, decodeRecord),
		Runtime:     newMirror(n, house.PlegRuntime, decodeRuntime),
		Verdicts:    newMirror(n, house.ProberVerdicts, decodeVerdicts),
		Volumes:     newMirror(n, house.VolumePods, feed.Message[*volumev1.PodVolumes]),
		Allocations: newMirror(n, house.ResourcePods, feed.Message[*resourcev1.PodAllocation]),
		Node:        newMirror(n, house.ResourceNode, feed.Message[*resourcev1.NodeResources]),
		Reports:     newMirror(n, house.StatusPods, feed.Message[*statusv1.PodReport]),
	}
	j, _, err := journal.Open(store.Config{Path: filepath.Join(n.dir, "state", journal.FileName), Log: log})
	n.must(err)
	look := &lookups{in: in}
	events := recorder{n}
	n.metrics = prometheus.NewRegistry()
	var l *loop
	actuator, err := actuate.New(actuate.Config{
		RootDir: filepath.Join(n.dir, "kubelet"), PodLogsDir: filepath.Join(n.dir, "pods"), LegacyLogsDir: filepath.Join(n.dir, "containers"),
	}, actuate.Deps{
		Runtime: n.cri, Images: n.ic, Lookups: look, Configuration: configurationOf(func() *kubeconf.Config { return l.Config() }),
		Events: events, Clock: n.clock, Log: log, Metrics: n.metrics,
	})
	n.must(err)
	m, err := newMetrics(n.metrics)
	n.must(err)
	n.states = feed.NewOwner[*podworkerv1.PodState](house.PodWorkerPods, "epoch", n.wire)
	n.nodeState = feed.NewOwner[*podworkerv1.NodeState](house.PodWorkerNode, "epoch", n.wire)
	end, err := newNodeEnd(&nodeEnd{
		journal: j, report: n.nodeState, metrics: m, clock: n.clock, log: log, boot: n.boot,
		tell: func(_ context.Context, _, reason, message string) { events.add(reason + " node " + message) },
	}, n.logind)
	n.must(err)
	l = newLoop(loopConfig{rootDir: filepath.Join(n.dir, "kubelet"), podLogsDir: filepath.Join(n.dir, "pods")}, loopDeps{
		in: in, lookups: look, journal: j, sandboxes: actuator, containers: actuator,
		volume: volumeStandIn{n}, resource: resourceStandIn{n}, pleg: plegStandIn{n},
		states: n.states, events: events, clock: n.clock, metrics: m, log: log, end: end, serving: func() {}, waiting: func(string) {}, beat: func() {},
	})
	look.config = l.Config
	n.loop = l
	n.must(n.metrics.Register(census{l}))
	ctx, cancel := context.WithCancel(context.Background())
	n.life = &life{cancel: cancel, done: make(chan struct{}), journal: j}
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{
		in.Pods.Run, in.Sources.Run, in.Objects.Run, in.Secrets.Run, in.Kubelet.Run, in.Records.Run, in.Runtime.Run,
		in.Verdicts.Run, in.Volumes.Run, in.Allocations.Run, in.Node.Run, in.Reports.Run, l.run, end.machine.run,
	} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	}
	done := n.life.done
	go func() { parts.Wait(); close(done) }()
}

// die ends the life of podworker as kill -9 does: nothing is finished.
func (n *node) die() {
	if n.life == nil {
		return
	}
	n.life.cancel()
	<-n.life.done
	if err := n.life.journal.Close(); err != nil {
		n.t.Error(err)
	}
	n.life = nil
}

// until waits for a condition, looked at again after every change anywhere.
func (n *node) until(what string, cond func() bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond) // metrics change without a word
	defer look.Stop()
	for {
		next, changed := n.wire.next(), n.rt.Changed()
		if cond() {
			return
		}
		select {
		case <-next:
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			n.t.Fatalf("waited for %s\n%s", what, n.dump())
		}
	}
}

// pass lets time go by, a step at each look, until a condition holds.
func (n *node) pass(what string, step time.Duration, cond func() bool) {
	n.t.Helper()
	deadline := time.After(time.Minute)
	for {
		next, changed := n.wire.next(), n.rt.Changed()
		if cond() {
			return
		}
		look := time.NewTimer(2 * time.Millisecond)
		select {
		case <-next:
		case <-changed:
		case <-look.C: // nothing more happens now
			n.clock.Step(step)
		case <-deadline:
			n.t.Fatalf("waited for %s\n%s", what, n.dump())
		}
		look.Stop()
	}
}

func (n *node) dump() string {
	var b strings.Builder
	for _, key := range n.states.Keys() {
		s, _ := n.states.Get(key)
		s.Pod = nil
		fmt.Fprintf(&b, "%s: %v\n", key, s)
	}
	for _, s := range n.rt.Sandboxes() {
		fmt.Fprintf(&b, "sandbox %s %s/%d %s\n", s.GetId(), s.GetMetadata().GetName(), s.GetMetadata().GetAttempt(), s.GetState())
	}
	for _, c := range n.rt.Containers() {
		fmt.Fprintf(&b, "container %s %s/%d %s exit %d\n", c.GetId(), c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), c.GetState(), c.GetExitCode())
	}
	for _, e := range n.told() {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

func (n *node) state(uid types.UID) *podworkerv1.PodState {
	s, _ := n.states.Get(string(uid))
	return s
}

// desire puts a pod into config.
func (n *node) desire(p *v1.Pod) {
	n.t.Helper()
	raw, err := p.Marshal()
	n.must(err)
	source := pod.Source(p)
	if source == "" {
		source = "api"
	}
	n.set(n.pods.Set(context.Background(), string(p.UID), &configv1.DesiredPod{Pod: raw, Source: source, SeenAt: timestamppb.New(n.clock.Now())}))
}

// deleted is the pod as the API server shows it once it is being deleted.
func (n *node) deleted(p *v1.Pod, grace int64) *v1.Pod {
	d := p.DeepCopy()
	at := metav1.NewTime(n.clock.Now())
	d.DeletionTimestamp, d.DeletionGracePeriodSeconds = &at, &grace
	return d
}

func (n *node) told() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.events...)
}

func (n *node) heard(reason string) bool {
	for _, e := range n.told() {
		if strings.HasPrefix(e, reason+" ") {
			return true
		}
	}
	return false
}

// recorder keeps events.
type recorder struct{ n *node }

func (r recorder) Emit(_ context.Context, e *eventv1.Event) error {
	r.add(e.GetReason() + " " + e.GetObject().GetName() + " " + e.GetMessage())
	return nil
}

func (r recorder) add(text string) {
	r.n.mu.Lock()
	r.n.events = append(r.n.events, text)
	r.n.mu.Unlock()
	r.n.wire.tell()
}

type configurationOf func() *kubeconf.Config

func (f configurationOf) Config() *kubeconf.Config { return f() }

// volumeStandIn mounts everything at once.
type volumeStandIn struct{ n *node }

func (v volumeStandIn) Declare(ctx context.Context, req *volumev1.DeclareRequest, _ ...grpc.CallOption) (*volumev1.DeclareResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	v.n.mu.Lock()
	away := v.n.volAway
	v.n.mu.Unlock()
	if away {
		return nil, rpc.Unavailable.Errorf("volume is away")
	}
	revision, err := v.n.volumes.Set(ctx, string(p.UID), &volumev1.PodVolumes{Uid: string(p.UID), Ready: true})
	return &volumev1.DeclareResponse{Revision: revision.Proto()}, err
}

func (v volumeStandIn) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest, _ ...grpc.CallOption) (*volumev1.WithdrawResponse, error) {
	return &volumev1.WithdrawResponse{Revision: v.n.volumes.Delete(ctx, req.GetUid()).Proto()}, nil
}

// resourceStandIn admits what answer says.
type resourceStandIn struct{ n *node }

func (r resourceStandIn) Admit(ctx context.Context, req *resourcev1.AdmitRequest, _ ...grpc.CallOption) (*resourcev1.AdmitResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	r.n.mu.Lock()
	answer := r.n.answer
	r.n.admitted = append(r.n.admitted, fmt.Sprintf("%s running=%t", p.Name, req.GetRunning()))
	r.n.mu.Unlock()
	resp := answer(p, req.GetRunning())
	if resp.GetDecision() == resourcev1.Decision_DECISION_ADMITTED {
		item, ok := r.n.allocations.Get(string(p.UID))
		if !ok {
			sizes, err := pod.Sizes(p).Marshal()
			if err != nil {
				return nil, err
			}
			item = &resourcev1.PodAllocation{Uid: string(p.UID), Sizes: sizes, Asked: pod.SizesID(p)}
		}
		revision, err := r.n.allocations.Set(ctx, string(p.UID), proto.CloneOf(item))
		if err != nil {
			return nil, err
		}
		resp.Revision = revision.Proto()
	}
	return resp, nil
}

// Resize allocates what is asked for, unless the node has no room.
func (r resourceStandIn) Resize(ctx context.Context, req *resourcev1.ResizeRequest, _ ...grpc.CallOption) (*resourcev1.ResizeResponse, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(req.GetPod()); err != nil {
		return nil, err
	}
	item, ok := r.n.allocations.Get(string(p.UID))
	if !ok {
		return nil, rpc.NotFound.Errorf("pod %s was not admitted", p.UID)
	}
	item = proto.CloneOf(item)
	r.n.mu.Lock()
	full := r.n.full
	r.n.mu.Unlock()
	item.Asked, item.Pending = pod.SizesID(p), nil
	if full {
		item.Pending = &resourcev1.PendingResize{Reason: "Deferred", Message: "no room", Generation: p.Generation}
	} else {
		sizes, err := pod.Sizes(p).Marshal()
		if err != nil {
			return nil, err
		}
		item.Sizes, item.Generation = sizes, p.Generation
		item.Allocation++
	}
	revision, err := r.n.allocations.Set(ctx, string(p.UID), item)
	return &resourcev1.ResizeResponse{Revision: revision.Proto()}, err
}

func (r resourceStandIn) Settle(ctx context.Context, req *resourcev1.SettleRequest, _ ...grpc.CallOption) (*resourcev1.SettleResponse, error) {
	item, ok := r.n.allocations.Get(req.GetUid())
	if !ok || item.GetAllocation() != req.GetAllocation() {
		revision, _, _ := r.n.allocations.State()
		return &resourcev1.SettleResponse{Revision: revision.Proto()}, nil
	}
	item = proto.CloneOf(item)
	item.Settled = req.GetAllocation()
	revision, err := r.n.allocations.Set(ctx, req.GetUid(), item)
	return &resourcev1.SettleResponse{Revision: revision.Proto()}, err
}

func (r resourceStandIn) Release(ctx context.Context, req *resourcev1.ReleaseRequest, _ ...grpc.CallOption) (*resourcev1.ReleaseResponse, error) {
	return &resourcev1.ReleaseResponse{Revision: r.n.allocations.Delete(ctx, req.GetUid()).Proto()}, nil
}

// plegStandIn reads the runtime.
type plegStandIn struct{ n *node }

func (p plegStandIn) Refresh(ctx context.Context, req *plegv1.RefreshRequest, _ ...grpc.CallOption) (*plegv1.RefreshResponse, error) {
	record, revision, err := p.n.observe(ctx, req.GetUid())
	if err != nil {
		return nil, rpc.Unavailable.Errorf("read: %w", err)
	}
	return &plegv1.RefreshResponse{Revision: revision.Proto(), Record: record}, nil
}

// relist follows the runtime, as container events let the real one do.
func (n *node) relist(ctx context.Context) {
	for {
		changed := n.rt.Changed()
		uids := map[string]bool{}
		for _, s := range n.rt.Sandboxes() {
			uids[s.GetLabels()[pod.PodUIDLabel]] = true
		}
		for _, uid := range n.records.Keys() {
			uids[uid] = true
		}
		for uid := range uids {
			if _, _, err := n.observe(ctx, uid); err != nil {
				continue // away, or the runtime is; looked at again with the next change
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

var observing sync.Mutex

// observe reads one pod from the runtime and publishes the record.
func (n *node) observe(ctx context.Context, uid string) (*plegv1.PodRecord, feed.Revision, error) {
	observing.Lock()
	defer observing.Unlock()
	n.mu.Lock()
	away := n.plegAway
	n.mu.Unlock()
	if away {
		return nil, feed.Revision{}, rpc.Unavailable.Errorf("pleg is away")
	}
	labels := map[string]string{pod.PodUIDLabel: uid}
	sandboxes, err := n.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	containers, err := n.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	if len(sandboxes.GetItems())+len(containers.GetContainers()) == 0 {
		return nil, n.records.Delete(ctx, uid), nil
	}
	sort.SliceStable(sandboxes.Items, func(i, j int) bool {
		return sandboxes.Items[i].GetMetadata().GetAttempt() > sandboxes.Items[j].GetMetadata().GetAttempt()
	})
	sort.SliceStable(containers.Containers, func(i, j int) bool {
		return containers.Containers[i].GetMetadata().GetAttempt() > containers.Containers[j].GetMetadata().GetAttempt()
	})
	record := &plegv1.PodRecord{Uid: uid, SandboxOf: map[string]string{}}
	for _, s := range sandboxes.GetItems() {
		record.Name, record.Namespace = s.GetMetadata().GetName(), s.GetMetadata().GetNamespace()
		resp, err := n.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if status.Code(err) == codes.NotFound {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, feed.Revision{}, err
		}
		raw, err := proto.Marshal(resp.GetStatus())
		if err != nil {
			return nil, feed.Revision{}, err
		}
		record.Sandboxes = append(record.Sandboxes, raw)
	}
	for _, c := range containers.GetContainers() {
		resp, err := n.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, feed.Revision{}, err
		}
		raw, err := proto.Marshal(resp.GetStatus())
		if err != nil {
			return nil, feed.Revision{}, err
		}
		record.Containers = append(record.Containers, raw)
		record.SandboxOf[c.GetId()] = c.GetPodSandboxId()
	}
	revision, err := n.records.Set(ctx, uid, record)
	return record, revision, err
}

// web is a pod of one container, made over by edits.
func web(name string, edits ...func(*v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: "web", Image: "fake/sleep", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func command(script string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", script} }
}

func (n *node) running(name string) bool {
	c := n.rt.Container(name, "web")
	return c != nil && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (n *node) lifecycle(uid types.UID, want podworkerv1.Lifecycle) bool {
	return n.state(uid).GetLifecycle() == want
}

func (n *node) waiting(uid types.UID, reason string) bool {
	for _, w := range n.state(uid).GetWaits() {
		if w.GetReason() == reason {
			return true
		}
	}
	return false
}

// firstWait is the wait of the pod's first container that waits; nil for none.
func (n *node) firstWait(uid types.UID) *podworkerv1.ContainerWait {
	if waits := n.state(uid).GetWaits(); len(waits) > 0 {
		return waits[0]
	}
	return nil
}

// settled: the pod is where it should be.
func (n *node) settled(uid types.UID) bool {
	s := n.state(uid)
	return s != nil && s.GetWait() == nil && s.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_SYNCING
}

// flying tells whether an action of the pod is under way.
func (n *node) flying(uid types.UID, key step.Key) bool {
	n.loop.mu.Lock()
	w := n.loop.workers[uid]
	n.loop.mu.Unlock()
	if w == nil {
		return false
	}
	answer := make(chan bool, 1)
	w.post(func() { _, ok := w.flights[key]; answer <- ok })
	select {
	case ok := <-answer:
		return ok
	case <-n.wire.next():
		return false
	}
}

func (n *node) admissions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.admitted...)
}

func (n *node) away(what *bool, is bool) {
	observing.Lock() // no reading of the runtime is half done
	defer observing.Unlock()
	n.mu.Lock()
	*what = is
	n.mu.Unlock()
	n.wire.tell()
}

// forget takes a pod out of config.
func (n *node) forget(uid types.UID) { n.pods.Delete(context.Background(), string(uid)) }

// live sandboxes of a pod.
func (n *node) sandboxesOf(name string) (ready int) {
	for _, s := range n.rt.Sandboxes() {
		if s.GetMetadata().GetName() == name && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	return ready
}

// released: nothing of the pod runs or is held.
func (n *node) released(uid types.UID) bool {
	return n.lifecycle(uid, podworkerv1.Lifecycle_LIFECYCLE_RELEASED)
}
