// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/stallfs"
)

// deadFileSystem has a FUSE file system under some of the pods that stops
// answering, as a remote one does whose server is gone. Nobody else may notice:
// other pods start and go as before, the node stays Ready, and each service can be
// killed and is back in time. Who needs it waits, says for what, and runs when it
// answers again.
func deadFileSystem(e *env) {
	dead := stallfs.Mount(e)
	folder := filepath.Join(dead.Dir, "folder")
	e.create(e.pod("healthy"))
	e.create(e.podOn("typed", folder, corev1.HostPathDirectory))
	e.create(e.podOn("untyped", folder, corev1.HostPathUnset))
	names := []string{"healthy", "typed", "untyped"}
	for _, name := range names {
		e.awaitRunning(name, usual)
	}
	e.n.awaitServing(e.T, usual)
	usually := e.startsAndEnds("before")
	calm := e.undisturbed()
	before, began := e.state(names), time.Now()
	dead.Stall()
	e.create(e.podOn("late", folder, corev1.HostPathDirectory))
	stalled := e.startsAndEnds("during")
	e.Logf("%s: a pod started and went in %.2f s, and in %.2f s while another's file system did not answer", e.n.kind, usually.Seconds(), stalled.Seconds())
	const why = "no answer since"
	harness.Eventually(e, usual, "an event that says what pod late waits for", func(ctx context.Context) error {
		events, err := e.n.cp.Admin.CoreV1().Events(e.ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=late,reason=FailedMount"})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
			return strings.Contains(event.Message, `"remote"`) && strings.Contains(event.Message, folder) && strings.Contains(event.Message, why)
		}) {
			return fmt.Errorf("%d events", len(events.Items))
		}
		return nil
	})
	harness.Eventually(e, usual, "sextant pods to say what pod late waits for", func(ctx context.Context) error {
		pod, err := e.n.Pod(ctx, "late")
		if err == nil && (!strings.Contains(pod.WaitsFor, "remote") || !strings.Contains(pod.WaitsFor, why)) {
			err = errors.New(pod.WaitsFor)
		}
		return err
	})
	for _, s := range e.n.services() {
		serving, runs := e.killOne(s, calm)
		e.Logf("%-14s kill -9 %-10s beside a dead file system: all services serve after %5.2f s, a new pod runs after %5.2f s",
			e.n.kind, s, serving.Seconds(), runs.Seconds())
	}
	e.same("a dead file system", names, before, e.state(names))
	e.flips("a dead file system", names, began)
	dead.Go()
	e.awaitRunning("late", usual)
	for _, name := range append(names, "late") {
		e.delete(name, 1)
	}
	for _, name := range append(names, "late") {
		e.awaitGone(name, usual)
	}
}

// podOn is a pod with a folder of the node.
func (e *env) podOn(name, folder string, kind corev1.HostPathType) *corev1.Pod {
	pod := e.pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "remote", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder, Type: &kind}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "remote", MountPath: "/remote"}}
	return pod
}

// podWithScratch is a pod with a token and a volume of its own.
func (e *env) podWithScratch(name string) *corev1.Pod {
	pod := e.pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// startsAndEnds makes five pods with volumes and removes them, and says how long
// that took.
func (e *env) startsAndEnds(when string) time.Duration {
	e.Helper()
	began := time.Now()
	var names []string
	for i := range 5 {
		pod := e.podWithScratch(fmt.Sprintf("%s-%d", when, i))
		e.create(pod)
		names = append(names, pod.Name)
	}
	for _, name := range names {
		e.awaitRunning(name, usual)
		e.delete(name, 1)
	}
	for _, name := range names {
		e.awaitGone(name, usual)
	}
	return time.Since(began)
}
