// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
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
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/feedtest"
)

// node is a whole house in one process: a fake runtime, the real actuators, and
// small stand-ins that own the other services' feeds.
type node struct {
	t     *testing.T
	wire  *busWire
	clock *clocktesting.FakeClock
	rt    *fakecri.Runtime
	cri   runtimeapi.RuntimeServiceClient
	ic    runtimeapi.ImageServiceClient
	dir   string
	local feedtest.Local

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
	// calm is after how much calm removals begin.
	calm time.Duration

	pleg    *plegStandIn
	calls   calls // to the stand-ins
	witness *witness

	mu        sync.Mutex
	answer    func(*v1.Pod, bool) *resourcev1.AdmitResponse
	inactive  []string // as the last admission has them
	admitted  []string
	deaf      bool     // pleg notices nothing by itself: no event arrives
	busy      bool     // a pod's cgroup is not empty, and is not released
	releasing []string // UIDs of pods that resource was asked to release
	full      bool     // resource has no room for a resize
	declared  *v1.Pod  // as volume was told of it last
	given     []*resourcev1.ContainerAllocation
	shared    string
	edit      func(*kubeletconfig.Config) // of the configuration; nil for none
	events    []string

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

func newOwner[M proto.Message](n *node, f house.FeedOf[M], complete bool) *feed.Owner[M] {
	o := feed.NewOwner[M](f.Name, "epoch", n.wire)
	o.SetComplete(context.Background(), complete)
	n.local[f.Name] = o
	return o
}

func newNode(t *testing.T, images ...fakecri.Image) *node {
	t.Helper()
	n := &node{
		t: t, wire: &busWire{looks: map[string]map[int]func(feed.Revision){}, changed: make(chan struct{})},
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), dir: t.TempDir(), local: feedtest.Local{},
	}
	n.witness = &witness{n: n}
	n.pleg = &plegStandIn{n: n, pods: map[string]*sync.Mutex{}}
	n.rt = fakecri.Start(t, fakecri.Config{Clock: n.clock, Images: images})
	conn := n.rt.Conn(t)
	n.cri, n.ic = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	n.pods = newOwner(n, house.ConfigPods, true)
	n.sources = newOwner(n, house.ConfigSources, true)
	n.objects = newOwner(n, house.ConfigObjects, true)
	n.secrets = newOwner(n, house.ConfigSecrets, true)
	n.kubelet = newOwner(n, house.ConfigKubelet, true)
	n.records = newOwner(n, house.PlegPods, true)
	n.runtime = newOwner(n, house.PlegRuntime, true)
	n.verdicts = newOwner(n, house.ProberVerdicts, true)
	n.volumes = newOwner(n, house.VolumePods, true)
	n.allocations = newOwner(n, house.ResourcePods, true)
	n.capacity = newOwner(n, house.ResourceNode, true)
	n.reports = newOwner(n, house.StatusPods, true)
	n.set(n.capacity.Set(context.Background(), "node", &resourcev1.NodeResources{CgroupVersion: 2}))
	n.answer = func(*v1.Pod, bool) *resourcev1.AdmitResponse {
		return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_ADMITTED}
	}
	n.configure()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { n.pleg.follow(ctx) })
	t.Cleanup(func() {
		n.die()
		cancel()
		watching.Wait()
	})
	return n
}

