// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/test/fakeapi"
)

func nodeReady(n *v1.Node) bool {
	if n == nil {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// TestPodLife: a pod from its binding to its final delete.
func TestPodLife(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	h.eventually("the lease is held", func() bool { return h.cluster.Lease("n1") != nil })
	if o := h.cluster.Lease("n1").OwnerReferences; len(o) != 1 || o[0].UID != h.cluster.Node("n1").UID {
		t.Errorf("lease is owned by %v", o)
	}

	if o := h.cluster.CSINode("n1").OwnerReferences; len(o) != 1 || o[0].UID != h.cluster.Node("n1").UID {
		t.Errorf("CSINode is owned by %v", o)
	}

	p := h.cluster.Put(spec("web", "u1"))
	h.up(p)
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	got := h.cluster.Pod("default", "web").Status
	if got.PodIP != "10.244.0.7" || got.HostIP == "" || got.ContainerStatuses[0].ContainerID != "containerd://c-u1" {
		t.Errorf("status %+v", got)
	}

	p = h.cluster.Pod("default", "web")
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	h.cluster.Put(p)
	record := h.container(p, "c-u1", runtimeapi.ContainerState_CONTAINER_EXITED, 0)
	h.work(p, func(t *testPod) {
		t.record, t.verdicts = record, nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED
	})
	h.eventually("the end is reported", func() bool { return h.cluster.Pod("default", "web").Status.Phase == v1.PodSucceeded })
	h.work(p, func(t *testPod) {
		t.record = nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_RELEASED
	})
	h.eventually("the pod is deleted", func() bool { return h.cluster.Pod("default", "web") == nil })
	h.mu.Lock()
	delete(h.pods, "u1")
	h.mu.Unlock()
	h.refresh(house.PodWorker)
	h.quiet()
	if _, ok := h.svc.pods.reports.Get("u1"); ok {
		t.Error("status.pods still has the pod")
	}
	if n := len(h.cluster.Requests("get", "pods")); n != 0 {
		t.Errorf("%d pods were read", n)
	}
	if n := len(h.cluster.Requests("delete", "pods")); n != 1 {
		t.Errorf("%d deletes", n)
	}
	if n := len(h.cluster.Requests("patch", "pods/status")); n > 5 {
		t.Errorf("%d patches", n)
	}
}

// TestAPodThatIsNotUnderstood, of podworker's, keeps no other pod from being
// forgotten.
func TestAPodThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.mu.Lock()
	h.pods["odd"] = &testPod{state: &podworkerv1.PodState{Uid: "odd", Pod: []byte("\xffnot a pod")}}
	h.mu.Unlock()
	h.refresh(house.PodWorker)
	p := h.cluster.Put(spec("web", "u1"))
	h.up(p)
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	p = h.cluster.Pod("default", "web")
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	h.cluster.Put(p)
	h.work(p, func(t *testPod) {
		t.record, t.verdicts = nil, nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_RELEASED
	})
	h.eventually("the pod is deleted", func() bool { return h.cluster.Pod("default", "web") == nil })
	h.mu.Lock()
	delete(h.pods, "u1")
	h.mu.Unlock()
	h.refresh(house.PodWorker)
	h.eventually("status.pods is without it", func() bool {
		_, there := h.svc.pods.reports.Get("u1")
		_, complete, _ := h.svc.pods.reports.State()
		return !there && complete
	})
}

// TestKillsFlipNothing: killing any part changes nothing at the API server.
func TestKillsFlipNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	for i := range 5 {
		h.up(h.cluster.Put(spec(fmt.Sprintf("web%d", i), fmt.Sprintf("u%d", i))))
	}
	h.eventually("all are ready, and the node", func() bool {
		for i := range 5 {
			if !isReady(h.cluster.Pod("default", fmt.Sprintf("web%d", i))) {
				return false
			}
		}
		return nodeReady(h.cluster.Node("n1")) && h.cluster.Lease("n1") != nil
	})
	h.quiet()
	writes := func() int {
		return len(h.cluster.Requests("patch", "pods/status")) + len(h.cluster.Requests("delete", "")) + len(h.cluster.Requests("patch", "nodes/status"))
	}
	before := writes()
	parts := []house.Service{house.Config, house.PodWorker, house.Pleg, house.Prober, house.Volume, house.Resource}
	for _, s := range parts {
		h.kill(s)
		h.svc.pods.Mark([]string{everything})
		h.begin(s)
		h.quiet()
		h.refresh(s)
		h.quiet()
		if n := writes() - before; n != 0 {
			t.Fatalf("%s killed: %d writes", s, n)
		}
	}
	h.stopStatus()
	h.startStatus()
	h.quiet()
	if n := writes() - before; n != 0 {
		t.Fatalf("status killed: %d writes: %v", n, h.cluster.Requests("patch", "")[before:])
	}
	// All at once, and status is back before the others.
	h.stopStatus()
	for _, s := range parts {
		h.kill(s)
	}
	h.startStatus()
	order := []house.Service{house.PodWorker, house.Prober, house.Config, house.Resource, house.Volume, house.Pleg}
	for _, s := range order {
		h.begin(s)
		h.svc.pods.Mark([]string{everything})
	}
	h.quiet()
	for _, s := range order {
		h.refresh(s)
		h.quiet()
	}
	if n := writes() - before; n != 0 {
		t.Fatalf("all killed: %d writes", n)
	}
	for _, e := range h.cluster.Events() {
		if e.Reason == "NodeNotReady" {
			t.Errorf("event %s: %s", e.Reason, e.Message)
		}
	}
}

