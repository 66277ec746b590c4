// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/fakeapi"
)

// home is a node for tests: the real service with its real sockets, bus and store,
// between neighbours that only own their feeds, before a fake API server over HTTP.
type home struct {
	t       testing.TB
	paths   house.Paths
	log     *slog.Logger
	cluster *fakeapi.Cluster
	config  *kubeletconfig.Config
	url     string

	mu         sync.Mutex
	neighbours map[house.Service]*neighbour
	stop       context.CancelFunc // of status
	stopped    chan struct{}
	svc        *Service

	static map[string]*v1.Pod // what the manifests say, by UID
	// silent is since when the runtime does not answer; nil when it does.
	silent *timestamppb.Timestamp
	// unheard: config has not heard the API server, and lists what it once was told.
	unheard bool
	// unapart: config is of the former version, whose pods carry their status.
	unapart bool
	// strange: config has just come to the node, and knows of no mirror yet.
	strange bool
	// searching: podworker does not know yet whether it has looked at all pods.
	searching bool
	pods      map[string]*testPod // by UID
}

type neighbour struct {
	kit     *service.Kit
	stop    context.CancelFunc
	stopped chan struct{}
	publish func()
	events  *feed.Events
}

func newHome(t testing.TB, change func(*kubeletconfig.Config)) *home {
	t.Helper()
	dir, err := os.MkdirTemp("", "sx") // short: socket paths are limited
	if err != nil {
		t.Fatal(err)
	}
	h := &home{
		t: t, paths: house.Paths{Run: filepath.Join(dir, "r"), State: filepath.Join(dir, "s")},
		log: slog.New(slog.DiscardHandler), cluster: fakeapi.New(),
		neighbours: map[house.Service]*neighbour{}, static: map[string]*v1.Pod{}, pods: map[string]*testPod{},
	}
	if os.Getenv("STATUS_TEST_LOG") != "" {
		h.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	server, kubeconfig, err := h.cluster.Serve(dir)
	if err != nil {
		t.Fatal(err)
	}
	h.url = server.URL
	h.config = &kubeletconfig.Config{}
	h.config.Kubelet.Kind, h.config.Kubelet.APIVersion = kubeletconfig.Kind, kubeletconfig.APIVersion
	h.config.Kubelet.ContentType = "application/vnd.kubernetes.protobuf"
	h.config.Kubelet.Port = 10250
	h.config.Kubelet.NodeLeaseDurationSeconds = 40
	h.config.Node.Name, h.config.Node.KubeConfig = "n1", kubeconfig
	if change != nil {
		change(h.config)
	}
	h.startBus()
	for _, s := range []house.Service{house.Config, house.PodWorker, house.Pleg, house.Prober, house.Volume, house.Resource} {
		h.start(s)
	}
	h.startStatus()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // config's watch of the API server
		_ = h.cluster.Eventually(ctx, func() bool { h.refresh(house.Config); return false }) // ends with ctx
	}()
	t.Cleanup(func() {
		cancel()
		h.stopStatus()
		for s := range h.neighbours {
			h.kill(s)
		}
		server.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *home) startBus() {
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = uint32(os.Geteuid())
	}
	if err := bus.EnsureKeys(h.paths.BusKeys(), ids); err != nil {
		h.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(h.paths.BusAddress()), 0o755); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		server := bus.NewServer(bus.ServerConfig{Keys: h.paths.BusKeys(), AddressFile: h.paths.BusAddress(), Log: h.log})
		if err := server.Run(ctx, func() { close(ready) }); err != nil {
			h.t.Errorf("bus: %v", err)
		}
	}()
	h.t.Cleanup(func() { cancel(); <-done })
	select {
	case <-ready:
	case <-done:
		h.t.FailNow()
	}
}

func (h *home) kit(s house.Service) *service.Kit {
	kit, err := service.New(service.Options{Service: s, Paths: h.paths, Log: h.log})
	if err != nil {
		h.t.Fatal(err)
	}
	return kit
}

func run(t testing.TB, kit *service.Kit) (stop context.CancelFunc, stopped chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := kit.Run(ctx); err != nil {
			t.Errorf("%s: %v", kit.Service, err)
		}
	}()
	return cancel, done
}

// start starts a neighbour with what the node has now.
func (h *home) start(s house.Service) {
	h.begin(s)
	h.refresh(s)
}

