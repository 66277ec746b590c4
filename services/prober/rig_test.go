// SPDX-License-Identifier: Apache-2.0

package prober_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/standin"
)

// rig is a prober over a fake runtime and a real web server, between stand-ins
// for config and pleg, seen through its socket.
type rig struct {
	*standin.House
	cri      *fakecri.Runtime
	runtime  grpc.ClientConnInterface // cri when nil
	app      *app
	pods     *feed.Owner[*configv1.DesiredPod]
	records  *feed.Owner[*plegv1.PodRecord]
	verdicts *feed.Replica[*proberv1.PodVerdicts]
	events   *feed.Replica[*eventv1.Event]
	ahead    atomic.Int64 // of the real clock, nanoseconds
	made     int          // containers
	kit      *service.Kit
	stop     func()
}

// app is what is probed: /<name> answers what the test says of the name, 200
// unless told otherwise.
type app struct {
	*httptest.Server
	mu    sync.Mutex
	codes map[string]int
	hits  map[string]int
	open  map[string]int // being answered
	hang  map[string]chan struct{}
	body  map[string]string
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	a.mu.Lock()
	a.hits[name]++
	a.open[name]++
	code, hang, body := a.codes[name], a.hang[name], a.body[name]
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open[name]--
	}()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	if code == http.StatusFound {
		http.Redirect(w, r, "http://elsewhere.invalid/", code)
		return
	}
	if code != 0 {
		w.WriteHeader(code)
	}
	_, _ = io.WriteString(w, body) // whoever asked may be gone
}

// says makes a path answer with a body.
func (a *app) says(name, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.body[name] = body
}

// answering is how many requests for a path are under way.
func (a *app) answering(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[name]
}

func (a *app) answer(name string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes[name] = code
}

func (a *app) stuck(name string) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	hang := make(chan struct{})
	a.hang[name] = hang
	return sync.OnceFunc(func() { close(hang) })
}

func (a *app) asked(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hits[name]
}

func (a *app) askedInAll() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, hits := range a.hits {
		n += hits
	}
	return n
}

func (a *app) port(t testing.TB) int {
	t.Helper()
	_, text, err := net.SplitHostPort(a.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{
		House: standin.New(t),
		cri:   fakecri.Start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "fake/sleep"}}}),
		app:   &app{codes: map[string]int{}, hits: map[string]int{}, open: map[string]int{}, hang: map[string]chan struct{}{}, body: map[string]string{}},
	}
	r.app.Server = httptest.NewServer(r.app)
	t.Cleanup(r.app.Close)
	config := r.Kit(house.Config)
	r.pods = service.Owner(config, house.ConfigPods)
	r.Start(config)
	pleg := r.Kit(house.Pleg)
	r.records = service.Owner(pleg, house.PlegPods)
	r.Start(pleg)
	r.start()
	r.verdicts = standin.Read(r.House, house.ProberVerdicts)
	r.events = standin.Read(r.House, house.ProberEvents)
	return r
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

func (r *rig) start() {
	r.Helper()
	r.kit = r.Kit(house.Prober)
	runtime := r.runtime
	if runtime == nil {
		runtime = r.cri.Conn(r)
	}
	if _, err := prober.New(prober.Config{}, prober.Deps{Kit: r.kit, Runtime: runtime, Now: r.now}); err != nil {
		r.Fatal(err)
	}
	r.stop = r.Start(r.kit)
}

// pass lets time pass: what falls due in it runs once.
func (r *rig) pass(d time.Duration) {
	r.Helper()
	r.ahead.Add(int64(d))
	r.nudge()
}

// nudge lets the prober look at the clock.
func (r *rig) nudge() {
	r.Helper()
	standin.Set(r.House, r.records, "nobody", &plegv1.PodRecord{Uid: "nobody", Name: strconv.FormatInt(r.ahead.Add(1), 10)})
}

// probe of the web server at a path.
func (r *rig) probe(path string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/" + path, Port: intstr.FromInt32(int32(r.app.port(r)))}},
		PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 1, SuccessThreshold: 1,
	}
}

// want publishes a pod with one container as config does.
func (r *rig) want(uid string, edit func(*v1.Container)) {
	r.Helper()
	c := v1.Container{Name: "c"}
	edit(&c)
	r.desire(uid, c)
}

func (r *rig) desire(uid string, containers ...v1.Container) {
	r.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "name-" + uid, UID: types.UID(uid)}}
	p.Spec.Containers = containers
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.pods, uid, &configv1.DesiredPod{Pod: data, Source: "api"})
}