// TestUnheardAPIServer: a pod that came back under another address while there was no
// API server. What config still has of it from before is nothing to make a patch from:
// the API server would have two addresses.
func TestUnheardAPIServer(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	p := spec("web", "u1")
	p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.244.0.3", PodIPs: []v1.PodIP{{IP: "10.244.0.3"}}}
	h.kill(house.Config)
	h.mu.Lock()
	h.unheard = true
	h.mu.Unlock()
	p = h.cluster.Put(p)
	h.start(house.Config)
	h.up(p)
	h.quiet()
	if got := h.cluster.Pod("default", "web").Status.PodIP; got != "10.244.0.3" {
		t.Errorf("patched to %s on the word of before", got)
	}
	h.mu.Lock()
	h.unheard = false
	h.mu.Unlock()
	h.refresh(house.Config)
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	if got := h.cluster.Pod("default", "web").Status.PodIPs; len(got) != 1 || got[0].IP != "10.244.0.7" {
		t.Errorf("addresses %v", got)
	}
}

// TestConfigBeginsWithItsDisk: config is killed, and lists what it was told once until it
// has heard the API server again. Nothing is made of that; nor of a config of the former
// version in its place, and back.
func TestConfigBeginsWithItsDisk(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.up(h.cluster.Put(spec("web", "u1")))
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	h.quiet()
	before, report := len(h.cluster.Requests("patch", "pods/status")), func() string {
		r, _ := h.svc.pods.reports.Get("u1")
		return string(r.GetStatus())
	}
	was := report()
	for _, config := range []struct{ unheard, unapart bool }{{true, false}, {false, false}, {true, true}, {false, true}, {true, false}, {false, false}} {
		h.kill(house.Config)
		h.mu.Lock()
		h.unheard, h.unapart = config.unheard, config.unapart
		h.mu.Unlock()
		h.start(house.Config)
		h.svc.pods.Mark([]string{everything})
		h.quiet()
		if n := len(h.cluster.Requests("patch", "pods/status")) - before; n != 0 {
			t.Errorf("%d patches, config is %+v", n, config)
		}
		if report() != was {
			t.Errorf("another status, config is %+v", config)
		}
	}
}

// TestLeaseAlone: every other request of the node hangs until the end of the test, and its
// Lease is renewed.
func TestLeaseAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t, func(c *kubeletconfig.Config) { c.Kubelet.NodeLeaseDurationSeconds = 2 }) // renewed each 500 ms
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	h.eventually("the lease is held", func() bool { return h.cluster.Lease("n1") != nil })
	ctx, release := context.WithCancel(context.Background())
	defer release()
	h.cluster.Hook(func(_ context.Context, r fakeapi.Request) error {
		if r.Resource == "leases" {
			return nil
		}
		<-ctx.Done()
		return fakeapi.ErrAway
	})
	n := h.cluster.Node("n1")
	n.Status.Conditions = nil
	h.cluster.PutNode("n1", n) // the node has something to write
	h.up(h.cluster.Put(spec("web", "u1")))
	h.eventually("node and pod are stuck", func() bool {
		return len(h.cluster.Requests("patch", "nodes/status")) > 0 && len(h.cluster.Requests("patch", "pods/status")) > 0
	})
	for range 4 {
		before := h.cluster.Lease("n1").Spec.RenewTime.Time
		h.eventually("the lease is renewed", func() bool { return h.cluster.Lease("n1").Spec.RenewTime.After(before) })
	}
}

