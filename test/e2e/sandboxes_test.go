// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/localruntime"
)

// TestSandboxes: pods with a RuntimeClass, with one that the runtime does not know, and with
// a user namespace, beside the reference kubelet.
func TestSandboxes(t *testing.T) {
	cp := harness.StartControlPlane(t)
	seen := observe(t, cp)
	classes := map[string]string{}
	for name, handler := range map[string]string{"second": localruntime.SecondHandler, "unknown": "nobody"} {
		class, err := cp.Admin.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}, Handler: handler,
			Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: *quantity("16Mi")}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		classes[name] = class.Name
	}
	o := harness.NodeOptions{ControlPlane: cp}
	r, s := harness.StartReference(t, o), harness.StartNode(t, o)
	want := (&sandboxes{newAgent(t, &r.Place, cp, seen), classes}).look()
	got := (&sandboxes{newAgent(t, &s.Place, cp, seen), classes}).look()
	if t.Log(want); got != want {
		t.Errorf("Sextant:\n%s\nthe kubelet:\n%s", got, want)
	}
}

// sandboxes is a node whose pods have sandboxes of several kinds.
type sandboxes struct {
	*agent
	classes map[string]string // names of RuntimeClasses
}

// look says what each kind of pod got.
func (s *sandboxes) look() string {
	s.Helper()
	second, apart, unknown := s.pod("second"), s.pod("apart"), s.pod("unknown")
	name, none := s.classes["second"], s.classes["unknown"]
	second.Spec.RuntimeClassName, unknown.Spec.RuntimeClassName = &name, &none
	limits := corev1.ResourceList{corev1.ResourceCPU: *quantity("100m"), corev1.ResourceMemory: *quantity("48Mi")}
	second.Spec.Containers[0].Resources.Limits = limits
	no := false
	apart.Spec.HostUsers = &no
	apart.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	apart.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "scratch", MountPath: "/scratch"}}
	for _, p := range []*corev1.Pod{second, apart, unknown} {
		s.make(p)
	}
	second, apart = s.ready("second"), s.ready("apart")
	var text strings.Builder
	for _, p := range []*corev1.Pod{second, apart} {
		fmt.Fprintf(&text, "%s: handler %q, overhead %v\n", p.Name, s.handler(p), p.Spec.Overhead)
	}
	fmt.Fprintf(&text, "second: the pod's cgroup may have %s bytes\n", s.memoryLimit(second))
	fmt.Fprintf(&text, "apart: uids are mapped: %s; the certificate is there: %t\n",
		s.mapped(apart), strings.HasPrefix(s.ask(apart, "/file?path=/config/ca.crt"), "-----BEGIN"))
	fmt.Fprintf(&text, "unknown: %s\n", s.refusal("unknown"))
	harness.Eventually(s, usual, "the node's handlers", func(context.Context) error {
		n := s.seen.node(s.place.Name)
		if n == nil || len(n.Status.RuntimeHandlers) == 0 {
			return errors.New("none yet")
		}
		for _, h := range n.Status.RuntimeHandlers {
			fmt.Fprintf(&text, "node: handler %q, recursive read-only mounts %t, user namespaces %t\n", h.Name, *h.Features.RecursiveReadOnlyMounts, *h.Features.UserNamespaces)
		}
		return nil
	})
	return strings.NewReplacer(name, "SECOND", none, "UNKNOWN").Replace(text.String())
}

// handler is what the runtime made a pod's sandbox with.
func (s *sandboxes) handler(p *corev1.Pod) string {
	s.Helper()
	list, err := s.place.Runtime.Runtimes.ListPodSandbox(s.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)},
	}})
	if err != nil || len(list.GetItems()) != 1 {
		s.Fatalf("sandboxes of %s: %v, %v", p.Name, list.GetItems(), err)
	}
	return list.GetItems()[0].GetRuntimeHandler()
}

// memoryLimit is that of the pod's cgroup.
func (s *sandboxes) memoryLimit(p *corev1.Pod) string {
	s.Helper()
	below := filepath.Join(s.place.Runtime.CgroupRoot, "kubepods", "pod"+string(p.UID))
	for _, path := range []string{filepath.Join("/sys/fs/cgroup/memory", below, "memory.limit_in_bytes"), filepath.Join("/sys/fs/cgroup", below, "memory.max")} {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	s.Errorf("no cgroup of %s", p.Name)
	return ""
}

// mapped says how the uids of a pod are mapped, without the part that is chosen.
func (s *sandboxes) mapped(p *corev1.Pod) string {
	s.Helper()
	words := strings.Fields(s.ask(p, "/file?path=/proc/self/uid_map"))
	if len(words) != 3 {
		return fmt.Sprint(words)
	}
	first, err := strconv.Atoi(words[1])
	if err != nil || first < 65536 || first%65536 != 0 {
		return fmt.Sprint(words)
	}
	return words[0] + " to its own, " + words[2]
}

var sandboxID = regexp.MustCompile("[0-9a-f]{64}")

// refusal is the event about a sandbox that the runtime does not make.
func (s *sandboxes) refusal(name string) (message string) {
	s.Helper()
	harness.Eventually(s, usual, "the event about "+name, func(context.Context) error {
		for _, e := range s.seen.eventsOf(s.ns, name) {
			if e.Reason == "FailedCreatePodSandBox" {
				message = e.Type + " " + sandboxID.ReplaceAllString(e.Message, "ID")
				return nil
			}
		}
		return errors.New("none yet")
	})
	return message
}
