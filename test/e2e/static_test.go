// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// addManifest writes a static pod that ends with the test.
func (e *env) addManifest(file string, content any) {
	e.Helper()
	e.n.AddManifest(e, file, content)
}

// manifest names a file of this test.
func (e *env) manifest(name string) string { return e.ns + "-" + name + ".yaml" }

// staticPod takes a static pod through its life: added, edited, its mirror
// deleted, removed.
func staticPod(e *env) {
	pod, file := e.pod("web"), e.manifest("web")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "REVISION", Value: "1"}}
	pod.Spec.NodeName = ""
	e.addManifest(file, pod)
	name := "web-" + e.n.Name
	first := e.awaitRunning(name, usual)
	e.mirrorOf(first)

	pod.Spec.Containers[0].Env[0].Value = "2"
	e.addManifest(file, pod)
	second := e.await(name, usual, "to follow the edit", func(pod *corev1.Pod) error {
		if got := pod.Spec.Containers[0].Env[0].Value; got != "2" {
			return fmt.Errorf("REVISION is %s", got)
		}
		return running(pod)
	})
	e.mirrorOf(second)
	if first.UID == second.UID || first.Annotations[mirrorAnnotation] == second.Annotations[mirrorAnnotation] {
		e.Errorf("the edited pod is the same: mirror %s of %s", second.UID, second.Annotations[mirrorAnnotation])
	}
	if a, b := first.Status.ContainerStatuses[0].ContainerID, second.Status.ContainerStatuses[0].ContainerID; a == b {
		e.Errorf("the edited pod runs the same container %s", a)
	}
	e.awaitNoInstance(first.Annotations[mirrorAnnotation], usual)

	e.n.cp.Kubectl(e, "delete", "pod", "--wait=false", "--namespace="+e.ns, name)
	third := e.await(name, usual, "to have a mirror again", func(pod *corev1.Pod) error {
		if pod.UID == second.UID {
			return errors.New("it is the deleted one")
		}
		return running(pod)
	})
	e.mirrorOf(third)
	if a, b := second.Status.ContainerStatuses[0].ContainerID, third.Status.ContainerStatuses[0].ContainerID; a != b {
		e.Errorf("deleting the mirror replaced container %s by %s", a, b)
	}

	// Removed and written again before anybody reads the folder: it ends and starts
	// again, and the mirror tells.
	e.n.RemoveManifest(e, file)
	e.addManifest(file, pod)
	again := e.await(name, usual, "to have started again", func(pod *corev1.Pod) error {
		if got := pod.Status.ContainerStatuses[0]; got.RestartCount != 1 {
			return fmt.Errorf("restart count %d", got.RestartCount)
		}
		return running(pod)
	})
	e.mirrorOf(again)
	if a, b := third.Annotations[mirrorAnnotation], again.Annotations[mirrorAnnotation]; a != b {
		e.Errorf("the same manifest has the hash %s and %s", a, b)
	}

	e.n.RemoveManifest(e, file)
	e.awaitGone(name, usual)
	e.awaitNoInstance(third.Annotations[mirrorAnnotation], usual)
	harness.Eventually(e, usual, "the node to forget the pod", func(ctx context.Context) error {
		if pod, err := e.n.Pod(ctx, "web"); err == nil && pod.Namespace == e.ns {
			return fmt.Errorf("there is %+v", pod)
		}
		return nil
	})
}

// mirrorOf checks what makes a pod a mirror: annotations and owner.
func (e *env) mirrorOf(pod *corev1.Pod) {
	e.Helper()
	if pod.Annotations[sourceAnnotation] != "file" || pod.Annotations[mirrorAnnotation] == "" {
		e.Errorf("annotations %v", pod.Annotations)
	}
	node, err := e.n.cp.Admin.CoreV1().Nodes().Get(e.Context(), e.n.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Node" || owner.APIVersion != "v1" || owner.Name != node.Name || owner.UID != node.UID {
		e.Errorf("owner %+v, the node is %s %s", owner, node.Name, node.UID)
	}
}

// nodeObject checks the Node and its Lease.
func nodeObject(e *env) {
	e.awaitNode(usual, "Ready with addresses and capacity", func(node *corev1.Node) error {
		for kind, want := range map[corev1.NodeConditionType]corev1.ConditionStatus{
			corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
			corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
		} {
			if err := wantCondition(node, kind, want); err != nil {
				return err
			}
		}
		ip := false
		for _, a := range node.Status.Addresses {
			ip = ip || a.Type == corev1.NodeInternalIP && a.Address == e.n.IP
		}
		switch {
		case !ip:
			return fmt.Errorf("addresses %v", node.Status.Addresses)
		case node.Status.Capacity.Cpu().IsZero(), node.Status.Allocatable.Memory().IsZero(), node.Status.Allocatable.Pods().IsZero():
			return fmt.Errorf("capacity %v, allocatable %v", node.Status.Capacity, node.Status.Allocatable)
		case node.Status.NodeInfo.ContainerRuntimeVersion == "", node.Status.NodeInfo.KubeletVersion == "":
			return fmt.Errorf("info %+v", node.Status.NodeInfo)
		}
		return nil
	})
	var first time.Time
	harness.Eventually(e, usual, "the lease to be renewed", func(ctx context.Context) error {
		lease, err := e.n.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, e.n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at := lease.Spec.RenewTime
		if at == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != e.n.Name {
			return fmt.Errorf("lease %+v", lease.Spec)
		}
		if first.IsZero() {
			first = at.Time
		}
		if !at.After(first) {
			return fmt.Errorf("renewed at %v and not since", first)
		}
		return nil
	})
}
