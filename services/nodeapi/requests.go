package nodeapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests are the kubelet's metrics of its API.
type requests struct {
	total    *prometheus.CounterVec
	inflight *prometheus.GaugeVec
	duration *prometheus.HistogramVec
	dropped  prometheus.Counter
}

func newRequests(registry prometheus.Registerer) *requests {
	labels := []string{"method", "path", "server_type", "long_running"}
	r := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "[ALPHA] Number of the http requests received since the server started",
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "[ALPHA] Number of the inflight http requests",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "[ALPHA] Duration in seconds to serve http requests", Buckets: prometheus.DefBuckets,
		}, labels),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sextant_nodeapi_connections_dropped_total", Help: "Connections without a request that were closed because there were too many.",
		}),
	}
	registry.MustRegister(r.total, r.inflight, r.duration, r.dropped)
	return r
}

// counted measures every request a server gets, let in or not.
func (m *requests) counted(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := pathBucket(r.URL.Path)
		labels := []string{methodBucket(r.Method), path, server, strconv.FormatBool(longRunning(path))}
		m.total.WithLabelValues(labels...).Inc()
		m.inflight.WithLabelValues(labels...).Inc()
		defer m.inflight.WithLabelValues(labels...).Dec()
		defer func(began time.Time) { m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds()) }(time.Now())
		next.ServeHTTP(w, r)
	})
}

var (
	methodBuckets = []string{"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"}
	pathBuckets   = []string{
		"healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource",
		"run", "exec", "attach", "portForward", "containerLogs", "configz", "runningpods", "checkpoint", "flagz", "statusz", "logs", "debug",
	}
)

func methodBucket(method string) string {
	if slices.Contains(methodBuckets, method) {
		return method
	}
	return "other"
}

// pathBucket is the first part of a path, and of metrics the second as well.
func pathBucket(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	bucket := parts[0]
	if bucket == "metrics" && len(parts) > 1 {
		bucket += "/" + parts[1]
	}
	if slices.Contains(pathBuckets, bucket) {
		return bucket
	}
	return "other"
}

// longRunning is the kubelet's table. Its "portforward" is written otherwise than
// the bucket is, so that port-forwarding counts as short; dashboards know it so.
func longRunning(bucket string) bool {
	return slices.Contains([]string{"exec", "attach", "portforward", "debug"}, bucket)
}
