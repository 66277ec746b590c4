// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

func TestNotYetUntilConfigAndRuntimeHaveSpoken(t *testing.T) {
	r := newRig(t, nil)
	p := burstable("u", "500m")
	says := func(want string) {
		t.Helper()
		r.Eventually(want, func() bool {
			got := decision(r.admit(p, false))
			return strings.HasPrefix(got, "not yet: the node's resources are not known yet") && strings.Contains(got, want)
		})
	}
	says("config.kubelet")
	r.Eventually("that nothing is held is known", r.pods.Complete)
	r.configure(nil)
	says("pleg.runtime")
	r.answers()
	r.Eventually("admitted", func() bool { return r.admit(p, false).GetDecision() == resourcev1.Decision_DECISION_ADMITTED })
	resp := r.admit(p, false)
	if want := "admitted /" + r.cgroup[0] + "/kubepods/burstable/podu"; decision(resp) != want {
		t.Errorf("%s, want %s", decision(resp), want)
	}
	if got := r.shares(r.kubepods("burstable", "podu")); got != sharesOf(512) {
		t.Errorf("the pod's cgroup has %s shares", got)
	}
	r.Eventually("the item", func() bool {
		item, ok := r.pods.Get("u")
		return ok && item.GetName() == "name-u" && item.GetNamespace() == "ns" && item.GetCgroupParent() == resp.GetCgroupParent() && !item.GetReleasing()
	})
}

func TestTheNodesItem(t *testing.T) {
	r := newRig(t, nil)
	r.file("proc/loadavg", "0 0 0 1/99999 1")
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.KubeReserved = map[string]string{"cpu": "1", "memory": "1Gi", "pid": "1000"}
		c.Kubelet.EvictionSoft = map[string]string{"pid.available": "10%"}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	n, _ := r.node.Get("node")
	for name, want := range map[string]string{"cpu": "4 3", "memory": "8Gi 6Gi", "pods": "110 110"} {
		if got := n.GetCapacity()[name] + " " + n.GetAllocatable()[name]; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if n.GetCgroupDriver() != "cgroupfs" || n.GetKernelVersion() != "6.1.0" || n.GetOperatingSystem() != "linux" {
		t.Errorf("item %v", n)
	}
	if n.GetMemory().GetUnderPressure() || n.GetDisk().GetUnderPressure() || !n.GetPid().GetUnderPressure() || !strings.HasPrefix(n.GetPid().GetMessage(), "pid.available: ") {
		t.Errorf("pressure: %v %v %v", n.GetMemory(), n.GetDisk(), n.GetPid())
	}
	// The bound of all pods leaves the eviction threshold to them: 8 - 1 GiB.
	if got := cgrouptest.Value(t, r.kubepods(), "memory/memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(7<<30) {
		t.Errorf("kubepods is bounded at %s", got)
	}
	if got := r.shares(r.kubepods()); got != sharesOf(3072) {
		t.Errorf("kubepods has %s shares", got)
	}
	if got := cgrouptest.Value(t, r.kubepods(), "pids/pids.max", "pids.max"); got != "31768" {
		t.Errorf("kubepods may have %s processes", got)
	}
	if got := r.shares(r.kubepods("besteffort")); got != sharesOf(2) {
		t.Errorf("besteffort has %s shares", got)
	}
	r.Eventually("the event", func() bool {
		e, _ := r.events.Get("0000000000000001")
		return e.GetReason() == "NodeAllocatableEnforced"
	})
	r.configure(func(c *kubeletconfig.Config) { c.Kubelet.EnforceNodeAllocatable = nil })
	r.Eventually("the bound is the node's capacity", func() bool {
		return cgrouptest.Value(t, r.kubepods(), "memory/memory.limit_in_bytes", "memory.max") == fmt.Sprint(8<<30) &&
			cgrouptest.Value(t, r.kubepods(), "pids/pids.max", "pids.max") == "32768" && r.shares(r.kubepods()) == sharesOf(4096)
	})
}

func TestPressureRefusesNewPods(t *testing.T) {
	r := newRig(t, nil)
	r.memory("1024")
	r.settle()
	r.Eventually("pressure", func() bool { n, _ := r.node.Get("node"); return n.GetMemory().GetUnderPressure() })
	p := burstable("u", "0")
	if got := decision(r.admit(p, false)); got != "rejected Evicted: The node had condition: [MemoryPressure]. " {
		t.Errorf("BestEffort: %s", got)
	}
	if got := decision(r.admit(p, true)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("one that runs: %s", got)
	}
}

// TestThresholdsThatAreOff: 0% and 100% switch a threshold off, as in the kubelet;
// neither takes anything from allocatable nor puts the node under pressure.
func TestThresholdsThatAreOff(t *testing.T) {
	r := newRig(t, nil)
	r.memory("1024")
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "100%", "nodefs.available": "100%", "nodefs.inodesFree": "100%", "pid.available": "100%"}
		c.Kubelet.EvictionSoft = map[string]string{"memory.available": "0%"}
	})
	r.answers()
	var node *resourcev1.NodeResources
	r.Eventually("the node's item", func() (ok bool) { node, ok = r.node.Get("node"); return ok })
	if node.GetMemory().GetUnderPressure() || node.GetDisk().GetUnderPressure() || node.GetPid().GetUnderPressure() {
		t.Errorf("pressure: %v %v %v", node.GetMemory(), node.GetDisk(), node.GetPid())
	}
	if a, c := node.GetAllocatable()["memory"], node.GetCapacity()["memory"]; a != c {
		t.Errorf("%s of %s memory is allocatable", a, c)
	}
}

