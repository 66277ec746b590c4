// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
	"github.com/sextant-node/sextant/test/images"
)

// Every pod has a gpu, a nic and a claim of its own; those that stay share one claim more.
const (
	keeperName = "stays-"
	shared     = "shared"
)

// wanted is how many devices and claims a pod asks for, by its name.
func wanted(pod string) int {
	switch {
	case strings.HasPrefix(pod, keeperName):
		return 4
	case strings.HasPrefix(pod, wholeName):
		return 2
	}
	return 3
}

// claimOf is the claim of a device of the driver; empty for a device of a plugin.
func claimOf(device string) string {
	kind, name, _ := strings.Cut(device, " ")
	if !strings.HasSuffix(kind, "/device") {
		return ""
	}
	return strings.TrimSuffix(name, "-gpu")
}

// churn has pods come and go.
type churn struct {
	*crowd
	killing atomic.Bool
	went    atomic.Int64
	mu      sync.Mutex
	claims  map[string]string // UID by name
}

func (c *churn) claim(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[name]
}

// begin starts the lanes.
func (c *churn) begin(seed uint64) {
	c.killing.Store(true)
	for i := range lanes {
		c.Churners.Go(func() {
			c.lane(c.T.Context(), rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprintf("comes-%d-", i), true)
		})
	}
	c.Churners.Go(func() { c.lane(c.T.Context(), rand.New(rand.NewPCG(seed, lanes)), pinnedName, false) })
}

// lane has pods come, stay for some kills, and go; where they may overlap, one ends while
// the next starts. There is room for each.
func (c *churn) lane(ctx context.Context, random *rand.Rand, prefix string, overlap bool) {
	ending := make(chan struct{})
	close(ending)
	for i := 0; c.killing.Load() && ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s%d", prefix, i)
		if err := c.come(ctx, name, name); err != nil {
			c.Found(ctx, judge.Stuck, err)
			break
		}
		<-ending
		c.stay(ctx, random.IntN(4))
		done := make(chan struct{})
		ending = done
		c.Churners.Go(func() {
			defer close(done)
			c.Found(ctx, judge.Lost, c.leave(ctx, name))
			c.went.Add(1)
		})
		if !overlap || random.IntN(2) == 0 {
			<-ending
		}
	}
	<-ending
}

// stay waits for so many kills.
func (c *churn) stay(ctx context.Context, kills int) {
	until := c.mood.rounds() + kills
	_ = c.Until(ctx, "kills", func() bool { return c.mood.rounds() >= until || !c.killing.Load() }) // a pod that stays longer is no fault
}

// come makes a pod and its claims, and waits until it is Ready.
func (c *churn) come(ctx context.Context, name string, claims ...string) error {
	pod := c.podWith(name, claims...)
	if err := c.makeClaim(ctx, name); err != nil {
		return err
	}
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	if err := c.Await(ctx, name, func(p *corev1.Pod) bool { return p.UID != "" }); err != nil {
		return err
	}
	for _, claim := range claims {
		if err := c.reserve(ctx, claim, c.Told(name)); err != nil {
			return err
		}
	}
	refused := ""
	err := c.Await(ctx, name, func(p *corev1.Pod) bool {
		if p.Status.Phase == corev1.PodFailed {
			refused = p.Status.Reason + ": " + p.Status.Message
		}
		return load.IsReady(p) || refused != ""
	})
	if err == nil && refused != "" {
		err = fmt.Errorf("pod %s: refused though there was room: %s", name, refused)
	}
	return err
}

// leave removes a pod, and then its claim.
func (c *churn) leave(ctx context.Context, name string) error {
	if err := c.Remove(ctx, name); err != nil {
		return err
	}
	err := c.CP.Admin.ResourceV1().ResourceClaims(c.NS).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// makeClaim makes a claim that has been allocated, as a scheduler does.
func (c *churn) makeClaim(ctx context.Context, name string) error {
	api := c.CP.Admin.ResourceV1().ResourceClaims(c.NS)
	claim, err := api.Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "any"},
		}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: c.driver.Name, Pool: "pool", Device: name + "-gpu"}},
	}}
	if _, err = api.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims = map[string]string{}
	}
	c.claims[name] = string(claim.UID)
	return nil
}

// reserve lets a pod use a claim, if the controller manager has not done so: it does for
// pods that no scheduler has seen.
func (c *churn) reserve(ctx context.Context, name string, pod *corev1.Pod) error {
	api := c.CP.Admin.ResourceV1().ResourceClaims(c.NS)
	for {
		claim, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }) {
			return nil
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		if _, err = api.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// podWith is a pod with a device of each plugin and the claims; one that is pinned has a CPU
// of its own, or as a whole.
func (c *churn) podWith(name string, claims ...string) *corev1.Pod {
	one := resource.MustParse("1")
	limits := corev1.ResourceList{gpu: one, nic: one}
	own := corev1.ResourceList{corev1.ResourceCPU: one, corev1.ResourceMemory: resource.MustParse("64Mi")}
	whole := strings.HasPrefix(name, wholeName)
	switch {
	case whole:
		delete(limits, nic) // a kubelet cannot call its plugin before the start
	case strings.HasPrefix(name, pinnedName):
		maps.Copy(limits, own)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:   c.Node.Name,
		Containers: []corev1.Container{{Name: "hello", Image: images.Hello, Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}},
	}}
	if whole {
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: own, Requests: own}
	}
	for _, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: new(claim)})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return pod
}

// keepers makes the pods that stay.
func (c *churn) keepers() {
	c.T.Helper()
	ctx := c.T.Context()
	if err := c.makeClaim(ctx, shared); err != nil {
		c.T.Fatal(err)
	}
	var names []string
	for i := range keepers {
		name := fmt.Sprintf("%s%d", keeperName, i)
		if err := c.come(ctx, name, name, shared); err != nil {
			c.T.Fatalf("before anything was done: %v", err)
		}
		names = append(names, name)
	}
	c.Keep(names)
}

// settled waits until the pods that come and go are gone, and returns what is left of them:
// what is prepared is of pods that stay.
func (c *churn) settled() error {
	c.Churners.Wait()
	return c.left(keepers + 1)
}

// left waits until no more than so many claims are prepared.
func (c *churn) left(claims int) error {
	return harness.Within(c.T.Context(), load.Patience, func(context.Context) error {
		if now := c.driver.Prepared(); len(now) != claims {
			return fmt.Errorf("%d claims are prepared, and %d in use: %v", len(now), claims, now)
		}
		return nil
	})
}
