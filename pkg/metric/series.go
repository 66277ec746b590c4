// SPDX-License-Identifier: Apache-2.0

package metric

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Series are gauges of one family that differ by one label and are set all at once: whoever
// reads them has those of before or those of after, and never some or none in between.
type Series struct {
	desc   *prometheus.Desc
	values atomic.Pointer[map[string]float64]
}

// Series makes gauges that are set all at once; there are none before.
func (s Set) Series(name, help, label string) *Series {
	made := &Series{desc: prometheus.NewDesc(name, help, []string{label}, nil)}
	if s.registerer != nil {
		s.registerer.MustRegister(made)
	}
	return made
}

// Set has the family consist of these values, by label. It keeps the map.
func (s *Series) Set(values map[string]float64) { s.values.Store(&values) }

// Describe implements prometheus.Collector.
func (s *Series) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *Series) Collect(to chan<- prometheus.Metric) {
	values := s.values.Load()
	if values == nil {
		return
	}
	for label, value := range *values {
		to <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, label)
	}
}