// TestReplay: what happened while the API server was away, and this service was
// killed, is told when it is back, even of containers that are gone.
func TestReplay(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	p := h.cluster.Put(spec("job", "u1"))
	h.up(p)
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "job")) })
	h.quiet()
	h.cluster.Away(true)
	record := h.container(p, "c-u1", runtimeapi.ContainerState_CONTAINER_EXITED, 0)
	h.work(p, func(t *testPod) {
		t.record, t.verdicts = record, nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED
	})
	h.quietly(func() bool { // it is tried
		report, ok := h.svc.pods.reports.Get("u1")
		return ok && !report.GetReported() && report.GetError() != ""
	})
	h.work(p, func(t *testPod) {
		t.record = nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_RELEASED
	})
	h.stopStatus()
	h.kill(house.Pleg)
	h.startStatus()
	h.start(house.Pleg)
	h.cluster.Away(false)
	h.eventually("the end is reported", func() bool { return h.cluster.Pod("default", "job").Status.Phase == v1.PodSucceeded })
	end := h.cluster.Pod("default", "job").Status.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 0 || end.Reason != "Completed" {
		t.Errorf("end %+v", end)
	}
	if n := len(h.cluster.Requests("delete", "pods")); n != 0 {
		t.Error("deleted although nobody asked for it")
	}
}

// TestMirrorPod: the API server comes later than the static pod; the mirror is made,
// made again, and follows the manifest.
func TestMirrorPod(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.cluster.Away(true)
	static := func(uid string) *v1.Pod {
		p := spec("etcd-n1", uid)
		p.Annotations = map[string]string{pod.ConfigHashAnnotation: uid, pod.ConfigSourceAnnotation: pod.SourceFile}
		h.mu.Lock()
		clear(h.static)
		h.static[uid] = p
		h.mu.Unlock()
		h.refresh(house.Config)
		return p
	}
	first := static("s1")
	h.up(first)
	h.quietly(func() bool { r, ok := h.svc.pods.reports.Get("s1"); return ok && !r.GetReported() })
	h.cluster.Away(false)
	h.eventually("the mirror has the status", func() bool { return isReady(h.cluster.Pod("default", "etcd-n1")) })
	m := h.cluster.Pod("default", "etcd-n1")
	if m.Annotations[pod.ConfigMirrorAnnotation] != "s1" || m.OwnerReferences[0].UID != h.cluster.Node("n1").UID {
		t.Errorf("mirror %+v", m.ObjectMeta)
	}
	h.quiet()
	if r, _ := h.svc.pods.reports.Get("s1"); !r.GetReported() {
		t.Errorf("report %v", r)
	}

	m.DeletionTimestamp = &metav1.Time{Time: time.Now()} // kubectl delete
	was := m.UID
	h.cluster.Put(m)
	h.eventually("the mirror is back", func() bool {
		now := h.cluster.Pod("default", "etcd-n1")
		return now != nil && now.UID != was && isReady(now)
	})
	h.quiet()

	second := static("s2") // edited: what runs still is the former version
	h.up(second)
	h.quiet()
	if now := h.cluster.Pod("default", "etcd-n1"); now == nil || now.Annotations[pod.ConfigMirrorAnnotation] != "s1" {
		t.Errorf("mirror while the former version is being ended: %+v", now)
	}
	over := func(t *testPod) {
		t.record, t.verdicts = nil, nil
		t.state.Lifecycle = podworkerv1.Lifecycle_LIFECYCLE_TERMINATED
	}
	h.work(first, over)
	h.eventually("the mirror is of the new version", func() bool {
		now := h.cluster.Pod("default", "etcd-n1")
		return now != nil && now.Annotations[pod.ConfigMirrorAnnotation] == "s2" && isReady(now)
	})
	h.quiet()
	before := len(h.cluster.Requests("", ""))
	h.stopStatus()
	h.startStatus()
	h.quiet()
	for _, r := range h.cluster.Requests("", "")[before:] {
		if r.Resource == "pods" || r.Resource == "pods/status" {
			t.Errorf("a restart does %s", r)
		}
	}

	h.noManifest()
	h.work(second, over)
	h.eventually("the mirror is gone", func() bool { return h.cluster.Pod("default", "etcd-n1") == nil })
}

