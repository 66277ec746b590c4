// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
	"github.com/sextant-node/sextant/test/fuzzing"
)

var delimited = expfmt.NewFormat(expfmt.TypeProtoDelim)

// wire is families, each behind its length.
func wire(t testing.TB, families ...*dto.MetricFamily) []byte {
	t.Helper()
	var all []byte
	for _, family := range families {
		raw, err := proto.Marshal(family)
		if err != nil {
			t.Fatal(err)
		}
		all = protowire.AppendBytes(all, raw)
	}
	return all
}

func family(name string, kind dto.MetricType, all ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: &kind, Metric: all}
}

func label(name, value string) []*dto.LabelPair {
	return []*dto.LabelPair{{Name: &name, Value: &value}}
}

// bad are answers that a service makes of no client library.
func bad(t testing.TB) map[string][]byte {
	gauge := &dto.Gauge{Value: proto.Float64(1)}
	return map[string][]byte{
		"a length of exabytes":     protowire.AppendVarint(nil, 1<<62),
		"a length of gigabytes":    append(protowire.AppendVarint(nil, 8<<30), 1, 2, 3),
		"a family without metrics": wire(t, family("go_memstats_last_gc_time_seconds", dto.MetricType_GAUGE)),
		"a metric without a value": wire(t, family("go_x", dto.MetricType_GAUGE, &dto.Metric{})),
		"a value of another type":  wire(t, family("go_x", dto.MetricType_HISTOGRAM, &dto.Metric{Gauge: gauge})),
		"values of two types":      wire(t, family("go_x", dto.MetricType_HISTOGRAM, &dto.Metric{Gauge: gauge, Histogram: &dto.Histogram{}})),
		"no name":                  wire(t, family("", dto.MetricType_GAUGE, &dto.Metric{Gauge: gauge})),
		"a type that is none":      wire(t, family("go_x", dto.MetricType(77), &dto.Metric{Gauge: gauge})),
		"a series twice":           wire(t, family("x", dto.MetricType_GAUGE, &dto.Metric{Gauge: gauge}, &dto.Metric{Gauge: gauge})),
		"a label twice":            wire(t, family("x", dto.MetricType_GAUGE, &dto.Metric{Gauge: gauge, Label: append(label("a", "1"), label("a", "2")...)})),
		"a label without a name":   wire(t, family("x", dto.MetricType_GAUGE, &dto.Metric{Gauge: gauge, Label: label("", "1")})),
	}
}

// TestParseRefuses: an answer that could not be merged or written costs one service its
// metrics, and no memory.
func TestParseRefuses(t *testing.T) {
	for name, answer := range bad(t) {
		fuzzing.Allocates(t, 1<<20, func() {
			if families, err := metrics.Parse(bytes.NewReader(answer), delimited); err == nil {
				t.Errorf("%s: %v", name, families)
			}
		})
	}
	fuzzing.Allocates(t, 8*metrics.MaxAnswer, func() {
		if _, err := metrics.Parse(io.LimitReader(endless{}, 1<<40), text); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("an answer without an end: %v", err)
		}
	})
}

// endless is comments.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

// FuzzParse: whatever a service answers, the answer of the node can be written, in every
// format, and holds the metrics of the others.
func FuzzParse(f *testing.F) {
	for _, answer := range bad(f) {
		f.Add(answer, true)
	}
	one := &dto.Metric{Counter: &dto.Counter{Value: proto.Float64(3)}, Label: label("service", "b")}
	f.Add(wire(f, family("go_x", dto.MetricType_COUNTER, one), family("grpc_x", dto.MetricType_COUNTER, one), family("x", dto.MetricType_COUNTER, one)), true)
	for _, s := range []string{
		"# HELP x h\n# TYPE x counter\nx{a=\"1\"} 3\n", "x{service=\"a\"} 1\nx{service=\"b\"} 2\n", "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n", "x NaN 1\n",
		"# TYPE go_h histogram\ngo_h_bucket{le=\"1\"} 1\ngo_h_bucket{le=\"+Inf\"} 2\n", "# TYPE s summary\ns{quantile=\"0.5\"} 1\n", "{\"a b\",c=\"d\"} 1\n", "go_gc_duration_seconds 1\n",
	} {
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, answer []byte, proto bool) {
		format := text
		if proto {
			format = delimited
		}
		var all []*dto.MetricFamily
		fuzzing.Allocates(t, 1<<20+500*uint64(len(answer)), func() {
			fuzzing.Spends(t, time.Second, func() {
				families, err := metrics.Parse(bytes.NewReader(answer), format)
				if err != nil && len(err.Error()) > 2048 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				again, _ := metrics.Parse(bytes.NewReader(answer), format)
				good, _ := metrics.Parse(strings.NewReader("# TYPE good counter\ngood 7\n# TYPE go_x counter\ngo_x 1\n# TYPE x counter\nx 1\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1\n"), text)
				totals := metrics.NewTotals(time.Unix(0, 0))
				scrapes := []metrics.Scrape{{Service: "a", Up: true, Families: good}, {Service: "b", Up: err == nil, Families: families}, {Service: "c", Families: again}}
				totals.Merge(scrapes[1:2], "a")
				all = totals.Merge(scrapes, "a")
			})
		})
		for _, kind := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeProtoDelim, expfmt.TypeOpenMetrics} {
			encoder := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(kind))
			for _, family := range all {
				if err := encoder.Encode(family); err != nil {
					t.Errorf("format %d: %v", kind, err)
				}
			}
		}
		if !strings.Contains(fmt.Sprint(all), `"good"`) {
			t.Error("another service's metrics are missing")
		}
	})
}

// TestTotalsAreBounded: a service with ever other labels fills no memory.
func TestTotalsAreBounded(t *testing.T) {
	totals := metrics.NewTotals(time.Now())
	for round := range 30 {
		var b strings.Builder
		b.WriteString("# TYPE go_x counter\n")
		for i := range 1000 {
			fmt.Fprintf(&b, "go_x{i=\"%d\"} 1\n", 1000*round+i)
		}
		for _, family := range totals.Merge([]metrics.Scrape{scrape(t, "b", b.String())}, "a") {
			if len(family.GetMetric()) > 10000 {
				t.Fatalf("%d series of %s", len(family.GetMetric()), family.GetName())
			}
		}
	}
}
