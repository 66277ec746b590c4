package podworker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the workers.
type metrics struct {
	steps, forgotten  prometheus.Counter
	actions, failures *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		steps:     prometheus.NewCounter(prometheus.CounterOpts{Name: "sextant_podworker_steps_total", Help: "Decisions taken about pods."}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "sextant_podworker_pods_forgotten_total", Help: "Pods of which nothing is left."}),
		actions:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sextant_podworker_actions_total", Help: "Actions begun, by kind."}, []string{"kind"}),
		failures:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sextant_podworker_action_failures_total", Help: "Actions that failed, by kind."}, []string{"kind"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.steps, m.forgotten, m.actions, m.failures} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("podworker metrics: %w", err)
		}
	}
	return m, nil
}