// begin starts a neighbour that has nothing yet: it is incomplete, as a real one.
func (h *home) begin(s house.Service) {
	kit := h.kit(s)
	n := &neighbour{kit: kit}
	switch s {
	case house.Config:
		n.publish = h.configFeeds(kit)
		n.events = kit.Events()
	case house.PodWorker:
		n.publish = publisher(h, kit, house.PodWorkerPods, func(p *testPod) *podworkerv1.PodState { return p.state })
		n.events = kit.Events()
		one(h, kit, house.PodWorkerNode, "node", &podworkerv1.NodeState{Stage: podworkerv1.ShutdownStage_SHUTDOWN_STAGE_STAYING})
		one(h, kit, house.PodWorkerImages, "images", &podworkerv1.Images{Images: []*podworkerv1.Image{{Names: []string{"pause"}, SizeBytes: 1}}})
	case house.Pleg:
		n.publish = publisher(h, kit, house.PlegPods, func(p *testPod) *plegv1.PodRecord { return p.record })
		status, err := proto.Marshal(&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true},
		}}})
		if err != nil {
			h.t.Fatal(err)
		}
		runtime := service.Owner(kit, house.PlegRuntime)
		publish := n.publish
		since := timestamppb.Now()
		state := func(state *plegv1.RuntimeState) {
			if _, err := runtime.Set(context.Background(), "runtime", state); err != nil {
				h.t.Error(err)
			}
		}
		state(&plegv1.RuntimeState{Since: since, Error: "no such socket"})
		runtime.SetComplete(context.Background(), true)
		n.publish = func() {
			publish()
			answers := &plegv1.RuntimeState{Name: "containerd", Version: "2", Responding: true, Since: since, Status: status}
			if h.silent != nil {
				answers.Responding, answers.Since = false, h.silent
			}
			state(answers)
		}
	case house.Prober:
		n.publish = publisher(h, kit, house.ProberVerdicts, func(p *testPod) *proberv1.PodVerdicts { return p.verdicts })
		n.events = kit.Events()
	case house.Volume:
		n.events = kit.Events()
		one(h, kit, house.VolumeNode, "node", &volumev1.VolumeNode{})
	case house.Resource:
		n.publish = publisher(h, kit, house.ResourcePods, func(*testPod) *resourcev1.PodAllocation { return nil })
		n.events = kit.Events()
		one(h, kit, house.ResourceNode, "node", &resourcev1.NodeResources{
			Capacity:    map[string]string{"cpu": "2", "memory": "4Gi", "pods": "110", "ephemeral-storage": "9Gi"},
			Allocatable: map[string]string{"cpu": "2", "memory": "3Gi", "pods": "110", "ephemeral-storage": "8Gi"},
			BootId:      "boot-1", OperatingSystem: "linux", Architecture: "amd64",
		})
	}
	h.mu.Lock()
	h.neighbours[s] = n
	h.mu.Unlock()
	n.stop, n.stopped = run(h.t, kit)
	// What was published before the bus was there was announced to nobody.
	h.quietly(kit.Bus.Connected)
	for _, f := range kit.Hello().GetFeeds() {
		kit.Bus.Announce(context.Background(), f.GetName(), "", feed.RevisionFrom(f.GetRevision()))
	}
}

func (h *home) kill(s house.Service) {
	n := h.neighbours[s]
	n.stop()
	<-n.stopped
}

// refresh makes a neighbour publish what the node has now.
func (h *home) refresh(s house.Service) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.neighbours[s]; n != nil && n.publish != nil {
		n.publish()
	}
}

func (h *home) startStatus() {
	h.t.Helper()
	kit := h.kit(house.Status)
	svc, err := New(Config{}, Deps{Kit: kit})
	if err != nil {
		h.t.Fatal(err)
	}
	h.svc = svc
	h.stop, h.stopped = run(h.t, kit)
}

func (h *home) stopStatus() { h.stop(); <-h.stopped }

// testPod is what podworker, pleg and prober hold of a pod.
type testPod struct {
	state    *podworkerv1.PodState
	record   *plegv1.PodRecord
	verdicts *proberv1.PodVerdicts
}

// one publishes a feed of one item.
func one[M proto.Message](h *home, kit *service.Kit, f house.FeedOf[M], key string, m M) {
	o := service.Owner(kit, f)
	if _, err := o.Set(context.Background(), key, m); err != nil {
		h.t.Fatal(err)
	}
	o.SetComplete(context.Background(), true)
}

// publisher publishes one message a pod; nil ones are deleted.
func publisher[M proto.Message](h *home, kit *service.Kit, f house.FeedOf[M], of func(*testPod) M) func() {
	o := service.Owner(kit, f)
	return func() {
		ctx := context.Background()
		seen := map[string]bool{}
		for uid, p := range h.pods {
			m := of(p)
			if !m.ProtoReflect().IsValid() {
				continue
			}
			seen[uid] = true
			if _, err := o.Set(ctx, uid, m); err != nil {
				h.t.Error(err)
			}
		}
		for _, uid := range o.Keys() {
			if !seen[uid] {
				o.Delete(ctx, uid)
			}
		}
		o.SetComplete(ctx, !h.searching || f.Name != house.PodWorkerPods.Name)
	}
}

