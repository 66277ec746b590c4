// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/merge"
)

// metrics of config. Those named kubelet_ carry the kubelet's names and labels.
type metrics struct {
	desired         *prometheus.GaugeVec
	heard, problems *metric.Series
	// notHonoured has one series for each setting or behaviour that is missing.
	notHonoured *metric.Series
	generation  prometheus.Gauge
	tokens      *prometheus.CounterVec
	// renewErrors has the kubelet's name.
	renewErrors prometheus.Counter
	// authn and authz are reviews of callers and of what they may do.
	authn, authz reviews
}

func newMetrics(r prometheus.Registerer, unwritten func() int, current func() *kubeletconfig.Config) *metrics {
	to := metric.In(r)
	to.Measured("sextant_config_unwritten_records", "Records published but not on disk yet.", func() float64 { return float64(unwritten()) })
	r.MustRegister(gates(current))
	return &metrics{
		desired:     to.Gauges("kubelet_desired_pods", "Pods this node should run; static is true or empty.", "static"),
		heard:       to.Series("sextant_config_source_heard", "Whether a source of pods was read whole since the start.", "source"),
		problems:    to.Series("sextant_config_problems", "Manifests refused at present.", "source"),
		notHonoured: to.Series("sextant_not_honoured", "1 for each setting or default behaviour of a kubelet that this node does not honour, or in part.", "name"),
		generation:  to.Gauge("sextant_config_generation", "Generation of the configuration in force."),
		tokens:      to.Counters("sextant_config_token_requests_total", "Tokens asked for by the node's services.", "result"),
		renewErrors: to.Counter("kubelet_certificate_manager_client_expiration_renew_errors", "Requests for a client certificate that failed."),
		authn:       newReviews(to, "authn", "TokenReviews"),
		authz:       newReviews(to, "authz", "SubjectAccessReviews"),
	}
}

// observeCertificate shows what is left of the client certificate, as the
// kubelet does: +Inf for a credential without one.
func (m *metrics) observeCertificate(r prometheus.Registerer, ttl func() float64) {
	metric.In(r).Measured("kubelet_certificate_manager_client_ttl_seconds",
		"Seconds until the client certificate expires; negative once it has, +Inf without one.", ttl)
}

func (m *metrics) observe(state merge.State) {
	static, others := 0, 0
	for _, p := range state.Pods {
		if p.Source == pod.SourceAPI {
			others++
		} else {
			static++
		}
	}
	m.desired.WithLabelValues("").Set(float64(others))
	m.desired.WithLabelValues("true").Set(float64(static))
	heard, problems := map[string]float64{}, map[string]float64{}
	for _, source := range state.Sources {
		heard[source.Name] = 0
		if source.Heard {
			heard[source.Name] = 1
		}
		problems[source.Name] = float64(len(source.Problems))
	}
	m.heard.Set(heard)
	m.problems.Set(problems)
}

// gates says which feature gates are on, as every component of Kubernetes does.
type gates func() *kubeletconfig.Config

var gateDesc = prometheus.NewDesc("kubernetes_feature_enabled", "Feature gates: 1 for one that is on.", []string{"name", "stage"}, nil)

// gateStages are the stages as the family words them; that of a gate which is
// generally available is empty.
var gateStages = map[kubeletconfig.GateStage]string{
	kubeletconfig.StageAlpha: "ALPHA", kubeletconfig.StageBeta: "BETA", kubeletconfig.StageDeprecated: "DEPRECATED",
}

// Describe implements prometheus.Collector.
func (g gates) Describe(out chan<- *prometheus.Desc) { out <- gateDesc }

// Collect implements prometheus.Collector.
func (g gates) Collect(out chan<- prometheus.Metric) {
	c := g()
	if c == nil {
		return
	}
	states := c.GateStates()
	for _, gate := range kubeletconfig.Gates() {
		value := 0.0
		if states[gate.Name] {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(gateDesc, prometheus.GaugeValue, value, gate.Name, gateStages[gate.Stage])
	}
}

// reviews measures one kind of review, attempt by attempt.
type reviews struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newReviews(to metric.Set, name, what string) reviews {
	return reviews{
		total: to.Counters("apiserver_delegated_"+name+"_request_total", what+" asked of the API server, by the code of the answer.", "code"),
		duration: to.Histograms("apiserver_delegated_"+name+"_request_duration_seconds",
			"Duration of "+what+" in seconds.", []float64{.25, .5, .7, 1, 1.5, 3, 5, 10}, "code"),
	}
}

// observe begins an attempt; the function returned ends it.
func (v reviews) observe(now func() time.Time, err *error) func() {
	began := now()
	return func() {
		code := codeOf(*err)
		v.total.WithLabelValues(code).Inc()
		v.duration.WithLabelValues(code).Observe(now().Sub(began).Seconds())
	}
}

// codeOf is the HTTP code of an answer to a create; there is none when the API
// server did not answer.
func codeOf(err error) string {
	var answered apierrors.APIStatus
	switch {
	case err == nil:
		return strconv.Itoa(http.StatusCreated)
	case errors.As(err, &answered) && answered.Status().Code != 0:
		return strconv.Itoa(int(answered.Status().Code))
	}
	return "<error>"
}
