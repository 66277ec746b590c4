// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var costPairs = flag.Int("cost-pairs", 60, "TestVolumeCost: pods with volumes, and as many without")

// costMost is what a ConfigMap, a token and an emptyDir may add to a pod's start.
const costMost = 20 * time.Millisecond

// oneNode is a node on the current containerd with its bus, and the pods of one
// test.
func oneNode(t *testing.T) *env {
	t.Helper()
	cp := harness.StartControlPlane(t)
	n := &node{kind: "v2-bus", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t), seen: observe(t, cp)}
	n.Node = harness.StartNode(t, harness.NodeOptions{ControlPlane: cp})
	n.paths = house.Paths{Run: n.Run, State: n.State}
	n.awaitServing(t, usual)
	return newEnv(t, n)
}

// TestVolumeCost starts pods with and without volumes by turns, one at a time, and
// compares each with its neighbour. It fails when the difference is for certain
// more than it may be; on a machine that has much else to do it is not certain.
func TestVolumeCost(t *testing.T) {
	e := oneNode(t)
	_, err := e.n.cp.Admin.CoreV1().ConfigMaps(e.ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"greeting": "hello"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]func(string) *corev1.Pod{
		"without": func(name string) *corev1.Pod {
			pod := e.pod(name)
			pod.Spec.AutomountServiceAccountToken = new(false)
			return pod
		},
		"with": func(name string) *corev1.Pod {
			pod := e.podWithScratch(name)
			c := &pod.Spec.Containers[0]
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
			}})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/config"})
			return pod
		},
	}
	took := map[string]figures.Series{}
	order := []string{"without", "with"}
	const warm = 3 // the first pods of a node are slower
	for i := range warm + *costPairs {
		order[0], order[1] = order[1], order[0] // neither is always the first
		for _, kind := range order {
			start, _ := e.startAndEnd(pods[kind](fmt.Sprintf("%s-%d", kind, i)))
			if i >= warm {
				took[kind] = append(took[kind], start.Seconds())
			}
		}
	}
	ms := func(s float64) float64 { return 1000 * s }
	for _, kind := range order {
		s := took[kind]
		t.Logf("create to Ready %-7s volumes: p50 %4.0f ms, p90 %4.0f ms, mean %4.0f ms of %d", kind,
			ms(s.Quantile(.5)), ms(s.Quantile(.9)), ms(s.Mean()), len(s))
	}
	d := figures.MeanDifference(took["with"], took["without"])
	t.Logf("a ConfigMap, a token and an emptyDir cost %.1f ms in the mean (95 %%: %.1f to %.1f ms), %.1f ms at p50; allowed are %d ms",
		ms(d.Estimate), ms(d.Low), ms(d.High), ms(took["with"].Quantile(.5)-took["without"].Quantile(.5)), costMost.Milliseconds())
	if d.Low > costMost.Seconds() {
		t.Error("they cost too much")
	} else if d.High > costMost.Seconds() {
		t.Error("not decided: the machine is too busy, or there were too few pods")
	}
}

// startAndEnd makes a pod and removes it, and says how long it took from each
// request to what the watch told of its end.
func (e *env) startAndEnd(pod *corev1.Pod) (start, end time.Duration) {
	e.Helper()
	began := time.Now()
	e.create(pod)
	e.awaitRunning(pod.Name, usual)
	start = e.n.seen.when(e.ns, pod.Name, running).Sub(began)
	began = time.Now()
	e.delete(pod.Name, 1)
	e.awaitGone(pod.Name, usual)
	return start, e.n.seen.goneAt(e.ns, pod.Name).Sub(began)
}
