package stats

import (
	"cmp"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// family collects the series of one name. It is made without a registry, whose
// checks cost more than everything else at tens of thousands of series.
func family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
}

// add adds a series. Labels are shared, never changed.
func add(f *dto.MetricFamily, value float64, time *timestamppb.Timestamp, labels []*dto.LabelPair) {
	m := &dto.Metric{Label: labels}
	if time != nil {
		ms := time.GetSeconds()*1000 + int64(time.GetNanos())/1e6
		m.TimestampMs = &ms
	}
	if f.GetType() == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	f.Metric = append(f.Metric, m)
}

// labels of name and value in turn.
func labels(pairs ...string) []*dto.LabelPair {
	all := make([]*dto.LabelPair, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
	}
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// with adds labels to those of a row.
func with(base []*dto.LabelPair, pairs ...string) []*dto.LabelPair {
	all := append(slices.Clip(slices.Clone(base)), labels(pairs...)...)
	slices.SortFunc(all, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// scrapeError tells whether something could not be read.
func scrapeError(name string, failed bool) *dto.MetricFamily {
	f := family(name, "1 if something could not be read, 0 otherwise.", dto.MetricType_GAUGE)
	value := 0.0
	if failed {
		value = 1
	}
	add(f, value, nil, nil)
	return f
}

// told drops families without series.
func told(all []*dto.MetricFamily) []*dto.MetricFamily {
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}
