// SPDX-License-Identifier: Apache-2.0

// Package metrics merges the metrics of a node's services under the kubelet's names. It is
// pure: families in, families out.
//
// Most families belong to one service and pass through. What every Go program, or every
// client of the API server, measures is added up, so that there is one series where a
// kubelet has one. Totals keeps such sums right across restarts of the other processes;
// after a restart of its own they start at zero, as a kubelet's do.
package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Merge joins the families of all services, sorted by name; self is this service. A series
// of two services that is not added up gets a label service from the second on: a series
// that occurs twice makes the whole answer invalid. A family of two types is taken from
// the first service.
func (t *Totals) Merge(scrapes []Scrape, self string) []*dto.MetricFamily {
	t.mu.Lock()
	defer t.mu.Unlock()
	merged := map[string]*dto.MetricFamily{}
	up := &dto.MetricFamily{
		Name: new("sextant_service_up"), Type: dto.MetricType_GAUGE.Enum(),
		Help: new("Whether a service of the node answered the scrape."),
	}
	for _, s := range scrapes {
		value := 0.0
		if s.Up {
			value = 1
		}
		up.Metric = append(up.Metric, gauge(value, pair("service", s.Service)))
		t.begin(s)
		for name, family := range s.Families {
			if slices.Contains(perService, name) {
				single(merged, s.Service, family)
			}
			switch have := merged[name]; ruleOf(name) {
			case own:
				if s.Service == self {
					merged[name] = family
				}
			case greatest:
				greater(merged, family)
			case sum:
				if name == resident {
					family = shares(family, s.Families[proportional])
				}
				t.add(s.Service, family)
			case labelled:
				label(family, s.Service)
				fallthrough
			default:
				if have == nil {
					merged[name] = family
				} else if have.GetType() == family.GetType() {
					join(have, family, s.Service)
				}
			}
		}
	}
	merged[up.GetName()] = up
	all := slices.AppendSeq(t.families(), maps.Values(merged))
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// shares is the family to add up for the resident memory: the share, if there is one.
func shares(family, share *dto.MetricFamily) *dto.MetricFamily {
	if len(share.GetMetric()) == 0 || math.IsNaN(share.GetMetric()[0].GetGauge().GetValue()) {
		return family
	}
	return &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type, Metric: []*dto.Metric{gauge(share.GetMetric()[0].GetGauge().GetValue())}}
}

// single adds a process's value under another name: in the family of the sum, a query that
// adds up series would count it twice.
func single(merged map[string]*dto.MetricFamily, service string, family *dto.MetricFamily) {
	name := "sextant_" + family.GetName()
	if merged[name] == nil {
		merged[name] = &dto.MetricFamily{
			Name: &name, Type: family.Type, Help: new(strings.TrimSpace(family.GetHelp() + " Of one service.")),
		}
	}
	for _, m := range family.GetMetric() {
		one := &dto.Metric{Gauge: m.GetGauge(), Counter: m.GetCounter()}
		one.Label = withService(m.GetLabel(), service)
		merged[name].Metric = append(merged[name].Metric, one)
	}
}

// greater keeps the greatest value of a gauge without labels.
func greater(merged map[string]*dto.MetricFamily, family *dto.MetricFamily) {
	have := merged[family.GetName()]
	if have == nil {
		merged[family.GetName()] = family
		return
	}
	for _, m := range family.GetMetric() {
		if m.GetGauge().GetValue() > have.GetMetric()[0].GetGauge().GetValue() {
			have.Metric = []*dto.Metric{m}
		}
	}
}

func label(family *dto.MetricFamily, service string) {
	for _, m := range family.GetMetric() {
		m.Label = withService(m.GetLabel(), service)
	}
}

// withService adds a label service, if there is none.
func withService(labels []*dto.LabelPair, service string) []*dto.LabelPair {
	if slices.ContainsFunc(labels, func(l *dto.LabelPair) bool { return l.GetName() == "service" }) {
		return labels
	}
	return append(slices.Clone(labels), pair("service", service))
}

// join adds the series of a service to a family.
func join(have, more *dto.MetricFamily, service string) {
	known := map[string]bool{}
	for _, m := range have.GetMetric() {
		known[series(m)] = true
	}
	for _, m := range more.GetMetric() {
		if known[series(m)] {
			if m.Label = withService(m.GetLabel(), service); known[series(m)] {
				continue
			}
		}
		known[series(m)] = true
		have.Metric = append(have.Metric, m)
	}
}

func gauge(value float64, labels ...*dto.LabelPair) *dto.Metric {
	return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}}
}

func pair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: new(name), Value: new(value)}
}
