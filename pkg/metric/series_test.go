// SPDX-License-Identifier: Apache-2.0

package metric_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
)

// TestSeriesAreSetAtOnce: whoever reads while they are set anew has one whole set.
func TestSeriesAreSetAtOnce(t *testing.T) {
	r := prometheus.NewRegistry()
	series := metric.In(r).Series("a", "A.", "x")
	if families, err := r.Gather(); len(families) != 0 || err != nil {
		t.Errorf("before: %v, %v", families, err)
	}
	sets := []map[string]float64{{"old": 1, "both": 1}, {"both": 2, "new": 2}}
	series.Set(sets[0])
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 1000 {
			series.Set(sets[i%2])
		}
	})
	for range 1000 {
		families, err := r.Gather()
		if err != nil || len(families) != 1 {
			t.Fatalf("%v, %v", families, err)
		}
		got := ""
		for _, m := range families[0].GetMetric() {
			got += fmt.Sprint(m.GetLabel()[0].GetValue(), m.GetGauge().GetValue(), " ")
		}
		if got != "both1 old1 " && got != "both2 new2 " {
			t.Fatalf("read %s", got)
		}
	}
	writer.Wait()
	metric.In(nil).Series("b", "B.", "x").Set(nil) // without a registry
}
