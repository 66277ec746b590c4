// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// ephemeral is a random ephemeral container for a pod.
func (m *maker) ephemeral(p *corev1.Pod) corev1.EphemeralContainer {
	c := m.container("debug", &p.Spec)
	c.Image, c.ImagePullPolicy = pick(m, server, user, number), corev1.PullIfNotPresent
	c.Ports, c.Lifecycle, c.ReadinessProbe, c.Resources = nil, nil, nil, corev1.ResourceRequirements{}
	for i := range c.VolumeMounts {
		c.VolumeMounts[i].SubPath, c.VolumeMounts[i].SubPathExpr = "", ""
	}
	e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)}
	if m.one(2) {
		e.TargetContainerName = "main-0"
	}
	return e
}

// debug adds an ephemeral container to pods that run whole, of those with the numbers, and waits
// until it runs, or waits for good.
func debug(t *testing.T, sides []*side, numbers []int, come map[string]progress) (debugged int) {
	t.Helper()
	var names []string
	for _, n := range numbers {
		name := fmt.Sprintf("random-%d", n)
		far, there := come[name]
		if m := newMaker(*seed+1<<33, n, ""); there && far == whole && m.one(2) && attach(t, sides, m.Uint64(), name) {
			names = append(names, name)
		}
	}
	for _, s := range sides {
		harness.Eventually(t, 3*time.Minute, "the ephemeral containers", func(ctx context.Context) error {
			for _, name := range names {
				p, err := s.cp.Admin.CoreV1().Pods(s.ns).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				all := p.Status.EphemeralContainerStatuses
				if len(all) == 0 || all[0].State.Waiting != nil && all[0].State.Waiting.Reason == "ContainerCreating" {
					return fmt.Errorf("%s: %s", s.agent, name)
				}
			}
			return nil
		})
	}
	harness.Rest(t, 3*time.Second)
	return len(names)
}

// attach adds an ephemeral container to a pod on all sides; false where the API server refuses,
// or the pod does not run.
func attach(t *testing.T, sides []*side, random uint64, name string) bool {
	t.Helper()
	for _, s := range sides {
		pods := s.cp.Admin.CoreV1().Pods(s.ns)
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Status.Phase != corev1.PodRunning {
			return false
		}
		own := p.DeepCopy() // without the volume of the token, whose name is random
		own.Spec.Volumes = nil
		for _, v := range p.Spec.Volumes {
			if v.Name[:min(4, len(v.Name))] != "kube" {
				own.Spec.Volumes = append(own.Spec.Volumes, v)
			}
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, newMaker(random, 0, "").ephemeral(own))
		_, err = pods.UpdateEphemeralContainers(t.Context(), name, p, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			if s != sides[0] {
				t.Errorf("%s: an ephemeral container is refused for one agent alone: %v", name, err)
			}
			if *only >= 0 {
				t.Log(err)
			}
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return true
}
