// SPDX-License-Identifier: Apache-2.0

package status

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/measure"
)

// TestStartOfAStaticPod: it is measured when the API server has the mirror's status, and not
// when the pod is next looked at for another reason.
func TestStartOfAStaticPod(t *testing.T) {
	t.Parallel()
	h := newHome(t, nil)
	h.up(h.manifest("v1"))
	h.eventually("the mirror is ready", func() bool { return isReady(h.cluster.Pod("default", "job-n1")) })
	h.quiet()
	measure.Expect(t, h.svc.kit.Metrics, map[string]float64{
		"kubelet_pod_start_duration_seconds":       1,
		"kubelet_pod_start_sli_duration_seconds":   1,
		"kubelet_pod_start_total_duration_seconds": 1,
	})
}

// TestMetrics: a new node and its first pod leave their marks.
func TestMetrics(t *testing.T) {
	t.Parallel()
	began := time.Now()
	h := newHome(t, nil)
	metrics := h.svc.kit.Metrics
	h.eventually("the node is ready", func() bool { return nodeReady(h.cluster.Node("n1")) })
	h.up(h.cluster.Put(spec("web", "u1")))
	h.eventually("the pod is ready", func() bool { return isReady(h.cluster.Pod("default", "web")) })
	h.eventually("the start is measured", func() bool {
		return measure.Value(t, metrics, "kubelet_pod_start_total_duration_seconds") == 1 &&
			measure.Value(t, metrics, "kubelet_pod_status_sync_duration_seconds") > 0
	})
	measure.Expect(t, metrics, map[string]float64{
		`kubelet_node_name{node="n1"}`:             1,
		"kubelet_mirror_pods":                      0,
		"kubelet_pod_start_duration_seconds":       1,
		"kubelet_pod_start_sli_duration_seconds":   1,
		"kubelet_pod_start_total_duration_seconds": 1,
	})
	took := time.Since(began).Seconds()
	for _, part := range []string{"pre_registration_", "registration_", "post_registration_"} {
		if d := measure.Value(t, metrics, "kubelet_node_startup_"+part+"duration_seconds"); d < 0 || d > took {
			t.Errorf("%s took %v s of %v", part, d, took)
		}
	}
	whole, before := measure.Value(t, metrics, "kubelet_node_startup_duration_seconds"), measure.Value(t, metrics, "kubelet_node_startup_pre_kubelet_duration_seconds")
	if before <= 0 || whole < before || whole > before+took+1 {
		t.Errorf("from the boot to the agent %v s, to ready %v s", before, whole)
	}
}

func TestFirstPods(t *testing.T) {
	registry := prometheus.NewRegistry()
	zero := func() float64 { return 0 }
	m := newMetrics(registry, zero, zero)
	start := func(change func(*v1.PodSpec), sli time.Duration) {
		p := &v1.Pod{}
		change(&p.Spec)
		m.known(p, sli, sli+time.Second)
	}
	start(func(s *v1.PodSpec) { s.HostNetwork = true }, time.Second)
	start(func(s *v1.PodSpec) {
		s.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}}}
	}, 2*time.Second)
	measure.Expect(t, registry, map[string]float64{"kubelet_first_network_pod_start_sli_duration_seconds": 0})
	start(func(s *v1.PodSpec) {
		s.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	}, 4*time.Second)
	start(func(*v1.PodSpec) {}, 8*time.Second)
	measure.Expect(t, registry, map[string]float64{
		"kubelet_first_network_pod_start_sli_duration_seconds": 4,
		"kubelet_pod_start_sli_duration_seconds":               3, "kubelet_pod_start_total_duration_seconds": 4,
	})
	if sum := measure.Sum(t, registry, "kubelet_pod_start_sli_duration_seconds"); sum != 13 {
		t.Errorf("SLI of %v s in all", sum)
	}
	if math.IsNaN(measure.Value(t, registry, "kubelet_pod_status_sync_duration_seconds")) {
		t.Error("a family without labels is not there from the start")
	}
}

func TestNodeStartup(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	registry, boot := prometheus.NewRegistry(), now.Add(-time.Minute)
	n := newNodeStartup(registry, boot, now, func() time.Time { return now })
	after := func(d time.Duration, f func()) { now = now.Add(d); f() }
	after(time.Second, n.Ready) // of an earlier registration: says nothing
	after(time.Second, n.Attempt)
	after(time.Second, n.Attempt)
	measure.Expect(t, registry, map[string]float64{"kubelet_node_startup_pre_registration_duration_seconds": 0})
	after(time.Second, n.Registered)
	after(8*time.Second, n.Ready)
	after(time.Hour, n.Registered)
	after(time.Hour, n.Ready)
	measure.Expect(t, registry, map[string]float64{
		"kubelet_node_startup_pre_kubelet_duration_seconds":       60,
		"kubelet_node_startup_pre_registration_duration_seconds":  2,
		"kubelet_node_startup_registration_duration_seconds":      2,
		"kubelet_node_startup_post_registration_duration_seconds": 8,
		"kubelet_node_startup_duration_seconds":                   72,
	})
}
