// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

const debugOff = "Debug endpoints are disabled." // the kubelet's words

var (
	// debugPaths are those that enableDebuggingHandlers switches off with an answer.
	debugPaths = []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"}
	// debugOnly are those that exist only where the debug paths do.
	debugOnly = []string{"/configz", "/checkpoint/", "/flagz", "/statusz", "/debug/flags/"}
	// webServices are the paths whose methods and sub-paths the kubelet routes after it
	// has authorized the caller. All other paths take any method, and are 404 for every
	// caller if they are not exact.
	webServices = []string{
		"/pods/", "/stats/", "/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/checkpoint/",
		"/debug/pprof/", "/logs/",
	}
)

// below reports whether a path is one of the given ones or below it.
func below(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path+"/", prefix) })
}

// debugging serves debug paths if the configuration has them.
func debugging(conf func() *kubeletconfig.Config, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conf := conf()
		switch {
		case conf == nil || ptr.Deref(conf.Kubelet.EnableDebuggingHandlers, true):
			next.ServeHTTP(w, r)
		case below(r.URL.Path, debugPaths):
			reply.Disabled(debugOff)(w, r)
		case below(r.URL.Path, debugOnly):
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// routed serves by mux, and answers for the paths of web services that mux does not have
// as the kubelet's router (go-restful) does: HEAD is a method like any other.
func routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !below(r.URL.Path, webServices) {
			mux.ServeHTTP(w, r)
			return
		}
		asked := r
		if r.Method == http.MethodHead {
			asked = r.Clone(r.Context())
			asked.Method = "NONE"
		}
		handler, pattern := mux.Handler(asked)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		would := discard{header: http.Header{}}
		handler.ServeHTTP(&would, asked)
		if would.status/100 == 3 { // to the same path in its clean form
			mux.ServeHTTP(w, r)
			return
		}
		if would.status != http.StatusMethodNotAllowed {
			reply.Text(w, http.StatusNotFound, "404: Page Not Found")
			return
		}
		methods := strings.Split(would.header.Get("Allow"), ", ")
		methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodHead })
		w.Header().Set("Allow", strings.Join(methods, ", "))
		reply.Text(w, would.status, "405: Method Not Allowed")
	})
}

// discard keeps header and status of an answer, not its body.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// metrics are the kubelet's metrics of its API.
type metrics struct {
	total    *prometheus.CounterVec
	inflight *prometheus.GaugeVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	to := metric.In(registry)
	return &metrics{
		total:    to.Counters("kubelet_http_requests_total", "[ALPHA] Number of the http requests received since the server started", labels...),
		inflight: to.Gauges("kubelet_http_inflight_requests", "[ALPHA] Number of the inflight http requests", labels...),
		duration: to.Histograms("kubelet_http_requests_duration_seconds", "[ALPHA] Duration in seconds to serve http requests", nil, labels...),
	}
}

// counted measures every request of a server, denied ones too.
func (m *metrics) counted(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := pathBucket(r.URL.Path)
		labels := []string{bucketOf(r.Method, methodBuckets), path, server, strconv.FormatBool(longRunning(path))}
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

// bucketOf is a value if it is known: a caller must not make series at will.
func bucketOf(value string, known []string) string {
	if slices.Contains(known, value) {
		return value
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
	return bucketOf(bucket, pathBuckets)
}

// longRunning is the kubelet's table. Its "portforward" differs from the bucket in case,
// so port forwarding counts as short; dashboards expect that.
func longRunning(bucket string) bool {
	return slices.Contains([]string{"exec", "attach", "portforward", "debug"}, bucket)
}