// TestEvents: events of the neighbours arrive once, over kills.
func TestEvents(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	p := h.cluster.Put(spec("web", "u1"))
	emit := func(s house.Service, reason string) {
		if err := h.neighbours[s].events.Emit(t.Context(), podEvent(p, reason)); err != nil {
			t.Fatal(err)
		}
	}
	count := func(reason string) (n int32) {
		for _, e := range h.cluster.Events() {
			if e.Reason == reason && e.InvolvedObject.UID == "u1" {
				n += e.Count
			}
		}
		return n
	}
	emit(house.PodWorker, "Started")
	emit(house.Volume, "FailedMount")
	h.eventually("both are recorded", func() bool { return count("Started") == 1 && count("FailedMount") == 1 })
	h.quiet()
	h.stopStatus()
	emit(house.PodWorker, "Killing")
	h.startStatus()
	h.eventually("the next is recorded", func() bool { return count("Killing") == 1 })
	if count("Started") != 1 || count("FailedMount") != 1 {
		t.Errorf("recorded again: %d, %d", count("Started"), count("FailedMount"))
	}
	seen := map[string]bool{}
	for _, e := range h.cluster.Events() {
		if e.InvolvedObject.Kind == "Node" {
			seen[e.Reason] = true
		}
	}
	if !seen["Starting"] || !seen["NodeReady"] {
		t.Errorf("events of the node: %v", seen)
	}
}

// TestStandalone: without credentials everything is rendered and nothing written.
func TestStandalone(t *testing.T) {
	t.Parallel()
	h := newHome(t, func(c *kubeletconfig.Config) { c.Node.KubeConfig = "" })
	p := spec("etcd-n1", "s1")
	p.Annotations = map[string]string{pod.ConfigHashAnnotation: "s1", pod.ConfigSourceAnnotation: pod.SourceFile}
	h.mu.Lock()
	h.static["s1"] = p
	h.mu.Unlock()
	h.refresh(house.Config)
	h.up(p)
	check := func() bool {
		r, ok := h.svc.pods.reports.Get("s1")
		if !ok {
			return false
		}
		status := v1.PodStatus{}
		if err := status.Unmarshal(r.GetStatus()); err != nil {
			t.Fatal(err)
		}
		n, ok := h.svc.node.report.Get("node")
		return isReady(&v1.Pod{Status: status}) && status.HostIP != "" && ok && n.GetReadySince() != nil && n.GetStandalone() && !r.GetReported()
	}
	h.quietly(check)
	was, _ := h.svc.pods.reports.Get("s1")
	h.stopStatus()
	h.startStatus()
	h.quietly(check)
	if now, _ := h.svc.pods.reports.Get("s1"); string(now.GetStatus()) != string(was.GetStatus()) {
		t.Error("a restart renders something else")
	}
	if all := h.cluster.Requests("", ""); len(all) != 0 {
		t.Errorf("requests %v", all)
	}
}

// TestOtherCredentials: another credential from config is used at once.
func TestOtherCredentials(t *testing.T) {
	t.Parallel()
	h := newHome(t, func(c *kubeletconfig.Config) { c.Node.KubeConfig += ".later" })
	h.quietly(func() bool { return h.svc.node.Known() })
	if n := len(h.cluster.Requests("", "")); n != 0 {
		t.Errorf("%d requests without credentials", n)
	}
	if err := fakeapi.WriteKubeconfig(h.config.Node.KubeConfig, h.url); err != nil {
		t.Fatal(err)
	}
	h.refresh(house.Config)
	h.eventually("the node is registered", func() bool { return h.cluster.Lease("n1") != nil })

	other := fakeapi.New()
	server, kubeconfig, err := other.Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	other.PutNode("n1", h.cluster.Node("n1"))
	if err := os.Rename(kubeconfig, h.config.Node.KubeConfig); err != nil {
		t.Fatal(err)
	}
	h.refresh(house.Config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := other.Eventually(ctx, func() bool { return other.Lease("n1") != nil }); err != nil {
		t.Error("the other API server was never talked to")
	}
}

// TestSilenceOfAnotherClock: the runtime fell silent when the node's clock was two hours
// ahead, and that was set right since: the node is not ready when the grace is over, not two
// hours later.
func TestSilenceOfAnotherClock(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	h.mu.Lock()
	h.silent = timestamppb.New(time.Now().Add(2 * time.Hour))
	h.mu.Unlock()
	h.refresh(house.Pleg)
	var in nodestatus.Input
	h.eventually("the silence is heard of", func() bool {
		f, ok := h.svc.node.facts()
		in = f.Input
		return ok && in.Runtime != nil && !in.Runtime.Responding
	})
	in.Now, in.Old = time.Now().Add(time.Minute), h.cluster.Node("n1").Status
	if n := (&v1.Node{Status: nodestatus.Render(in)}); nodeReady(n) {
		t.Error("the node is ready a minute after its runtime fell silent")
	}
}
