// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/fakecri"
)

// grow gives a container other resources, of the same class.
func (m *maker) grow(c *corev1.Container) { m.scale(c, 1, 2, 3) }

// scale multiplies the resources of a container each by one of the factors.
func (m *maker) scale(c *corev1.Container, factors ...float64) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		factor := pick(m, factors...)
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			if q, ok := list[name]; ok {
				list[name] = *resource.NewMilliQuantity(int64(float64(q.MilliValue())*factor), q.Format)
			}
		}
	}
}

// resize asks for other resources for the pods that run whole, of those with the numbers, and
// waits until they have them. Its answer are the pods for which the API server took it.
func resize(t *testing.T, sides []*side, numbers []int, names []string, come map[string]progress) (resized []string) {
	t.Helper()
	there := map[string]bool{}
	for _, name := range names {
		there[name] = come[name] == whole
	}
	for _, n := range numbers {
		name := fmt.Sprintf("random-%d", n)
		if m := newMaker(*seed+1<<32, n, ""); there[name] && m.one(2) && ask(t, sides, m, name, (*maker).grow) {
			resized = append(resized, name)
		}
	}
	for _, s := range sides {
		harness.Eventually(t, 3*time.Minute, "the pods to be resized", func(ctx context.Context) error {
			for _, name := range resized {
				p, err := s.cp.Admin.CoreV1().Pods(s.ns).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if p.Status.ObservedGeneration < p.Generation {
					return fmt.Errorf("%s: %s: generation %d was not observed", s.agent, name, p.Generation)
				}
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodResizeInProgress {
						return fmt.Errorf("%s: %s: %s %s", s.agent, name, c.Type, c.Message)
					}
				}
			}
			return nil
		})
	}
	harness.Rest(t, 3*time.Second)
	return resized
}

// ask asks for other resources of a pod on all sides, as change gives them to its containers; false
// where the API server refuses, or the pod does not run.
func ask(t *testing.T, sides []*side, m *maker, name string, change func(*maker, *corev1.Container)) bool {
	t.Helper()
	factors := m.Uint64()
	for _, s := range sides {
		pods := s.cp.Admin.CoreV1().Pods(s.ns)
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Status.Phase != corev1.PodRunning {
			return false
		}
		m := newMaker(factors, 0, "") // the same for each
		for i := range p.Spec.InitContainers {
			if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil {
				change(m, c)
			}
		}
		for i := range p.Spec.Containers {
			change(m, &p.Spec.Containers[i])
		}
		_, err = pods.UpdateResize(t.Context(), name, p, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			if *only >= 0 {
				t.Log(err)
			}
			if s != sides[0] {
				t.Errorf("%s: a resize is refused for one agent alone: %v", name, err)
			}
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// sizes are what a pod that was resized has, and what the runtime was asked for, as lines.
func (s *side) sizes(t *testing.T, name string) (all []string) {
	t.Helper()
	p, err := s.cp.Admin.CoreV1().Pods(s.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return nil
	}
	f := s.flattener(p)
	add := func(what string, v any) {
		facts, err := f.FactsOf(v)
		if err != nil {
			t.Error(err)
		}
		for _, fact := range facts {
			all = append(all, "resized "+what+" "+fact)
		}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			add(c.Name+" has", c.Resources)
			add(c.Name+" is allocated", c.AllocatedResources)
			add(c.Name+" was restarted", c.RestartCount)
		}
	}
	add("pod is allocated", p.Status.AllocatedResources)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending {
			add("waits", c.Reason+": "+c.Message)
		}
	}
	last := map[string]*runtimeapi.UpdateContainerResourcesRequest{}
	for _, call := range s.rt.Calls(fakecri.Match{Method: "UpdateContainerResources"}) {
		if call.Pod == name {
			last[call.Name] = call.Request.(*runtimeapi.UpdateContainerResourcesRequest)
		}
	}
	for container, request := range last {
		facts, err := f.Facts(document(t, request.GetLinux()))
		if err != nil {
			t.Error(err)
		}
		for _, fact := range facts {
			all = append(all, "resized "+container+" was given "+fact)
		}
	}
	return all
}
