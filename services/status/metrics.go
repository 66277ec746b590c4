// SPDX-License-Identifier: Apache-2.0

package status

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
)

// metrics have the kubelet's names where the kubelet has them.
type metrics struct {
	synced                    prometheus.Histogram
	startSeen, startSLI, full prometheus.Histogram
	firstNetwork              prometheus.Gauge
	firstNetworkSeen          bool // only known writes it, from one goroutine
	nodeName                  *metric.Series
}

// startBuckets are the kubelet's for pod starts.
var startBuckets = []float64{
	0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

func newMetrics(r prometheus.Registerer, mirrors, pending func() float64) *metrics {
	to := metric.In(r)
	to.Measured("kubelet_mirror_pods", "The number of mirror pods of this node at the API server.", mirrors)
	to.Measured("sextant_status_pending_pods", "The number of pods with something to be written to the API server.", pending)
	r.MustRegister(buildInfo())
	return &metrics{
		synced: to.Histogram("kubelet_pod_status_sync_duration_seconds",
			"Duration in seconds from a changed pod status to its being written at the API server.",
			[]float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60}),
		startSeen: to.Histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from first seeing a pod to the pod running.", startBuckets),
		startSLI: to.Histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds from the creation of a pod to its running, without image pulls and init containers.", startBuckets),
		full: to.Histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds from the creation of a pod to its running, image pulls and init containers included.", startBuckets),
		firstNetwork: to.Gauge("kubelet_first_network_pod_start_sli_duration_seconds",
			"Duration in seconds, as the SLI's, of the first pod with a network of its own."),
		nodeName: to.Series("kubelet_node_name", "The node's name. The value is always 1.", "node"),
	}
}

// running implements starts.
func (m *metrics) running(seen time.Duration) { m.startSeen.Observe(seen.Seconds()) }

// known implements starts.
func (m *metrics) known(p *v1.Pod, sli, total time.Duration) {
	m.full.Observe(total.Seconds())
	if stateful(p) {
		return
	}
	m.startSLI.Observe(sli.Seconds())
	if !p.Spec.HostNetwork && !m.firstNetworkSeen {
		m.firstNetworkSeen = true
		m.firstNetwork.Set(sli.Seconds())
	}
}

func (m *metrics) node(name string) {
	m.nodeName.Set(map[string]float64{name: 1})
}

// buildInfo says of which Kubernetes release the node is, as its Node object
// does, and of which build.
func buildInfo() prometheus.Collector {
	labels := prometheus.Labels{
		"major": nodestatus.Major, "minor": nodestatus.Minor, "git_version": nodestatus.KubeletVersion,
		"git_commit": "", "git_tree_state": "", "build_date": "",
		"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		states := map[string]string{"true": "dirty", "false": "clean"}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				labels["git_commit"] = s.Value
			case "vcs.time":
				labels["build_date"] = s.Value
			case "vcs.modified":
				labels["git_tree_state"] = states[s.Value]
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "The release and the build of the node agent. The value is always 1.", ConstLabels: labels,
	}, func() float64 { return 1 })
}
