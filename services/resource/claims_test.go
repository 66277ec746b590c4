// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/dradriver"
	"github.com/sextant-node/sextant/test/standin"
)

// driver is a DRA driver that registers with the service under test.
func (r *rig) driver(d *dradriver.Driver) *dradriver.Driver {
	r.Helper()
	if err := d.Start(r.machine); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(d.Stop)
	return d
}

// claim puts a claim into the API server, allocated by a driver and reserved for pods.
func (r *rig) claim(name, uid, driver string, pods ...string) {
	r.Helper()
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Driver: driver}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: types.UID(p)})
	}
	data, err := c.Marshal()
	if err != nil {
		r.Fatal(err)
	}
	standin.Set(r.House, r.objects, "ResourceClaim/ns/"+name, &configv1.Object{Kind: "ResourceClaim", Namespace: "ns", Name: name, Object: data})
}

// claiming is a pod whose container has a claim.
func claiming(uid, claim string) *v1.Pod {
	p := burstable(uid, "1")
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "devices", ResourceClaimName: &claim}}
	p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "devices"}}
	return p
}

// becomes asks for admission until the answer begins with a text.
func (r *rig) becomes(p *v1.Pod, want string) {
	r.Helper()
	got := ""
	r.Eventually(fmt.Sprintf("%s for %s", want, p.UID), func() bool {
		got = decision(r.admit(p, false))
		return strings.HasPrefix(got, want)
	})
}

// cdi is what the item of a pod has for its container.
func (r *rig) cdi(uid string) string {
	item, _ := r.pods.Get(uid)
	var all []string
	for _, c := range item.GetContainers() {
		all = append(all, c.GetName()+": "+strings.Join(c.GetCdiDevices(), " "))
	}
	return strings.Join(all, ", ")
}

// TestClaims: a pod waits in the kubelet's words until its claim can be used and its driver
// has prepared it, holds its place meanwhile, and leaves nothing prepared.
func TestClaims(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	p := claiming("u", "gpu")
	const failed = "not yet: Failed to prepare dynamic resources: prepare dynamic resources: "
	r.becomes(p, "not yet: the devices of its resource claims are being prepared")
	standin.Set(r.House, r.objects, "ResourceClaim/ns/gpu", &configv1.Object{Kind: "ResourceClaim", Namespace: "ns", Name: "gpu", Absent: true})
	r.becomes(p, failed+`fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`)
	r.claim("gpu", "c1", "a.example", "other")
	r.becomes(p, failed+"pod name-u (u) is not allowed to use ResourceClaim gpu (c1)")
	r.claim("gpu", "c1", "a.example", "u")
	r.becomes(p, failed+"DRA driver a.example is not registered")
	r.Eventually("the pod's item says so", func() bool {
		item, _ := r.pods.Get("u")
		return item.GetUnready() == "prepare dynamic resources: DRA driver a.example is not registered" && len(item.GetContainers()) == 0
	})
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.Eventually("its item has the devices", func() bool {
		item, _ := r.pods.Get("u")
		return item.GetUnready() == "" && r.cdi("u") == "c: a.example/device=gpu-gpu"
	})
	r.becomes(p, "admitted ")
	r.Eventually("the driver is notified", func() bool { return len(d.Told()) == 1 && d.Told()[0].GetPluginRegistered() })
	r.release("u")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("u"); return !ok })
	if got := d.Calls(); !slices.Equal(got, []string{"prepare ns/gpu c1", "unprepare ns/gpu c1"}) {
		t.Errorf("calls %v", got)
	}
}

// TestAClaimThatCannotBeUnprepared: the pod is not released before, and its item says why.
func TestAClaimThatCannotBeUnprepared(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	d := r.driver(&dradriver.Driver{Name: "a.example"})
	r.claim("gpu", "c1", "a.example", "u")
	r.becomes(claiming("u", "gpu"), "admitted ")
	d.Stop()
	r.Eventually("the driver is gone, and missed", func() bool {
		r.release("u")
		item, _ := r.pods.Get("u")
		return item.GetReleasing() && item.GetError() == "unprepare dynamic resources: DRA driver a.example is not registered"
	})
	r.driver(d)
	r.Eventually("released", func() bool { _, ok := r.pods.Get("u"); return !ok })
	if got := d.Prepared(); len(got) > 0 {
		t.Errorf("prepared still: %v", got)
	}
}

