// SPDX-License-Identifier: Apache-2.0

// Package measure reads metrics in tests.
package measure

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Value is that of a series of a gatherer: of a counter or gauge its value, of a
// histogram how often it was observed; NaN when there is no such series. It is
// named as in a query: name or name{a="1",b="2"}, the labels in order.
func Value(t testing.TB, from prometheus.Gatherer, series string) float64 {
	t.Helper()
	m := find(t, from, series)
	switch {
	case m == nil:
		return math.NaN()
	case m.GetHistogram() != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// Sum is what a histogram has observed in all; NaN when there is no such series.
func Sum(t testing.TB, from prometheus.Gatherer, series string) float64 {
	t.Helper()
	m := find(t, from, series)
	if m == nil {
		return math.NaN()
	}
	return m.GetHistogram().GetSampleSum()
}

// Expect checks several series; NaN is for one that must not be there.
func Expect(t testing.TB, from prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	for series, value := range want {
		got := Value(t, from, series)
		if got != value && !(math.IsNaN(got) && math.IsNaN(value)) {
			t.Errorf("%s is %v, want %v", series, got, value)
		}
	}
}

func find(t testing.TB, from prometheus.Gatherer, series string) *dto.Metric {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(series, "{")
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && write(name, m) == series {
				return m
			}
		}
	}
	return nil
}

func write(name string, m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
	}
	if len(labels) == 0 {
		return name
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}
