// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// evictions: pods that use more local storage than their limits allow end as Failed with
// a kubelet's words, and one beside them that does not stays.
func evictions(e *env) {
	if err := e.n.Runtime.ImportImage(e.Context(), harness.The(e.T).Archive(e.T, images.Busybox), images.Busybox); err != nil {
		e.Fatal(err)
	}
	const write = "dd if=/dev/zero of=%s bs=1M count=4 && trap 'exit 0' TERM; while :; do sleep 0.2; done"
	scratch := func(name, limit string) *corev1.Pod {
		p, size := e.shell(name, "sh", "-c", fmt.Sprintf(write, "/scratch/file")), resource.MustParse(limit)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
		return p
	}
	layer := e.shell("layer", "sh", "-c", fmt.Sprintf(write, "/file"))
	layer.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	for _, p := range []*corev1.Pod{scratch("full", "1Mi"), scratch("roomy", "1Gi"), layer} {
		e.create(p)
	}
	e.awaitRunning("roomy", usual)
	for name, want := range map[string]string{
		"full":  `Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". `,
		"layer": "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
	} {
		pod := e.await(name, usual+2*time.Minute, "to be evicted", func(pod *corev1.Pod) error { // volumes are measured each minute
			if pod.Status.Phase != corev1.PodFailed {
				return errors.New(brief(pod))
			}
			return nil
		})
		if pod.Status.Reason != "Evicted" || pod.Status.Message != want || conditionTrue(pod, corev1.DisruptionTarget) {
			e.Errorf("%s: %s: %q, %+v", name, pod.Status.Reason, pod.Status.Message, pod.Status.Conditions)
		}
		e.awaitEvent(name, "Evicted", usual, func(message string) error {
			if strings.TrimSpace(message) != strings.TrimSpace(want) {
				return errors.New(message)
			}
			return nil
		})
	}
	e.awaitRunning("roomy", usual)
}