// TestAHungDriverHoldsUpNoOtherPod: neither admissions nor releases wait for it.
func TestAHungDriverHoldsUpNoOtherPod(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	hung := r.driver(&dradriver.Driver{Name: "a.example", Prepare: func(ctx context.Context, _ *drav1.Claim) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	r.claim("gpu", "c1", "a.example", "u")
	r.becomes(claiming("u", "gpu"), "not yet: the devices of its resource claims are being prepared")
	r.Eventually("it is called", func() bool { return len(hung.Calls()) == 1 })
	r.becomes(burstable("other", "1"), "admitted ")
	r.release("other")
	r.Eventually("the other is released", func() bool { _, ok := r.pods.Get("other"); return !ok })
	r.release("u")
	r.Eventually("and so is this", func() bool { _, ok := r.pods.Get("u"); return !ok })
	if got := hung.Calls(); !slices.Equal(got, []string{"prepare ns/gpu c1", "unprepare ns/gpu c1"}) {
		t.Errorf("calls %v", got)
	}
}

// TestKillsWithClaims kills the service at each write and each call of a driver while pods
// with a claim come and go: the claim is prepared once, but where a kill came between the
// driver's answer and its record, and nothing stays prepared.
func TestKillsWithClaims(t *testing.T) {
	s := newSiege(t, 60)
	d := s.driver(&dradriver.Driver{Name: "a.example"})
	kills := 0
	for _, point := range []string{"store.write", "file.written", "dra.prepare", "dra.prepared", "dra.unprepare", "dra.unprepared"} {
		for n, more := 0, true; more; n++ {
			faults := point + "=kill"
			if n > 0 {
				faults = fmt.Sprintf("%s=%d*off->kill", point, n)
			}
			uid := types.UID(fmt.Sprintf("c-%s-%d", point, n))
			s.claim("gpu", string(uid), "a.example", "u", "v")
			before := len(d.Calls())
			more = s.killedIn(faults, func() bool {
				for _, name := range []string{"u", "v"} { // they share the claim
					s.insist(s.admission(claiming(name, "gpu")))
				}
				if got := d.Prepared(); !slices.Equal(got, []string{string(uid)}) {
					t.Errorf("%s: prepared %v", faults, got)
				}
				for _, name := range []string{"u", "v"} {
					s.released(name)
				}
				return true
			})
			if got := d.Prepared(); len(got) > 0 {
				t.Errorf("%s: prepared still: %v", faults, got)
			}
			calls := map[string]int{}
			for _, call := range d.Calls()[before:] {
				calls[strings.Fields(call)[0]]++
			}
			if calls["prepare"] < 1 || calls["unprepare"] < 1 || calls["prepare"] > 2 || calls["unprepare"] > 2 || calls["prepare"]+calls["unprepare"] > 3 {
				t.Errorf("%s: calls %v", faults, calls)
			}
			kills++
		}
	}
	if kills -= 6; kills < 20 { // the last of each kind was none
		t.Errorf("only %d kills", kills)
	}
	t.Logf("%d kills", kills)
}

// released has a pod released, and waits until the replica has seen that it is.
func (s *siege) released(uid string) {
	s.Helper()
	s.Eventually(uid+" is released", func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		resp, err := s.client.Release(ctx, &resourcev1.ReleaseRequest{Uid: uid})
		now, complete, _, _ := s.pods.State()
		_, listed := s.pods.Get(uid)
		return err == nil && complete && !listed && now.Reached(feed.RevisionFrom(resp.GetRevision()))
	})
	s.gone(uid)
}

func (s *siege) admission(p *v1.Pod) *resourcev1.AdmitRequest {
	s.Helper()
	data, err := p.Marshal()
	if err != nil {
		s.Fatal(err)
	}
	return &resourcev1.AdmitRequest{Pod: data}
}

// TestHealthOfClaims: how a driver says that a claim's device is, is in the pod's item, and
// stays there while the service is restarted; what the end of the driver makes of it is
// Unknown.
func TestHealthOfClaims(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	d := &dradriver.Driver{Name: "gpu.example.com"}
	d.Report(dradriver.DeviceHealth("c1-gpu", drahealth.HealthStatus_UNHEALTHY, "too hot"))
	r.driver(d)
	r.claim("c1", "u1", d.Name, "p1")
	p := claiming("p1", "c1")
	r.becomes(p, "admitted")
	health := func() string {
		item, _ := r.pods.Get("p1")
		var all []string
		for _, h := range item.GetDeviceHealth() {
			all = append(all, fmt.Sprintf("%s %s %s %s %s", h.GetContainer(), h.GetResource(), h.GetId(), h.GetHealth(), h.GetMessage()))
		}
		return strings.Join(all, "; ")
	}
	is := func(want string) {
		t.Helper()
		want = p.Spec.Containers[0].Name + " claim:devices gpu.example.com/device=c1-gpu " + want
		r.Eventually(want, func() bool { return health() == want })
	}
	is("Unhealthy too hot")
	var others []string
	var mu sync.Mutex
	r.pods.Watch(func([]string) {
		if h := health(); !strings.Contains(h, "Unhealthy too hot") {
			mu.Lock()
			defer mu.Unlock()
			others = append(others, h)
		}
	})
	r.stop()
	r.start(nil)
	r.becomes(p, "admitted")
	is("Unhealthy too hot")
	mu.Lock()
	if len(others) > 0 {
		t.Errorf("while the service was restarted: %q", others)
	}
	mu.Unlock()
	d.Report(dradriver.DeviceHealth("c1-gpu", drahealth.HealthStatus_HEALTHY, ""))
	is("Healthy ")
	d.Stop()
	is("Unknown ")
}