// TestPodsOfTheAPIServerNeedTheNodeObject: its labels and taints are part of the
// judgement. Static pods and a standalone node do without.
func TestPodsOfTheAPIServerNeedTheNodeObject(t *testing.T) {
	r := newRig(t, nil)
	r.configure(func(c *kubeletconfig.Config) { c.Node.KubeConfig = "/etc/kubeconfig" })
	r.answers()
	r.Eventually("the node's item", func() bool { n, ok := r.node.Get("node"); return ok && !n.GetNodeObjectKnown() })
	p := burstable("u", "1")
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	if got := decision(r.admit(p, false)); got != "not yet: the Node object is not known yet" {
		t.Errorf("without the object: %s", got)
	}
	static := burstable("static", "1")
	static.Annotations = map[string]string{pod.ConfigSourceAnnotation: "file"}
	if got := decision(r.admit(static, false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("a static pod: %s", got)
	}
	node := &v1.Node{}
	node.Name, node.Labels = "n1", map[string]string{"disk": "ssd"}
	data, err := node.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	standin.Set(r.House, r.objects, "Node//n1", &configv1.Object{Kind: "Node", Name: "n1", Object: data})
	r.Eventually("those who wait are told", func() bool { n, _ := r.node.Get("node"); return n.GetNodeObjectKnown() })
	if got := decision(r.admit(p, false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("with the object: %s", got)
	}
}

// TestALabelThatConfigHasNotHeardOf: the scheduler places a pod for a label that the node has
// just been given. It is not refused for what is known of the Node, which may be older; while
// the API server does not say, it waits, but for a static pod.
func TestALabelThatConfigHasNotHeardOf(t *testing.T) {
	r := newRig(t, nil)
	r.configure(func(c *kubeletconfig.Config) { c.Node.KubeConfig = "/etc/kubeconfig" })
	r.answers()
	known := &v1.Node{}
	known.Name = "n1"
	data, err := known.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	standin.Set(r.House, r.objects, "Node//n1", &configv1.Object{Kind: "Node", Name: "n1", Object: data})
	r.Eventually("the Node is known", func() bool { n, _ := r.node.Get("node"); return n.GetNodeObjectKnown() })
	selects := func(uid string) *v1.Pod {
		p := burstable(uid, "1")
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		return p
	}
	const refused = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"

	static := selects("static")
	static.Annotations = map[string]string{pod.ConfigSourceAnnotation: "file"}
	if got := decision(r.admit(static, false)); got != "rejected NodeAffinity: "+refused {
		t.Errorf("a static pod while the API server is away: %s", got)
	}
	if got := decision(r.admit(selects("u"), false)); !strings.HasPrefix(got, "not yet: "+refused+", as far as is known; the Node object was not read: ") {
		t.Errorf("while the API server is away: %s", got)
	}
	r.server.node.Store(known)
	if got := decision(r.admit(selects("other"), false)); got != "rejected NodeAffinity: "+refused {
		t.Errorf("without the label: %s", got)
	}
	labelled := known.DeepCopy()
	labelled.Labels = map[string]string{"disk": "ssd"}
	r.server.node.Store(labelled)
	if got := decision(r.admit(selects("u"), false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("with the label: %s", got)
	}
	measure.Expect(t, r.kit.Metrics, map[string]float64{`kubelet_admission_rejections_total{reason="Other"}`: 2})
}

func TestAdmissionIsGivenOnce(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	p := burstable("u", "3")
	first := r.admit(p, false)
	big := burstable("big", "2")
	if got := decision(r.admit(big, false)); got != "rejected OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000" {
		t.Errorf("what does not fit: %s", got)
	}
	// The node shrinks under the pod; the pod stays.
	r.configure(func(c *kubeletconfig.Config) { c.Kubelet.SystemReserved = map[string]string{"cpu": "3"} })
	r.Eventually("the smaller node", func() bool { n, _ := r.node.Get("node"); return n.GetAllocatable()["cpu"] == "1" })
	if again := r.admit(p, false); decision(again) != decision(first) {
		t.Errorf("%s, was %s", decision(again), decision(first))
	}
	if got := decision(r.admit(big, true)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("a pod that runs was refused: %s", got)
	}
	families, err := r.kit.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_admission_rejections_total" {
			if m := f.GetMetric(); len(m) != 1 || m[0].GetCounter().GetValue() != 1 || m[0].GetLabel()[0].GetValue() != "OutOfcpu" {
				t.Errorf("rejections counted: %v", m)
			}
			return
		}
	}
	t.Error("rejections are not counted")
}

// TestUserOfAService: an event says so of a pod, once in its life, and the pod is
// admitted.
func TestUserOfAService(t *testing.T) {
	r := newRig(t, func(d *resource.Deps) { d.Kit.Identities = house.Identities{house.Prober: 64204} })
	r.settle()
	uid := int64(64204)
	p := burstable("a", "1")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &uid}
	for range 2 {
		if got := decision(r.admit(p, false)); !strings.HasPrefix(got, "admitted") {
			t.Fatal(got)
		}
	}
	r.admit(burstable("b", "1"), false)
	r.Eventually("pod b, and an event", func() bool {
		_, ok := r.pods.Get("b")
		_, told := r.events.Get(fmt.Sprintf("%016d", 2))
		return ok && told
	})
	var said []string
	for i := 1; ; i++ {
		e, ok := r.events.Get(fmt.Sprintf("%016d", i))
		if !ok {
			break
		}
		if e.GetReason() == "UserOfNodeService" {
			said = append(said, e.GetObject().GetName()+": "+e.GetMessage())
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "name-a: In this pod containers [") || !strings.Contains(said[0], "the node's prober") {
		t.Errorf("events %q", said)
	}
}

func TestPodsAtTheSameTimeShareTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	var wait sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for i := range 40 {
		wait.Go(func() {
			resp := r.admit(burstable(fmt.Sprintf("u%d", i), "400m"), false)
			mu.Lock()
			defer mu.Unlock()
			if resp.GetDecision() == resourcev1.Decision_DECISION_ADMITTED {
				admitted++
			}
		})
	}
	wait.Wait()
	if admitted != 10 {
		t.Errorf("%d pods of 0.4 cores on 4 cores", admitted)
	}
	if got := r.shares(r.kubepods("burstable")); got != sharesOf(4096) {
		t.Errorf("burstable has %s shares", got)
	}
}

