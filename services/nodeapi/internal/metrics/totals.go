// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// settling is how long before this process another one may have started and still be
// counted from its start: the services of a node start together.
const settling = time.Minute

// maxSeries is how many series of a service are added up; any others are not.
const maxSeries = 10000

// Totals adds up what several processes measure. Its counters and histograms never fall:
// what a process had counted when it ended stays in the sum. What a process had counted
// long before Totals was made is left out: after a restart of this process a sum that falls
// a little would be taken for one that began at zero.
type Totals struct {
	since time.Time

	mu       sync.Mutex
	services map[string]*process
	order    []string // services as they were met
	kinds    map[string]*dto.MetricFamily
}

// NewTotals adds up from since on, the start of this process.
func NewTotals(since time.Time) *Totals {
	return &Totals{since: since, services: map[string]*process{}, kinds: map[string]*dto.MetricFamily{}}
}

// process is what a service counted, in its present process and in former ones.
type process struct {
	started float64 // Unix time
	old     bool    // this is the first scrape, and it had counted long before
	stale   bool    // this scrape was overtaken by one of a later process
	series  map[string]map[string]*part
	count   int // of series
}

// part of a sum: what one service contributes to one series.
type part struct {
	labels []*dto.LabelPair
	bounds []float64
	// values are: of a gauge or counter its value; of a histogram the count, the
	// sum and each bucket.
	last, offset []float64
	fresh        bool // in the newest scrape
}

// begin prepares for a scrape; what a former process of the service counted is kept.
func (t *Totals) begin(s Scrape) {
	p := t.services[s.Service]
	if p == nil {
		p = &process{series: map[string]map[string]*part{}}
		t.services[s.Service] = p
		t.order = append(t.order, s.Service)
	}
	p.each(func(one *part) { one.fresh = false })
	p.old, p.stale = false, false
	started, ok := startOf(s)
	if !ok {
		return
	}
	switch {
	case started < p.started:
		p.stale = true
	case started > p.started:
		p.each(func(one *part) {
			for i, v := range one.last {
				one.offset[i] += v // what the former process counted stays
				one.last[i] = 0
			}
		})
		p.old = p.started == 0 && started < float64(t.since.Add(-settling).UnixNano())/1e9
		p.started = started
	}
}

// startOf is when the process of a scrape started, in Unix time. That of an earlier release
// tells by a metric alone, which moves when the clock is set.
func startOf(s Scrape) (started float64, ok bool) {
	if !s.Started.IsZero() {
		return float64(s.Started.UnixNano()) / 1e9, true
	}
	family := s.Families["process_start_time_seconds"]
	if len(family.GetMetric()) == 0 {
		return 0, false
	}
	return family.GetMetric()[0].GetGauge().GetValue(), true
}

func (p *process) each(do func(*part)) {
	for _, family := range p.series {
		for _, one := range family {
			do(one)
		}
	}
}

// add takes a family of a service.
func (t *Totals) add(service string, family *dto.MetricFamily) {
	p, name, kind := t.services[service], family.GetName(), family.GetType()
	added := kind == dto.MetricType_GAUGE || kind == dto.MetricType_COUNTER || kind == dto.MetricType_HISTOGRAM
	if !added || p.stale || p.count >= maxSeries && p.series[name] == nil {
		return
	}
	if t.kinds[name] == nil {
		t.kinds[name] = &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type}
	}
	if t.kinds[name].GetType() != kind {
		return
	}
	if p.series[name] == nil {
		p.series[name] = map[string]*part{}
	}
	for _, m := range family.GetMetric() {
		values, bounds := valuesOf(m)
		one := p.series[name][series(m)]
		if one == nil {
			if p.count >= maxSeries {
				continue
			}
			p.count++
		}
		if one == nil || !slices.Equal(one.bounds, bounds) || len(one.last) != len(values) {
			one = &part{labels: m.GetLabel(), bounds: bounds, last: make([]float64, len(values)), offset: make([]float64, len(values))}
			if p.old && m.GetGauge() == nil {
				for i, v := range values {
					one.offset[i] = -v
				}
			}
			p.series[name][series(m)] = one
		}
		one.fresh = true
		if m.GetGauge() == nil && len(values) > 0 && values[0] < one.last[0] {
			continue // an answer that was overtaken by a later one
		}
		one.last = values
	}
}

func valuesOf(m *dto.Metric) (values, bounds []float64) {
	switch {
	case m.GetGauge() != nil:
		return []float64{m.GetGauge().GetValue()}, nil
	case m.GetCounter() != nil:
		return []float64{m.GetCounter().GetValue()}, nil
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		values = []float64{float64(h.GetSampleCount()), h.GetSampleSum()}
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) { // the count says the same
				bounds, values = append(bounds, b.GetUpperBound()), append(values, float64(b.GetCumulativeCount()))
			}
		}
	}
	return values, bounds
}

// families are the sums. A gauge is in them while its service answers.
func (t *Totals) families() []*dto.MetricFamily {
	var all []*dto.MetricFamily
	for name, kind := range t.kinds {
		family := &dto.MetricFamily{Name: kind.Name, Help: kind.Help, Type: kind.Type}
		sums := map[string]*part{}
		var order []string
		for _, service := range t.order {
			for key, one := range t.services[service].series[name] {
				if kind.GetType() == dto.MetricType_GAUGE && !one.fresh {
					continue
				}
				have := sums[key]
				if have == nil {
					have = &part{labels: one.labels, bounds: one.bounds, last: make([]float64, len(one.last))}
					sums[key], order = have, append(order, key)
				}
				if !slices.Equal(have.bounds, one.bounds) || len(have.last) != len(one.last) {
					continue // another release's buckets cannot be added
				}
				for i, v := range one.last {
					have.last[i] += v
					if kind.GetType() != dto.MetricType_GAUGE {
						have.last[i] += one.offset[i]
					}
				}
			}
		}
		slices.Sort(order)
		for _, key := range order {
			family.Metric = append(family.Metric, sums[key].metric(kind.GetType()))
		}
		if len(family.Metric) > 0 {
			all = append(all, family)
		}
	}
	return all
}

// metric is the sum as a metric.
func (p *part) metric(kind dto.MetricType) *dto.Metric {
	m := &dto.Metric{Label: p.labels}
	switch kind {
	case dto.MetricType_GAUGE:
		m.Gauge = &dto.Gauge{Value: &p.last[0]}
	case dto.MetricType_COUNTER:
		m.Counter = &dto.Counter{Value: &p.last[0]}
	case dto.MetricType_HISTOGRAM:
		m.Histogram = &dto.Histogram{SampleCount: new(uint64(p.last[0])), SampleSum: &p.last[1]}
		for i, bound := range p.bounds {
			m.Histogram.Bucket = append(m.Histogram.Bucket, &dto.Bucket{
				UpperBound: new(bound), CumulativeCount: new(uint64(p.last[i+2])),
			})
		}
	}
	return m
}
