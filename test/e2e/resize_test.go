// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/house"
)

// share is what one container has: CPU and memory, requested and at most.
type share struct{ cpu, cpuLimit, memory, memoryLimit string }

func (a share) requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(a.cpu), "memory": resource.MustParse(a.memory)},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse(a.cpuLimit), "memory": resource.MustParse(a.memoryLimit)},
	}
}

// sizedPod is a pod that may be resized.
func (e *env) sizedPod(name string, a share) *corev1.Pod {
	pod := e.pod(name)
	pod.Spec.Containers[0].Resources = a.requirements()
	return pod
}

// resize asks for other resources, as a user does.
func (e *env) resize(name string, a share) {
	e.Helper()
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"hello","resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`,
		a.cpu, a.memory, a.cpuLimit, a.memoryLimit)
	if got := e.kubectl(nil, "patch", "pod", name, "--subresource=resize", "--patch="+patch); got.code != 0 {
		e.Fatalf("kubectl patch: %s", got.err)
	}
}

// awaitResized waits until the API shows that a pod has what it asks for.
func (e *env) awaitResized(name string, a share) *corev1.Pod {
	e.Helper()
	want := a.requirements()
	return e.await(name, usual, "to be resized", func(pod *corev1.Pod) error {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				return fmt.Errorf("condition %+v", c)
			}
		}
		if err := running(pod); err != nil {
			return err
		}
		s := pod.Status.ContainerStatuses[0]
		if s.Resources == nil || !sameShare(s.Resources.Requests, want.Requests) || !sameShare(s.Resources.Limits, want.Limits) ||
			!sameShare(s.AllocatedResources, want.Requests) {
			return fmt.Errorf("resources %+v, allocated %+v", s.Resources, s.AllocatedResources)
		}
		return nil
	})
}

func sameShare(a, b corev1.ResourceList) bool {
	return len(a) == len(b) && a.Cpu().Cmp(*b.Cpu()) == 0 && a.Memory().Cmp(*b.Memory()) == 0
}

func pendingResize(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending {
			return c
		}
	}
	return nil
}

// resizes changes what a running pod has, up and down, with and without a
// restart, and asks for more than the node has.
func resizes(e *env) {
	small, large := share{"50m", "100m", "32Mi", "64Mi"}, share{"100m", "200m", "64Mi", "128Mi"}
	restarted := e.sizedPod("resized-anew", small)
	restarted.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: corev1.RestartContainer}}
	e.create(e.sizedPod("resized", small))
	e.create(restarted)
	before := e.awaitRunning("resized", usual).Status.ContainerStatuses[0]
	e.awaitRunning("resized-anew", usual)
	for _, a := range []share{large, small} {
		e.resize("resized", a)
		after := e.awaitResized("resized", a).Status.ContainerStatuses[0]
		if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
			e.Errorf("it was restarted: %+v", after)
		}
	}
	for _, reason := range []string{"ResizeStarted", "ResizeCompleted"} {
		e.awaitEvent("resized", reason, usual, contains(`"cpu":"100m"`))
	}
	e.resize("resized-anew", large)
	if got := e.awaitResized("resized-anew", large).Status.ContainerStatuses[0].RestartCount; got != 1 {
		e.Errorf("restarted %d times, want once", got)
	}
	// More than the whole node the API server refuses; the other pods have some of it.
	whole := ""
	e.awaitNode(usual, "measured", func(node *corev1.Node) error {
		whole = node.Status.Allocatable.Cpu().String()
		return nil
	})
	e.resize("resized", share{whole, whole, "32Mi", "64Mi"})
	pod := e.await("resized", usual, "to be deferred", func(pod *corev1.Pod) error {
		if c := pendingResize(pod); c == nil || c.Reason != corev1.PodReasonDeferred {
			return errors.New(brief(pod))
		}
		return nil
	})
	if c := pendingResize(pod); !strings.HasPrefix(c.Message, "Node didn't have enough resource: cpu, requested: ") || c.ObservedGeneration != pod.Generation {
		e.Errorf("generation %d: %+v", pod.Generation, c)
	}
	e.awaitEvent("resized", "ResizeDeferred", usual, contains("Node didn't have enough resource: cpu"))
	e.resize("resized", small)
	if got := e.awaitResized("resized", small).Status.ContainerStatuses[0]; got.ContainerID != before.ContainerID {
		e.Errorf("it was restarted: %+v", got)
	}
}

// podResources runs and ends a pod with resources of its own. An API server before v1.36
// does not keep the resources in the status of such a pod.
func podResources(e *env) {
	pod := e.pod("together")
	all := share{"50m", "100m", "32Mi", "64Mi"}.requirements()
	pod.Spec.Resources = &all
	e.create(pod)
	e.awaitRunning("together", usual)
	e.delete("together", 1)
	e.awaitGone("together", usual)
}

// killWhileResizing kills each service that has a part in a resize, in the middle
// of one.
func killWhileResizing(e *env) {
	sizes := []share{{"50m", "100m", "32Mi", "64Mi"}, {"100m", "200m", "64Mi", "128Mi"}}
	e.create(e.sizedPod("resized", sizes[0]))
	before := e.awaitRunning("resized", usual).Status.ContainerStatuses[0]
	for i, s := range []house.Service{house.Config, house.Resource, house.PodWorker, house.Pleg, house.Status} {
		e.Run(string(s), func(t *testing.T) {
			sub := &env{T: t, n: e.n, ns: e.ns}
			dumpOnFailure(t, e.n, e.ns)
			next := sizes[(i+1)%2]
			old, err := e.n.hello(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			sub.resize("resized", next)
			if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			after := sub.awaitResized("resized", next).Status.ContainerStatuses[0]
			if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
				t.Errorf("it was restarted: %+v", after)
			}
		})
	}
	e.delete("resized", 0)
	e.awaitGone("resized", usual)
}