func TestRelease(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	for _, uid := range []string{"a", "b"} {
		r.admit(burstable(uid, "1"), false)
	}
	if got := r.shares(r.kubepods("burstable")); got != sharesOf(2048) {
		t.Errorf("burstable has %s shares", got)
	}
	r.release("a")
	if _, ok := r.pods.Get("a"); ok {
		t.Error("still listed at the revision Release answered")
	}
	if cgrouptest.Exists(t, r.kubepods("burstable", "poda")) {
		t.Error("the cgroup is left")
	}
	if got := r.shares(r.kubepods("burstable")); got != sharesOf(1024) {
		t.Errorf("burstable has %s shares after the release", got)
	}
	r.release("a")
	r.release("never-there")

	// A cgroup that still holds a process holds the release up, and says so.
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "podb"))
	r.release("b")
	r.Eventually("what holds it up", func() bool {
		item, _ := r.pods.Get("b")
		return item.GetReleasing() && strings.Contains(item.GetError(), "still holds 1 processes")
	})
	data, err := burstable("b", "1").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Admit(r.Context(), &resourcev1.AdmitRequest{Pod: data, Running: true}); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("admitted while releasing: %v", err)
	}
	leave()
	r.Eventually("released", func() bool { _, ok := r.pods.Get("b"); return !ok })
	// What was given back can be given again.
	if got := decision(r.admit(burstable("b", "4"), false)); !strings.HasPrefix(got, "admitted") {
		t.Error(got)
	}
}

