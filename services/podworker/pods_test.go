// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// web is a pod of one container, made over by edits.
func web(name string, edits ...func(*v1.Pod)) *v1.Pod {
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: "web", Image: "fake/sleep", ImagePullPolicy: v1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func command(script string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", script} }
}

func (n *node) running(name string) bool {
	c := n.rt.Container(name, "web")
	return c != nil && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (n *node) lifecycle(uid types.UID, want podworkerv1.Lifecycle) bool {
	return n.state(uid).GetLifecycle() == want
}

func (n *node) waiting(uid types.UID, reason string) bool {
	for _, w := range n.state(uid).GetWaits() {
		if w.GetReason() == reason {
			return true
		}
	}
	return false
}

// firstWait is the wait of the pod's first container that waits; nil for none.
func (n *node) firstWait(uid types.UID) *podworkerv1.ContainerWait {
	if waits := n.state(uid).GetWaits(); len(waits) > 0 {
		return waits[0]
	}
	return nil
}

// settled: the pod is where it should be.
func (n *node) settled(uid types.UID) bool {
	s := n.state(uid)
	return s != nil && s.GetWait() == nil && s.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_SYNCING
}

// flying reports whether an action of the pod is under way.
func (n *node) flying(uid types.UID, key step.Key) bool {
	n.loop.mu.Lock()
	w := n.loop.workers[uid]
	n.loop.mu.Unlock()
	if w == nil {
		return false
	}
	answer := make(chan bool, 1)
	w.post(func() { _, ok := w.flights[key]; answer <- ok })
	select {
	case ok := <-answer:
		return ok
	case <-n.wire.next():
		return false
	}
}

func (n *node) admissions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.admitted...)
}

// away sets how a stand-in behaves, between readings of the runtime.
func (n *node) away(what *bool, is bool) {
	n.pleg.reading.Lock()
	n.mu.Lock()
	*what = is
	n.mu.Unlock()
	n.pleg.reading.Unlock()
	n.wire.tell()
}

// forget takes a pod out of config.
func (n *node) forget(uid types.UID) { n.pods.Delete(context.Background(), string(uid)) }

// live sandboxes of a pod.
func (n *node) sandboxesOf(name string) (ready int) {
	for _, s := range n.rt.Sandboxes() {
		if s.GetMetadata().GetName() == name && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	return ready
}

// released: nothing of the pod runs or is held.
func (n *node) released(uid types.UID) bool {
	return n.lifecycle(uid, podworkerv1.Lifecycle_LIFECYCLE_RELEASED)
}