// host publishes a pod on the host's network, with one container, as config does for a
// manifest, and that it runs. Its mirror pod has an address of the host, unless empty.
func (r *rig) host(uid, hostIP string, c v1.Container) {
	r.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "name-" + uid, UID: types.UID(uid)}}
	p.Spec.HostNetwork, p.Spec.Containers = true, []v1.Container{c}
	data, err := p.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	desired := &configv1.DesiredPod{Pod: data, Source: "file"}
	if hostIP != "" {
		p.UID, p.Status.HostIP = "mirror", hostIP
		if desired.Mirror, err = p.Marshal(); err != nil {
			r.Fatal(err)
		}
	}
	standin.Set(r.House, r.pods, uid, desired)
	r.observeAt(uid, "", &runtimeapi.ContainerStatus{Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}})
}

// runs publishes, as pleg does, that the container of the pod runs.
func (r *rig) runs(uid, containerID string, attempt uint32) {
	r.Helper()
	r.observe(uid, &runtimeapi.ContainerStatus{Id: containerID, Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}})
}

// observe publishes that containers of a pod run.
func (r *rig) observe(uid string, containers ...*runtimeapi.ContainerStatus) {
	r.Helper()
	r.observeAt(uid, "127.0.0.1", containers...)
}

// observeAt is observe with the address of the pod, empty on the host's network, or more
// than one with commas between.
func (r *rig) observeAt(uid, ips string, containers ...*runtimeapi.ContainerStatus) {
	r.Helper()
	record := &plegv1.PodRecord{Uid: uid}
	first, more, _ := strings.Cut(ips, ",")
	network := &runtimeapi.PodSandboxNetworkStatus{Ip: first}
	for _, ip := range strings.FieldsFunc(more, func(c rune) bool { return c == ',' }) {
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	all := []proto.Message{
		&runtimeapi.PodSandboxStatus{Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_READY, Network: network},
	}
	for _, c := range containers {
		c.StartedAt, c.State = r.now().UnixNano(), runtimeapi.ContainerState_CONTAINER_RUNNING
		all = append(all, c)
	}
	for _, m := range all {
		data, err := proto.Marshal(m)
		if err != nil {
			r.Fatal(err)
		}
		if _, sandbox := m.(*runtimeapi.PodSandboxStatus); sandbox {
			record.Sandboxes = append(record.Sandboxes, data)
		} else {
			record.Containers = append(record.Containers, data)
		}
	}
	standin.Set(r.House, r.records, uid, record)
}

// verdict of one kind, or nil.
func (r *rig) verdict(uid string, kind proberv1.ProbeKind) *proberv1.Verdict {
	item, _ := r.verdicts.Get(uid)
	for _, v := range item.GetVerdicts() {
		if v.GetKind() == kind {
			return v
		}
	}
	return nil
}

const (
	startup   = proberv1.ProbeKind_PROBE_KIND_STARTUP
	liveness  = proberv1.ProbeKind_PROBE_KIND_LIVENESS
	readiness = proberv1.ProbeKind_PROBE_KIND_READINESS
	success   = proberv1.Result_RESULT_SUCCESS
	failure   = proberv1.Result_RESULT_FAILURE
	undecided = proberv1.Result_RESULT_UNSPECIFIED
)

func (r *rig) becomes(uid string, kind proberv1.ProbeKind, want proberv1.Result) {
	r.Helper()
	r.Eventually(uid+" "+kind.String()+" "+want.String(), func() bool { return r.verdict(uid, kind).GetResult() == want })
}

// container starts a real one in the fake runtime, for exec probes.
func (r *rig) container() string {
	r.Helper()
	r.made++
	client, ctx := runtimeapi.NewRuntimeServiceClient(r.cri.Conn(r)), r.House.Context()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p" + strconv.Itoa(r.made), Namespace: "ns", Uid: "u"}, LogDirectory: r.TempDir()}
	sandbox, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		r.Fatal(err)
	}
	c, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "fake/sleep"}, LogPath: "0.log"},
	})
	if err != nil {
		r.Fatal(err)
	}
	if _, err := client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		r.Fatal(err)
	}
	return c.GetContainerId()
}

// series counts the series of a metric that carry a pod's name.
func (r *rig) series(metric, pod string) int {
	r.Helper()
	families, err := r.kit.Metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "pod" && l.GetValue() == pod {
					n++
				}
			}
		}
	}
	return n
}
