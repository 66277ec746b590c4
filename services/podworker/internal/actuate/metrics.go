// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullrecord"
)

// metrics are the kubelet's.
type metrics struct {
	sandboxSeconds   *prometheus.HistogramVec
	sandboxErrors    *prometheus.CounterVec
	pods, podErrors  prometheus.Counter
	containers       *prometheus.CounterVec
	containerErrors  *prometheus.CounterVec
	userPods         userPods
	pullSeconds      *prometheus.HistogramVec
	ensureImage      *prometheus.CounterVec
	mustPull         *prometheus.CounterVec
	imageVolumes     prometheus.Counter
	imageVolumesGood prometheus.Counter
	imageVolumesBad  prometheus.Counter
	hookFallbacks    prometheus.Counter
	sleepsCutShort   prometheus.Counter
}

func newMetrics(r prometheus.Registerer, records *pullrecord.Store) *metrics {
	to := metric.In(r)
	if r != nil {
		r.MustRegister(onDisk{records})
	}
	return &metrics{
		sandboxSeconds: to.Histograms("kubelet_run_podsandbox_duration_seconds", "Duration of starting a sandbox in seconds.", nil, "runtime_handler"),
		sandboxErrors:  to.Counters("kubelet_run_podsandbox_errors_total", "Sandboxes that failed to start.", "runtime_handler"),
		pods:           to.Counter("kubelet_started_pods_total", "Sandboxes started or tried."),
		podErrors:      to.Counter("kubelet_started_pods_errors_total", "Sandboxes that failed to start."),
		containers:     to.Counters("kubelet_started_containers_total", "Containers started or tried.", "container_type"),
		containerErrors: to.Counters("kubelet_started_containers_errors_total", "Containers that failed to start, by reason.",
			"container_type", "code"),
		userPods: userPods{
			started:  to.Counter("kubelet_started_user_namespaced_pods_total", "Sandboxes with a user namespace started or tried."),
			failures: to.Counter("kubelet_started_user_namespaced_pods_errors_total", "Pods with a user namespace whose sandbox, images or containers failed to start."),
			pods:     map[types.UID]userStart{},
		},
		pullSeconds: to.Histograms("kubelet_image_pull_duration_seconds", "Duration of image pulls in seconds, waiting included.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes"),
		ensureImage: to.Counters("kubelet_image_manager_ensure_image_requests_total", "Images asked for.",
			"pull_policy", "present_locally", "pull_required"),
		mustPull: to.Counters("kubelet_imagemanager_image_mustpull_checks_total", "Present images asked for, by why they may be used or not.",
			"result"),
		imageVolumes:     to.Counter("kubelet_image_volume_requested_total", "Image volumes asked for."),
		imageVolumesGood: to.Counter("kubelet_image_volume_mounted_succeed_total", "Image volumes mounted."),
		imageVolumesBad:  to.Counter("kubelet_image_volume_mounted_errors_total", "Image volumes that failed to mount."),
		hookFallbacks:    to.Counter("kubelet_lifecycle_handler_http_fallbacks_total", "HTTPS lifecycle hooks that were answered in plain HTTP."),
		sleepsCutShort:   to.Counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that ended with their container's time."),
	}
}

// containerType is the label the kubelet uses for a kind of container.
func containerType(k pod.ContainerKind) string {
	switch k {
	case pod.Init, pod.Sidecar:
		return "init_container"
	case pod.Ephemeral:
		return "ephemeral_container"
	}
	return "container"
}

// sizeBuckets are the labels of an image's size.
var sizeBuckets = []struct {
	below uint64
	label string
}{
	{10 << 20, "0-10MB"}, {100 << 20, "10MB-100MB"}, {500 << 20, "100MB-500MB"}, {1 << 30, "500MB-1GB"},
	{5 << 30, "1GB-5GB"}, {10 << 30, "5GB-10GB"}, {20 << 30, "10GB-20GB"}, {30 << 30, "20GB-30GB"},
	{40 << 30, "30GB-40GB"}, {60 << 30, "40GB-60GB"}, {100 << 30, "60GB-100GB"},
}

func sizeBucket(size uint64) string {
	if size == 0 {
		return "N/A"
	}
	for _, b := range sizeBuckets {
		if size < b.below {
			return b.label
		}
	}
	return "GT100GB"
}

// onDisk counts the records of pulls when it is asked.
type onDisk struct{ records *pullrecord.Store }

var (
	intentsDesc = prometheus.NewDesc("kubelet_imagemanager_ondisk_pullintents", "Pulls that were begun and not recorded, on disk.", nil, nil)
	recordsDesc = prometheus.NewDesc("kubelet_imagemanager_ondisk_pulledrecords", "Records of what images were pulled with, on disk.", nil, nil)
)

// Describe implements prometheus.Collector.
func (o onDisk) Describe(out chan<- *prometheus.Desc) { out <- intentsDesc; out <- recordsDesc }

// Collect implements prometheus.Collector.
func (o onDisk) Collect(out chan<- prometheus.Metric) {
	intents, records := o.records.Count()
	out <- prometheus.MustNewConstMetric(intentsDesc, prometheus.GaugeValue, float64(intents))
	out <- prometheus.MustNewConstMetric(recordsDesc, prometheus.GaugeValue, float64(records))
}
