// SPDX-License-Identifier: Apache-2.0

package metric_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
)

// TestIn: what is made is in the registry; without one it counts all the same.
func TestIn(t *testing.T) {
	r := prometheus.NewRegistry()
	for _, to := range []metric.Set{metric.In(r), metric.In(nil)} {
		to.Counter("a", "A.").Inc()
		to.Counters("b", "B.", "x").WithLabelValues("1").Inc()
		to.Gauge("c", "C.").Set(1)
		to.Gauges("d", "D.", "x", "y").WithLabelValues("1", "2").Set(1)
		to.Measured("e", "E.", func() float64 { return 1 })
		to.Histogram("f", "F.", nil).Observe(1)
		to.Histograms("g", "G.", []float64{1, 2}, "x").WithLabelValues("1").Observe(1)
	}
	if families, err := r.Gather(); len(families) != 7 || err != nil {
		t.Errorf("%v: %v, want seven families", families, err)
	}
}