func (h *home) configFeeds(kit *service.Kit) func() {
	data, err := h.config.Marshal()
	if err != nil {
		h.t.Fatal(err)
	}
	one(h, kit, house.ConfigKubelet, "kubelet", &configv1.KubeletConfig{Config: data})
	credential := service.Owner(kit, house.ConfigCredential)
	sources := service.Owner(kit, house.ConfigSources)
	pods := service.Owner(kit, house.ConfigPods)
	statuses := service.Owner(kit, house.ConfigStatuses)
	mirrors := service.Owner(kit, house.ConfigMirrors)
	objects := service.Owner(kit, house.ConfigObjects)
	ctx := context.Background()
	set := func(err error) {
		if err != nil {
			h.t.Error(err)
		}
	}
	marshal := func(m interface{ Marshal() ([]byte, error) }) []byte {
		data, err := m.Marshal()
		set(err)
		return data
	}
	seenAt := map[string]*timestamppb.Timestamp{}
	seen := func(uid string) *timestamppb.Timestamp {
		if seenAt[uid] == nil {
			seenAt[uid] = timestamppb.Now()
		}
		return seenAt[uid]
	}
	var heardAt *feedv1.Revision
	_, err = sources.Set(ctx, "api", &configv1.Source{Name: "api"})
	set(err)
	sources.SetComplete(ctx, true)
	return func() {
		if data, err := os.ReadFile(h.config.Node.KubeConfig); err == nil {
			_, err := credential.Set(ctx, credentialKey, &configv1.Credential{Kubeconfig: data})
			set(err)
		}
		credential.SetComplete(ctx, true)
		_, err := sources.Set(ctx, "file", &configv1.Source{Name: "file", Complete: true})
		set(err)
		listed, mirrored := map[string]bool{}, map[string]bool{}
		for uid, p := range h.static {
			listed[uid] = true
			_, err := pods.Set(ctx, uid, &configv1.DesiredPod{Pod: marshal(p), Source: "file", SeenAt: seen(uid)})
			set(err)
		}
		for _, p := range h.cluster.Pods() {
			if p.Annotations[pod.ConfigMirrorAnnotation] != "" {
				if h.strange {
					continue
				}
				key := p.Namespace + "/" + p.Name
				mirrored[key] = true
				_, err := mirrors.Set(ctx, key, &configv1.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Object: marshal(p)})
				set(err)
				continue
			}
			listed[string(p.UID)] = true
			if !h.unheard && !h.unapart {
				_, err := statuses.Set(ctx, string(p.UID), &configv1.Object{Kind: "Pod", Object: marshal(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp,
				}, Status: p.Status})})
				set(err)
			}
			if h.unheard || !h.unapart {
				p.Status, p.ResourceVersion = v1.PodStatus{Phase: v1.PodPending}, "1"
			}
			_, err := pods.Set(ctx, string(p.UID), &configv1.DesiredPod{Pod: marshal(p), Source: "api", SeenAt: seen(string(p.UID)), StatusApart: !h.unapart})
			set(err)
		}
		for _, uid := range pods.Keys() {
			if !listed[uid] {
				pods.Delete(ctx, uid)
				statuses.Delete(ctx, uid)
			}
		}
		for _, key := range mirrors.Keys() {
			if !mirrored[key] {
				mirrors.Delete(ctx, key)
			}
		}
		if n := h.cluster.Node("n1"); n != nil {
			_, err := objects.Set(ctx, "Node//n1", &configv1.Object{Kind: "Node", Name: "n1", Object: marshal(n)})
			set(err)
		}
		statuses.SetComplete(ctx, !h.unheard)
		pods.SetComplete(ctx, !h.unheard)
		api := &configv1.Source{Name: "api", Complete: !h.unheard}
		if api.GetComplete() && heardAt == nil {
			revision, _, _ := pods.State()
			heardAt = revision.Proto()
		}
		if api.GetComplete() {
			api.PodsRevision = heardAt
		}
		_, err = sources.Set(ctx, "api", api)
		set(err)
		sources.SetComplete(ctx, true)
		mirrors.SetComplete(ctx, !h.unheard && !h.strange)
		objects.SetComplete(ctx, true)
	}
}

// spec is a pod with one container that has a readiness probe.
func spec(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Now()},
		Spec: v1.PodSpec{NodeName: "n1", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
			Name: "c", Image: "pause", ReadinessProbe: &v1.Probe{},
		}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// work makes podworker, pleg and prober hold a pod in a state.
