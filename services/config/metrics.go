package config

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/merge"
)

// metrics of config. Those named kubelet_ carry the kubelet's names and labels.
type metrics struct {
	desired    *prometheus.GaugeVec
	heard      *prometheus.GaugeVec
	problems   *prometheus.GaugeVec
	generation prometheus.Gauge
	tokens     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, unwritten func() int) *metrics {
	vec := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		desired:  vec("kubelet_desired_pods", "Pods this node should run; static is true or empty.", "static"),
		heard:    vec("sextant_config_source_heard", "Whether a source of pods was read whole since the start.", "source"),
		problems: vec("sextant_config_problems", "Manifests refused at present.", "source"),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sextant_config_generation", Help: "Generation of the configuration in force.",
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sextant_config_token_requests_total", Help: "Tokens asked for by the node's services.",
		}, []string{"result"}),
	}
	pending := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sextant_config_unwritten_records", Help: "Records published but not on disk yet.",
	}, func() float64 { return float64(unwritten()) })
	r.MustRegister(m.desired, m.heard, m.problems, m.generation, m.tokens, pending)
	return m
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
	m.heard.Reset()
	m.problems.Reset()
	for _, source := range state.Sources {
		heard := 0.0
		if source.Heard {
			heard = 1
		}
		m.heard.WithLabelValues(source.Name).Set(heard)
		m.problems.WithLabelValues(source.Name).Set(float64(len(source.Problems)))
	}
}
