// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	"github.com/sextant-node/sextant/test/dradriver"
)

// rig is a manager with a store of its own, and drivers on real sockets.
type rig struct {
	*testing.T
	dir  string
	boot string
	log  slog.Handler
	m    *dra.Manager
	stop func()

	mu      sync.Mutex
	objects map[string]dra.Object
	changed chan string
	done    []string // operations, with ! where they failed
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, dir: t.TempDir(), boot: "b1", log: slog.DiscardHandler, objects: map[string]dra.Object{}, changed: make(chan string, 1000)}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.Helper()
	s, _, err := store.Open(store.Config{Path: filepath.Join(r.dir, "state.db"), Schema: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	r.m, err = dra.New(dra.Config{
		Store: s, File: r.file(), Boot: r.boot, Now: time.Now, Log: slog.New(r.log),
		Claim: func(namespace, name string) dra.Object {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.objects[namespace+"/"+name]
		},
		Changed: func(uid string) { r.changed <- uid }, DriversChanged: func() {},
		Observe: func(operation string, failed bool, _ time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.done = append(r.done, operation+map[bool]string{true: "!"}[failed])
		},
		ObserveCall: func(string, string, string, time.Duration) {},
	})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); r.m.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-over
		if err := s.Close(); err != nil {
			r.Error(err)
		}
	})
}

// restart is another life of the service: drivers register again.
func (r *rig) restart(drivers ...*dradriver.Driver) {
	r.Helper()
	r.stop()
	r.start()
	for _, d := range drivers {
		r.register(d)
	}
}

func (r *rig) file() string { return filepath.Join(r.dir, "dra_manager_state") }

func (r *rig) socket(d *dradriver.Driver) string { return filepath.Join(r.dir, d.Name) }

// driver starts a driver and registers it.
func (r *rig) driver(d *dradriver.Driver) *dradriver.Driver {
	r.Helper()
	if err := d.Serve(r.socket(d)); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(d.Stop)
	r.register(d)
	return d
}

func (r *rig) register(d *dradriver.Driver) {
	r.Helper()
	versions := d.Versions
	if versions == nil {
		versions = []string{drav1.DRAPluginService}
	}
	if err := r.m.Drivers().Register(r.Context(), r.plugin(d.Name, versions)); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) plugin(driver string, versions []string) pluginregistration.Plugin {
	socket := filepath.Join(r.dir, driver)
	return pluginregistration.Plugin{Name: driver, Endpoint: socket, Versions: versions, Socket: socket + "-reg"}
}

// claim puts a claim into the API server, allocated by drivers and reserved for pods.
func (r *rig) claim(name, uid, drivers string, pods ...string) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, d := range strings.Fields(drivers) {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: d})
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: types.UID(p)})
	}
	r.object(name, dra.Object{Claim: c})
}

func (r *rig) object(name string, o dra.Object) {
	r.mu.Lock()
	r.objects["ns/"+name] = o
	r.mu.Unlock()
	r.m.Look()
}

func pod(uid string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	c := v1.Container{Name: "c"}
	for _, name := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: name})
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}

// until waits for something that a change of a pod's answer leads to.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	limit := time.After(time.Minute)
	for !ok() {
		select {
		case <-r.changed:
		case <-limit:
			r.Fatalf("never: %s", what)
		}
	}
}

func (r *rig) prepared(p *v1.Pod) {
	r.Helper()
	var err error
	r.until("the claims of "+p.Name+" are prepared", func() bool { err = r.m.Ask(r.Context(), p, false); return err == nil })
}

// refused waits for the text of an answer.
func (r *rig) refused(p *v1.Pod, want string) {
	r.Helper()
	got := ""
	r.until(want, func() bool {
		if err := r.m.Ask(r.Context(), p, false); err != nil {
			got = err.Error()
		}
		return got == want
	})
}

func (r *rig) left(uid string) {
	r.Helper()
	r.until(uid+" has left", func() bool { done, _ := r.m.Leave(uid); return done })
}

func (r *rig) expect(d *dradriver.Driver, calls ...string) {
	r.Helper()
	if got := d.Calls(); !slices.Equal(got, calls) {
		r.Errorf("%s was called\n%s\nwant\n%s", d.Name, strings.Join(got, "\n"), strings.Join(calls, "\n"))
	}
}