func (h *home) work(p *v1.Pod, change func(t *testPod)) {
	h.t.Helper()
	data, err := p.Marshal()
	if err != nil {
		h.t.Fatal(err)
	}
	uid := string(p.UID)
	h.mu.Lock()
	t := h.pods[uid]
	if t == nil {
		t = &testPod{state: &podworkerv1.PodState{
			Uid: uid, Namespace: p.Namespace, Name: p.Name, Pod: data,
			Lifecycle: podworkerv1.Lifecycle_LIFECYCLE_SYNCING, AdmittedAt: timestamppb.Now(),
		}}
		h.pods[uid] = t
	}
	change(t)
	h.mu.Unlock()
	for _, s := range []house.Service{house.PodWorker, house.Pleg, house.Prober} {
		h.refresh(s)
	}
}

var startedAt = time.Now().Add(-time.Minute)

// container puts the pod's container into a state, in a ready sandbox.
func (h *home) container(p *v1.Pod, id string, state runtimeapi.ContainerState, exit int32) *plegv1.PodRecord {
	h.t.Helper()
	marshal := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			h.t.Fatal(err)
		}
		return data
	}
	annotations, err := pod.ContainerAnnotations(p, &p.Spec.Containers[0], 0, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	c := &runtimeapi.ContainerStatus{
		Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "pause"},
		CreatedAt: startedAt.UnixNano(), StartedAt: startedAt.UnixNano(),
		Labels: pod.ContainerLabels(p, &p.Spec.Containers[0]), Annotations: annotations,
	}
	sandbox := &runtimeapi.PodSandboxStatus{
		Id: "sb-" + id, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: startedAt.UnixNano(),
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.244.0.7"}, Labels: pod.SandboxLabels(p),
	}
	if state == runtimeapi.ContainerState_CONTAINER_EXITED {
		c.FinishedAt, c.ExitCode, c.Reason = time.Now().UnixNano(), exit, "Completed"
		sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &plegv1.PodRecord{
		Uid: string(p.UID), Namespace: p.Namespace, Name: p.Name,
		Sandboxes: [][]byte{marshal(sandbox)}, Containers: [][]byte{marshal(c)}, SandboxOf: map[string]string{id: sandbox.Id},
	}
}

// up makes a pod run and be ready.
func (h *home) up(p *v1.Pod) {
	id := "c-" + string(p.UID)
	record := h.container(p, id, runtimeapi.ContainerState_CONTAINER_RUNNING, 0)
	h.work(p, func(t *testPod) {
		t.record = record
		t.verdicts = &proberv1.PodVerdicts{Uid: string(p.UID), Verdicts: []*proberv1.Verdict{{
			Container: "c", ContainerId: id, Kind: proberv1.ProbeKind_PROBE_KIND_READINESS, Result: proberv1.Result_RESULT_SUCCESS,
		}}}
	})
}

func isReady(p *v1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// eventually waits for the API server to be in a state.
func (h *home) eventually(what string, check func() bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	if err := h.cluster.Eventually(ctx, check); err != nil {
		var last []string
		for _, r := range h.cluster.Requests("", "") {
			last = append(last, r.String())
		}
		h.t.Fatalf("never: %s\nrequests:\n  %s", what, strings.Join(last, "\n  "))
	}
}

// quietly waits for something the API server does not show.
func (h *home) quietly(check func() bool) {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !check() {
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatal("never")
		}
	}
}

// quiet waits until the service has taken in what its neighbours have, and has
// nothing to write.
func (h *home) quiet() {
	h.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for calm := 0; calm < 15; {
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatal("the service does not come to rest")
		}
		calm++
		if h.svc.desk.Pending() > 0 || !h.replicasAgree() {
			calm = 0
		}
	}
}

// replicasAgree reports whether every replica has what its owner has.
func (h *home) replicasAgree() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	owned := map[string]string{}
	for _, n := range h.neighbours {
		for _, f := range n.kit.Hello().GetFeeds() {
			owned[f.GetName()] = feed.RevisionFrom(f.GetRevision()).String()
		}
	}
	for _, m := range h.svc.kit.Hello().GetMirrors() {
		if want := owned[m.GetName()]; want != feed.RevisionFrom(m.GetRevision()).String() {
			return false
		}
	}
	return true
}

func podEvent(p *v1.Pod, reason string) *eventv1.Event {
	return &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)},
		Type:   "Normal", Reason: reason, Message: fmt.Sprintf("%s of %s", reason, p.Name), Time: timestamppb.Now(),
	}
}
