// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

func helloPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hello", Image: images.Hello}}},
	}
}

// ready waits until a pod of the node runs with all its containers ready.
func ready(t *testing.T, n *harness.Node, name string) (pod harness.PodRow) {
	t.Helper()
	harness.Eventually(t, 4*time.Minute, "pod "+name+" to be ready", func(ctx context.Context) error {
		var err error
		if pod, err = n.Pod(ctx, name); err != nil {
			return err
		}
		if pod.Phase != "Running" || pod.Ready != "1/1" || pod.IP == "" {
			return fmt.Errorf("it is %+v", pod)
		}
		return nil
	})
	return pod
}

// TestNodeStandalone takes a node of each kind, with and without its bus, through
// its life: up, a static pod, a killed service, down with the pod running on, up
// again, purge.
func TestNodeStandalone(t *testing.T) {
	for name, o := range map[string]harness.NodeOptions{
		"debian":     {Flavour: harness.Debian},
		"v2":         {Flavour: harness.V2},
		"v2 bus off": {Flavour: harness.V2, BusOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := harness.StartNode(t, o)
			n.AddManifest(t, "hello.yaml", helloPod("hello"))
			pod := ready(t, n, "hello")
			harness.Eventually(t, 4*time.Minute, "the pod to answer", func(ctx context.Context) error { // it has no probe
				body, err := getBody(ctx, "http://"+pod.IP+":8080/healthz")
				if err == nil && body != "ok\n" {
					err = fmt.Errorf("it says %q", body)
				}
				return err
			})
			old := n.Kill(t, "pleg")
			harness.Eventually(t, 4*time.Minute, "another pleg", func(ctx context.Context) error {
				all, err := n.Services(ctx)
				if err != nil {
					return err
				}
				for _, s := range all {
					if s.Service == "pleg" && s.PID != old && s.Health == "serving" {
						return nil
					}
				}
				return errors.New("it is not back")
			})
			n.Down(t)
			if _, err := getBody(t.Context(), "http://"+pod.IP+":8080/"); err != nil {
				t.Errorf("the pod did not outlive its node: %v", err)
			}
			n.Up(t)
			if again := ready(t, n, "hello"); again.Restarts != pod.Restarts || again.IP != pod.IP {
				t.Errorf("the pod was %+v and is %+v", pod, again)
			}
			n.RemoveManifest(t, "hello.yaml")
			harness.Eventually(t, 4*time.Minute, "the pod to go", func(ctx context.Context) error {
				pods, err := n.Pods(ctx)
				if err == nil && len(pods) > 0 {
					err = fmt.Errorf("there is %+v", pods)
				}
				return err
			})
			n.Purge(t)
			if left := harness.Traces(n.Run, "no-such-name"); len(left) > 0 {
				t.Errorf("left of the node: %v", left)
			}
		})
	}
}

// TestNodeJoins starts a node with credentials and sees it in the API.
func TestNodeJoins(t *testing.T) {
	cp := harness.StartControlPlane(t)
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp})
	harness.Eventually(t, 4*time.Minute, "the node to be Ready", func(ctx context.Context) error {
		node, err := cp.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
}

// TestReferenceJoins starts the reference kubelet, sees it run a pod, and what it
// leaves behind.
func TestReferenceJoins(t *testing.T) {
	cp := harness.StartControlPlane(t)
	_, err := os.Stat("/var/lib/kubelet")
	there := err == nil
	var dir string
	t.Run("node", func(t *testing.T) {
		r := harness.StartReference(t, harness.NodeOptions{ControlPlane: cp})
		dir = filepath.Dir(r.Root)
		r.AddManifest(t, "hello.yaml", helloPod("hello"))
		harness.Eventually(t, 3*time.Minute, "the static pod to be Running", func(ctx context.Context) error {
			pod, err := cp.Admin.CoreV1().Pods("default").Get(ctx, "hello-"+r.Name, metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return err
		})
	})
	if left := harness.Traces(dir, "no-such-name"); len(left) > 0 {
		t.Errorf("left of the node: %v", left)
	}
	// Where it was, it may be another lab's, which ends meanwhile.
	if _, err := os.Stat("/var/lib/kubelet"); err == nil && !there {
		t.Error("/var/lib/kubelet was not there before, and is there after")
	}
}

// TestConfigFileIsSparse checks that a node's configuration says what the test
// said and leaves the rest to the defaults.
func TestConfigFileIsSparse(t *testing.T) {
	n := harness.NewNode(t, harness.NodeOptions{Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.SyncFrequency = metav1.Duration{Duration: 7 * time.Second}
	}})
	b, err := os.ReadFile(filepath.Join(filepath.Dir(n.Run), "kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got["syncFrequency"] != "7s" || got["staticPodPath"] != n.Manifests {
		t.Errorf("configuration:\n%s", b)
	}
	if _, ok := got["fileCheckFrequency"]; ok {
		t.Errorf("an unset field is written:\n%s", b)
	}
}
