// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// hogName begins the names of pods that take memory until the node evicts them.
const hogName = "hog-"

// asked is what every other pod asks for, so that it may come while memory is short.
const asked = "16Mi"

// hogs are pods that have the node short of memory, one after the other, while services are
// killed.
type hogs struct {
	pods int64 // bytes that all pods may use
	kept int64 // bytes below which the node is short
}

// hogsBeside are hogs on a node with so many other pods: they leave room for these, in what
// is allocatable and, when one has taken what it takes, in memory.
func hogsBeside(pods int) *hogs {
	n := int64(pods) << 20
	return &hogs{pods: 600<<20 + 32*n, kept: 150<<20 + 16*n}
}

// configure gives pods no more memory than that.
func (h *hogs) configure(t *testing.T, c *kubeletv1beta1.KubeletConfiguration) {
	t.Helper()
	c.KubeReserved = map[string]string{"memory": fmt.Sprint(harness.Memory(t) - h.pods)}
	c.EvictionHard = map[string]string{"memory.available": fmt.Sprint(h.kept)}
	c.EvictionPressureTransitionPeriod.Duration = 5 * time.Second
	c.KernelMemcgNotification = true
}

// run has one hog after the other evicted, and no other pod.
func (h *hogs) run(ctx context.Context, l *load) {
	for i := 0; ctx.Err() == nil; i++ {
		pod, _ := l.pod(fmt.Sprintf("%s%d", hogName, i))
		err := l.create(ctx, pod)
		if err == nil {
			err = l.w.await(ctx, pod.Name, isReady)
		}
		if err != nil {
			l.find(ctx, judge.Stuck, err)
			continue
		}
		if err := h.take(ctx, l.w.pod(pod.Name)); err != nil {
			l.find(ctx, judge.Stuck, fmt.Errorf("%s: %w", pod.Name, err))
		}
		err = l.w.await(ctx, pod.Name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if l.find(ctx, judge.Lost, err); err == nil {
			if p := l.w.pod(pod.Name); p.Status.Reason != "Evicted" {
				l.find(ctx, judge.Lost, fmt.Errorf("%s ended with %q, %q", p.Name, p.Status.Reason, p.Status.Message))
			}
		}
		l.find(ctx, judge.Lost, l.remove(ctx, pod.Name))
	}
}

// take has a pod take memory, once it serves.
func (h *hogs) take(ctx context.Context, pod *corev1.Pod) error {
	return harness.Within(ctx, patience, func(ctx context.Context) error {
		return harness.Ask(ctx, pod, fmt.Sprintf("/hold?bytes=%d", h.pods-h.kept))
	})
}

// request is what a pod asks for beside hogs.
func (h *hogs) request(c *corev1.Container) {
	if h != nil {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(asked)}
	}
}

func isHog(pod *corev1.Pod) bool { return strings.HasPrefix(pod.Name, hogName) }

// besideHogs is a node without what hogs bring about.
func besideHogs(node *corev1.Node) *corev1.Node {
	blind := node.DeepCopy()
	blind.Status.Conditions, blind.Spec.Taints = nil, nil
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeMemoryPressure {
			blind.Status.Conditions = append(blind.Status.Conditions, c)
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeMemoryPressure {
			blind.Spec.Taints = append(blind.Spec.Taints, taint)
		}
	}
	return blind
}
