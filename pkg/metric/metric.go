// SPDX-License-Identifier: Apache-2.0

// Package metric makes the metrics of a service, each of which is registered as it is made.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Set makes the metrics of one registry. Make it with In.
type Set struct {
	factory    promauto.Factory
	registerer prometheus.Registerer
}

// In makes metrics that r has; with nil, metrics that nobody reads.
func In(r prometheus.Registerer) Set { return Set{promauto.With(r), r} }

// Counter makes a counter.
func (s Set) Counter(name, help string) prometheus.Counter {
	return s.factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters makes counters that differ by labels.
func (s Set) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return s.factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge makes a gauge.
func (s Set) Gauge(name, help string) prometheus.Gauge {
	return s.factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges makes gauges that differ by labels.
func (s Set) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return s.factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Measured makes a gauge whose value is asked for when it is read.
func (s Set) Measured(name, help string, value func() float64) {
	s.factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// Histogram makes a histogram; nil stands for the buckets that are usual for seconds.
func (s Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return s.factory.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// Histograms makes histograms that differ by labels.
func (s Set) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return s.factory.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
