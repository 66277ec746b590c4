// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestCalledKubelet: the program under the name of a kubelet takes a kubelet's
// arguments, logs as text to stderr, has all its parts below it, ends with code 0 when
// everything of the unit gets SIGTERM, and adopts what runs when it starts again.
func TestCalledKubelet(t *testing.T) {
	cp := harness.StartControlPlane(t)
	n := &node{kind: "kubelet", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t), seen: observe(t, cp)}
	n.Node = harness.NewNode(t, harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.OOMScoreAdj = new(int32(100)) // a machine may not let it fall
	}})
	k := n.UpAsKubelet(t)
	e := newEnv(t, n)
	e.create(e.pod("web"))
	first := e.awaitRunning("web", usual)
	group := cgroups(t, n.PID(t, "podworker"))
	for _, s := range []string{"bus", "config", "nodeapi"} {
		if other := cgroups(t, n.PID(t, s)); other != group {
			t.Errorf("%s is in the cgroups\n%s\npodworker in\n%s", s, other, group)
		}
	}
	if score := file(t, fmt.Sprintf("/proc/%d/oom_score_adj", n.PID(t, "podworker"))); score != "100" {
		t.Errorf("oom_score_adj is %s", score)
	}
	lines := strings.Split(file(t, k.Log), "\n")
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "{") }) {
		t.Errorf("the log is not text:\n%s", harness.Tail(k.Log, 5))
	}
	for _, want := range []string{"service=podworker", "service=config", "level=INFO"} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("the log has no %s:\n%s", want, harness.Tail(k.Log, 20))
		}
	}

	if code := k.Signal(t, n.Node, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if left := n.Processes(); len(left) > 0 {
		t.Errorf("these go on: %v", left)
	}
	n.UpAsKubelet(t)
	second := e.await("web", usual, "to be Ready", running)
	if a, b := first.Status.ContainerStatuses[0], second.Status.ContainerStatuses[0]; a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("container %s became %s, %d restarts", a.ContainerID, b.ContainerID, b.RestartCount)
	}
	e.create(e.pod("later"))
	e.awaitRunning("later", usual)
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func cgroups(t *testing.T, pid int) string {
	t.Helper()
	return file(t, fmt.Sprintf("/proc/%d/cgroup", pid))
}