func (n *node) configure() {
	c := &kubeletconfig.Config{}
	kubeletconfig.SetDefaults(&c.Kubelet)
	none := ""
	c.Kubelet.Kind, c.Kubelet.APIVersion = kubeletconfig.Kind, kubeletconfig.APIVersion
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

func newReplica[M proto.Message, T any](n *node, f house.FeedOf[M], keep func(string, M) (T, error)) *feed.Replica[T] {
	return feed.NewReplica(feed.ReplicaConfig{Feed: f.Name, Puller: n.wire.puller(n.local), Listener: n.wire, Log: slog.New(slog.DiscardHandler)}, feed.Decoder(keep))
}

// live starts podworker on the node's state folder.
func (n *node) live() {
	n.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("PODWORKER_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	in := &Inputs{
		Pods:        newReplica(n, house.ConfigPods, decodeDesired),
		Sources:     newReplica(n, house.ConfigSources, feed.Whole[*configv1.Source]),
		Objects:     newReplica(n, house.ConfigObjects, decodeObject),
		Secrets:     newReplica(n, house.ConfigSecrets, decodeObject),
		Kubelet:     newReplica(n, house.ConfigKubelet, decodeConfiguration),
		Records:     newReplica(n, house.PlegPods, observe.Decode),
		Runtime:     newReplica(n, house.PlegRuntime, decodeRuntime),
		Verdicts:    newReplica(n, house.ProberVerdicts, decodeVerdicts),
		Volumes:     newReplica(n, house.VolumePods, feed.Whole[*volumev1.PodVolumes]),
		Allocations: newReplica(n, house.ResourcePods, feed.Whole[*resourcev1.PodAllocation]),
		Node:        newReplica(n, house.ResourceNode, feed.Whole[*resourcev1.NodeResources]),
		Reports:     newReplica(n, house.StatusPods, feed.Whole[*statusv1.PodReport]),
	}
	j, _, err := journal.Open(store.Config{Path: filepath.Join(n.dir, "state", journal.FileName), Log: log})
	n.must(err)
	config := newCurrentConfig()
	look := &lookups{in: in, rootDir: n.dir, config: config}
	events := recorder{n}
	n.metrics = prometheus.NewRegistry()
	actuator := actuate.New(actuate.Config{
		RootDir: filepath.Join(n.dir, "kubelet"), PodLogsDir: filepath.Join(n.dir, "pods"), LegacyLogsDir: filepath.Join(n.dir, "containers"),
	}, actuate.Deps{
		Runtime: witnessedRuntime{n.cri, n.witness}, Images: n.ic, Lookups: look, Configuration: config,
		Events: events, Clock: n.clock, Log: log, Metrics: n.metrics,
	})
	m := newMetrics(n.metrics)
	n.states = feed.NewOwner[*podworkerv1.PodState](house.PodWorkerPods.Name, "epoch", n.wire)
	n.nodeState = feed.NewOwner[*podworkerv1.NodeState](house.PodWorkerNode.Name, "epoch", n.wire)
	end, err := newNodeEnd(&nodeEnd{
		journal: j, report: n.nodeState, metrics: m, clock: n.clock, log: log, boot: n.boot,
		tell: func(_ context.Context, _, reason, message string) { events.add(reason + " node " + message) },
	}, n.logind)
	n.must(err)
	l := newLoop(loopConfig{rootDir: filepath.Join(n.dir, "kubelet"), podLogsDir: filepath.Join(n.dir, "pods")}, loopDeps{
		in: in, config: config, lookups: look, journal: j, pleg: n.pleg,
		sandboxes:  witnessedSandboxes{actuator, n.witness},
		containers: &witnessedContainers{Containers: actuator, w: n.witness, failed: map[string]time.Time{}},
		volume:     witnessedVolumes{volumeStandIn{n}, n.witness}, resource: witnessedResources{resourceStandIn{n}, n.witness},
		states: n.states, events: events, clock: n.clock, calm: newCalm(n.clock, n.calm), metrics: m, log: log, end: end, serving: func() {}, waiting: func(string) {}, beat: func() {},
	})
	n.loop = l
	n.must(n.metrics.Register(census{l}))
	ctx, cancel := context.WithCancel(context.Background())
	n.life = &life{cancel: cancel, done: make(chan struct{}), journal: j}
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{
		in.Pods.Run, in.Sources.Run, in.Objects.Run, in.Secrets.Run, in.Kubelet.Run, in.Records.Run, in.Runtime.Run,
		in.Verdicts.Run, in.Volumes.Run, in.Allocations.Run, in.Node.Run, in.Reports.Run, l.run, end.machine.run,
		tidier{in: in, actuator: actuator, clock: n.clock, log: log}.run,
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
	n.witness.looking.Lock() // calls that are judged have ended, and later ones have a context that has
	defer n.witness.looking.Unlock()
	if err := n.life.journal.Close(); err != nil {
		n.t.Error(err)
	}
	n.life = nil
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
	source := p.Annotations[pod.ConfigSourceAnnotation]
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