func TestAClaimIsPreparedOnceInItsLife(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "u1", "a.example", "p1", "p2")
	p1, p2 := pod("p1", "gpu"), pod("p2", "gpu")
	r.prepared(p1)
	r.restart(d)
	r.prepared(p1)
	r.prepared(p2)
	if got := r.m.Devices(p2, &p2.Spec.Containers[0]); !slices.Equal(got, []string{"a.example/device=gpu-gpu"}) {
		t.Errorf("devices %v", got)
	}
	if byDriver, all := r.m.InUse(); all != 1 || byDriver["a.example"] != 1 {
		t.Errorf("in use: %v, %d", byDriver, all)
	}
	r.left("p1")
	r.restart(d)
	r.expect(d, "prepare ns/gpu u1")
	r.left("p2")
	r.restart(d)
	r.left("p1")
	r.left("p2")
	r.expect(d, "prepare ns/gpu u1", "unprepare ns/gpu u1")
	if len(d.Prepared()) > 0 {
		t.Errorf("prepared still: %v", d.Prepared())
	}
}

// keep is what a pod is told to that was admitted before.
func (r *rig) keep(p *v1.Pod, begun bool) {
	r.Helper()
	if err := r.m.Keep(p, func() bool { return begun }); err != nil {
		r.Error(err)
	}
}

func TestABootPreparesAgain(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example", Versions: []string{"v9.DRAPlugin", drav1beta1.DRAPluginService, drav1.DRAPluginService}})
	r.claim("gpu", "u1", "a.example", "p1")
	p := pod("p1", "gpu")
	r.prepared(p)
	r.boot = "b2"
	r.restart()
	r.keep(p, false)
	r.refused(p, "prepare dynamic resources: DRA driver a.example is not registered")
	r.register(d)
	r.prepared(p)
	r.expect(d, "prepare ns/gpu u1", "prepare ns/gpu u1")
}