// broken is the real tree, but for what a test lets fail.
type broken struct {
	cgroup.Tree
	fails func(pod.CgroupName, cgroup.Values) error
}

func (b broken) Ensure(name pod.CgroupName, values cgroup.Values) error {
	if err := b.fails(name, values); err != nil {
		return err
	}
	return b.Tree.Ensure(name, values)
}

func breaking(fails func(pod.CgroupName, cgroup.Values) error) func(*resource.Deps) {
	return func(d *resource.Deps) {
		d.Cgroups = func(driver pod.CgroupDriver) resource.Cgroups { return broken{cgroup.Tree{Driver: driver}, fails} }
	}
}

func TestACgroupThatCannotBeMade(t *testing.T) {
	r := newRig(t, breaking(func(name pod.CgroupName, _ cgroup.Values) error {
		if name[len(name)-1] == "podbad" {
			return errors.New("no space left on device")
		}
		return nil
	}))
	r.settle()
	if got := decision(r.admit(burstable("bad", "4"), false)); got != "not yet: no space left on device" {
		t.Errorf("a new pod: %s", got)
	}
	// It holds nothing meanwhile.
	if got := decision(r.admit(burstable("good", "4"), false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("the next one: %s", got)
	}
	if got := decision(r.admit(burstable("bad", "4"), true)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("one that runs: %s", got)
	}
}

// TestABoundTheKernelRefuses is an event each minute, until the kernel takes it.
func TestABoundTheKernelRefuses(t *testing.T) {
	var refuses atomic.Bool
	var ahead atomic.Int64
	refuses.Store(true)
	broken := breaking(func(name pod.CgroupName, values cgroup.Values) error {
		if name[len(name)-1] == "kubepods" && values.Memory != nil && refuses.Load() {
			return errors.New("device or resource busy")
		}
		return nil
	})
	r := newRig(t, func(deps *resource.Deps) {
		broken(deps)
		deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	r.settle()
	failed := fmt.Sprintf("FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits %q: device or resource busy", []string(r.kubepods()))
	told := func(want ...string) {
		t.Helper()
		r.Eventually(fmt.Sprint(len(want), " events"), func() bool {
			var got []string
			for i := range len(want) {
				e, _ := r.events.Get(fmt.Sprintf("%016d", i+1))
				got = append(got, e.GetReason()+" "+e.GetMessage())
			}
			return slices.Equal(got, want)
		})
	}
	told(failed)
	if got := decision(r.admit(burstable("u", "1"), false)); !strings.HasPrefix(got, "admitted") {
		t.Errorf("pods must go on: %s", got)
	}
	ahead.Add(int64(time.Minute))
	r.look()
	told(failed, failed)
	refuses.Store(false)
	ahead.Add(int64(time.Minute))
	r.look()
	told(failed, failed, "NodeAllocatableEnforced Updated Node Allocatable limit across pods")
	if got := cgrouptest.Value(t, r.kubepods(), "memory/memory.limit_in_bytes", "memory.max"); got != fmt.Sprint(8<<30) {
		t.Errorf("all pods may use %s bytes of memory", got)
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.client.Admit(r.Context(), &resourcev1.AdmitRequest{Pod: []byte("garbage")}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("garbage: %v", err)
	}
	for _, uid := range []string{"", "a/b", "..", "a_b"} {
		data, err := burstable(uid, "1").Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Admit(r.Context(), &resourcev1.AdmitRequest{Pod: data}); !rpc.Is(err, rpc.Invalid) || !strings.Contains(err.Error(), "pod.metadata.uid") {
			t.Errorf("uid %q: %v", uid, err)
		}
	}
	if _, err := r.client.Release(r.Context(), &resourcev1.ReleaseRequest{}); !rpc.Is(err, rpc.Invalid) {
		t.Errorf("release without uid: %v", err)
	}
}
