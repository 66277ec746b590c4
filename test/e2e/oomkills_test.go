// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// oomKills: every container that the kernel kills for want of memory is OOMKilled, of many at
// once too, whenever the runtime hears of it; one that exits with the same code is not. A shim
// of containerd that sees to an exit first may never tell of the kill.
func oomKills(e *env) {
	if err := e.n.Runtime.ImportImage(e.Context(), harness.The(e.T).Archive(e.T, images.Busybox), images.Busybox); err != nil {
		e.Fatal(err)
	}
	limit := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	want := map[string]string{"exits": "Error"}
	exits := e.shell("exits", "sh", "-c", "exit 137")
	pods := []*corev1.Pod{exits}
	for n := range 10 {
		p := e.shell(fmt.Sprintf("takes-%d", n), "sh", "-c", "dd if=/dev/zero of=/dev/null bs=64M")
		p.Spec.Containers[0].Resources.Limits = limit
		pods, want[p.Name] = append(pods, p), "OOMKilled"
	}
	for _, p := range pods {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		e.create(p)
	}
	heard := 0
	for name, reason := range want {
		e.await(name, usual+time.Minute, "to end with "+reason, func(pod *corev1.Pod) error {
			t := killed(pod)
			if t == nil {
				return errors.New(brief(pod))
			}
			if t.Reason == "OOMKilled" {
				heard++
			}
			if t.Reason == reason {
				return nil
			}
			_, id, _ := strings.Cut(t.ContainerID, "://")
			said, err := e.n.Runtime.Runtimes.ContainerStatus(e.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
			if err != nil {
				return fmt.Errorf("%s: %w", brief(pod), err)
			}
			if t.Reason == "Error" && said.GetStatus().GetReason() == t.Reason && time.Since(t.FinishedAt.Time) > time.Minute {
				e.Logf("%s: the runtime did not hear within a minute that the kernel killed it", name)
				return nil
			}
			return fmt.Errorf("%s, the runtime says %s", brief(pod), said.GetStatus().GetReason())
		})
	}
	if heard == 0 {
		e.Error("the runtime heard of no kill")
	}
}

// killed is the end of a pod's container by a signal of no mercy; nil before it.
func killed(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; pod.Status.Phase == corev1.PodFailed && t != nil && t.ExitCode == 137 {
			return t
		}
	}
	return nil
}