func TestAPodWaitsInTheKubeletsWords(t *testing.T) {
	r := newRig(t)
	p := pod("p1", "gpu")
	if err := r.m.Ask(t.Context(), p, false); !errors.Is(err, dra.ErrPending) {
		t.Errorf("before the claim is known: %v", err)
	}
	r.object("gpu", dra.Object{Absent: true})
	r.refused(p, `prepare dynamic resources: fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`)
	r.claim("gpu", "u1", "a.example", "p0")
	r.refused(p, "prepare dynamic resources: pod p1 (p1) is not allowed to use ResourceClaim gpu (u1)")
	r.claim("gpu", "u1", "a.example b.example", "p1")
	r.refused(p, "prepare dynamic resources: DRA driver a.example is not registered")
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.refused(p, "prepare dynamic resources: DRA driver b.example is not registered")
	r.expect(d)
	var worn sync.Map
	worn.Store("is", true)
	b := r.driver(&dradriver.Driver{Name: "b.example", Prepare: func(context.Context, *drav1.Claim) error {
		if is, _ := worn.Load("is"); is == true {
			return errors.New("fan broken")
		}
		return nil
	}})
	r.refused(p, "prepare dynamic resources: NodePrepareResources failed for ResourceClaim gpu: fan broken")
	worn.Store("is", false)
	r.m.Look()
	r.prepared(p)
	r.expect(d, "prepare ns/gpu u1")
	if got := b.Prepared(); !slices.Equal(got, []string{"u1"}) {
		t.Errorf("prepared %v", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.done); r.done[0] != "PrepareResources!" || r.done[n-1] != "PrepareResources" {
		t.Errorf("operations %v", r.done)
	}
}

func TestAHungDriverHoldsUpItsPodsOnly(t *testing.T) {
	r := newRig(t)
	reached := make(chan struct{}, 10)
	hung := r.driver(&dradriver.Driver{Name: "a.example", Prepare: func(ctx context.Context, _ *drav1.Claim) error {
		reached <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	r.driver(&dradriver.Driver{Name: "b.example"})
	r.claim("gpu", "u1", "a.example", "p1")
	r.claim("nic", "u2", "b.example", "p2")
	p1 := pod("p1", "gpu")
	if err := r.m.Ask(t.Context(), p1, false); !errors.Is(err, dra.ErrPending) {
		t.Errorf("while the driver hangs: %v", err)
	}
	<-reached
	r.prepared(pod("p2", "nic"))
	r.left("p1") // the call is given up, and what it may have done is undone
	r.expect(hung, "prepare ns/gpu u1", "unprepare ns/gpu u1")
}

// TestADriverThatComesAndHangs: the pod does not wait for the driver to register any more.
func TestADriverThatComesAndHangs(t *testing.T) {
	r := newRig(t)
	r.claim("gpu", "u1", "a.example", "p1")
	p := pod("p1", "gpu")
	r.refused(p, "prepare dynamic resources: DRA driver a.example is not registered")
	r.driver(&dradriver.Driver{Name: "a.example", Prepare: func(ctx context.Context, _ *drav1.Claim) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	r.until("it is called", func() bool { return errors.Is(r.m.Why("p1"), dra.ErrPending) })
	r.left("p1")
}

func TestADriverThatIsAwayUnpreparesWhenItIsBack(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "u1", "a.example", "p1")
	r.prepared(pod("p1", "gpu"))
	r.object("gpu", dra.Object{Absent: true}) // deleted with its pod, by force
	d.Stop()
	r.m.Drivers().Unregister(r.plugin(d.Name, nil))
	r.until("the driver is missed", func() bool {
		_, err := r.m.Leave("p1")
		return err != nil && err.Error() == "unprepare dynamic resources: DRA driver a.example is not registered"
	})
	// A claim of the same name waits for the old one.
	r.claim("gpu", "u2", "a.example", "p2")
	r.refused(pod("p2", "gpu"), "prepare dynamic resources: DRA driver a.example is not registered")
	r.restart()
	r.driver(d)
	r.left("p1")
	r.prepared(pod("p2", "gpu"))
	r.expect(d, "prepare ns/gpu u1", "unprepare ns/gpu u1", "prepare ns/gpu u2")
}

func TestAKubeletTookOver(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "u1", "a.example", "p1")
	r.prepared(pod("p1", "gpu"))
	r.stop()
	// It unprepared that claim, and prepared others.
	text := `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[` +
		`{\"ClaimUID\":\"u2\",\"ClaimName\":\"nic\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p2\":{}},\"DriverState\":{\"a.example\":{\"Devices\":[{\"PoolName\":\"pool\",\"DeviceName\":\"d0\",\"ShareID\":null,\"RequestNames\":[\"x\"],\"CDIDeviceIDs\":[\"a.example/device=0\"]}]}}},` +
		`{\"ClaimUID\":\"u3\",\"ClaimName\":\"left\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p3\":{}},\"DriverState\":{\"a.example\":{\"Devices\":null}}}]}","Checksum":SUM}`
	if err := os.WriteFile(r.file(), []byte(summed(t, text)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.register(d)
	p := pod("p2", "nic")
	if err := r.m.Ask(t.Context(), p, true); err != nil {
		t.Errorf("of a running pod: %v", err)
	}
	if got := r.m.Devices(p, &p.Spec.Containers[0]); !slices.Equal(got, []string{"a.example/device=0"}) {
		t.Errorf("devices %v", got)
	}
	r.m.Sweep(func(uid string) bool { return uid == "p2" })
	r.left("p3")
	r.expect(d, "prepare ns/gpu u1", "unprepare ns/left u3")
	r.restart(d)
	r.left("p1") // unknown
	r.left("p2")
	r.expect(d, "prepare ns/gpu u1", "unprepare ns/left u3", "unprepare ns/nic u2")
}

// gate is a log that holds up who writes a message, until proceed is closed.
type gate struct {
	slog.Handler
	message     string
	at, proceed chan struct{}
}

func (g gate) Handle(_ context.Context, r slog.Record) error {
	if r.Message == g.message {
		g.at <- struct{}{}
		<-g.proceed
	}
	return nil
}

func (gate) Enabled(context.Context, slog.Level) bool { return true }

// TestARunningPodIsToldOfWhileAnotherJoins: a claim that a kubelet prepared is taken to be
// prepared while a new pod begins to use it. It is not unprepared before that pod, too, has
// left.
func TestARunningPodIsToldOfWhileAnotherJoins(t *testing.T) {
	r := newRig(t)
	r.stop()
	text := `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[` +
		`{\"ClaimUID\":\"u1\",\"ClaimName\":\"gpu\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{}},\"DriverState\":{\"a.example\":{\"Devices\":null}}}]}","Checksum":SUM}`
	if err := os.WriteFile(r.file(), []byte(summed(t, text)), 0o600); err != nil {
		t.Fatal(err)
	}
	trusts := gate{slog.DiscardHandler, "claim of a running pod is taken to be prepared", make(chan struct{}), make(chan struct{})}
	r.log = trusts
	r.start()
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "u1", "a.example", "p1", "p3")
	p1, p3 := pod("p1", "gpu"), pod("p3", "gpu")
	told := make(chan error)
	go func() { told <- r.m.Ask(t.Context(), p1, true) }()
	<-trusts.at
	_ = r.m.Ask(t.Context(), p3, false) // it joins, or waits for that as long as an answer may
	close(trusts.proceed)
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	r.prepared(p3)
	r.left("p1")
	if calls := strings.Join(d.Calls(), "; "); strings.Contains(calls, "unprepare") {
		t.Errorf("while p3 uses the claim: %s", calls)
	}
	r.left("p3")
	if calls := d.Calls(); calls[len(calls)-1] != "unprepare ns/gpu u1" {
		t.Errorf("after the last pod: %v", calls)
	}
}

// TestTakenOverAgain: pods that the service knows from before a kubelet ran are not asked
// about any more. A driver is called for those only that have not begun in this boot.
func TestTakenOverAgain(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	runs, waits := pod("p1", "gpu"), pod("p2", "nic")
	r.claim("gpu", "u1", "a.example", "p1")
	r.claim("nic", "u2", "a.example", "p2")
	r.prepared(runs)
	r.prepared(waits)
	r.stop()
	text, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}
	// A kubelet has written it since.
	other := strings.ReplaceAll(string(text), `\"RequestNames\":[`, `\"RequestNames\":[\"more\",`)
	if other == string(text) {
		t.Fatalf("no requests in %s", text)
	}
	other = other[:strings.LastIndex(other, ":")+1] + "SUM}"
	if err := os.WriteFile(r.file(), []byte(summed(t, other)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.keep(runs, true)
	r.keep(waits, false)
	r.register(d)
	r.prepared(runs)
	r.prepared(waits)
	r.expect(d, "prepare ns/gpu u1", "prepare ns/nic u2", "prepare ns/nic u2")
}

func TestADamagedFileOfAKubelet(t *testing.T) {
	r := newRig(t)
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "u1", "a.example", "p1")
	r.prepared(pod("p1", "gpu"))
	r.stop()
	if err := os.WriteFile(r.file(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.register(d)
	r.prepared(pod("p1", "gpu"))
	r.expect(d, "prepare ns/gpu u1")
	if aside, _ := filepath.Glob(r.file() + ".damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
	if text, err := os.ReadFile(r.file()); err != nil || !strings.Contains(string(text), "u1") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestRegistration(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		socket   string
		versions []string
		want     string
	}{
		{"/a", nil, `invalid supported gRPC versions of DRA driver plugin a.example at endpoint /x: empty list of supported gRPC services (aka supported versions)`},
		{"/a", []string{"1.0.0"}, `invalid supported gRPC versions of DRA driver plugin a.example at endpoint /x: none of services supported by the plugin (["1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`},
		{"/a", []string{"v1.DRAPlugin"}, ""},
		{"/a", []string{"v1beta1.DRAPlugin"}, ""}, // its socket was made again
		{"/b", []string{"v1.DRAPlugin"}, "endpoint /x already registered for DRA driver plugin a.example"},
	} {
		got := ""
		plugin := pluginregistration.Plugin{Name: "a.example", Endpoint: "/x", Versions: c.versions, Socket: c.socket}
		if err := r.m.Drivers().Register(t.Context(), plugin); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.versions, got, c.want)
		}
	}
}

// summed puts the sum into a kubelet's file.
func summed(t *testing.T, text string) string {
	t.Helper()
	var file struct{ Data string }
	if err := json.Unmarshal([]byte(strings.Replace(text, "SUM", "0", 1)), &file); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(text, "SUM", fmt.Sprint(crc32.ChecksumIEEE([]byte(file.Data))), 1)
}

// TestAFaultAtEachPoint: an attempt that fails before or after a call of the driver, or at
// a write, is made again; in the end nothing is prepared that no pod uses.
func TestAFaultAtEachPoint(t *testing.T) {
	for _, point := range []string{"dra.prepare", "dra.prepared", "dra.unprepare", "dra.unprepared", "file.write"} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			d := r.driver(&dradriver.Driver{Name: "a.example"})
			r.claim("gpu", "u1", "a.example", "p1")
			if err := fault.Set(point + "=1*error(broken)"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fault.Set("") })
			r.prepared(pod("p1", "gpu"))
			if got := d.Prepared(); !slices.Equal(got, []string{"u1"}) {
				t.Errorf("prepared %v", got)
			}
			r.left("p1")
			if got := d.Prepared(); len(got) > 0 {
				t.Errorf("prepared still: %v", got)
			}
			again := map[bool]int{true: 1}[strings.HasSuffix(point, "ed")]
			if got := d.Calls(); len(got) != 2+again {
				t.Errorf("calls %v", got)
			}
		})
	}
}
