// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/quiet"
)

// Scrape is the answer of one service.
type Scrape struct {
	Service string
	Up      bool
	// Started is when the process started, by the monotonic clock since the boot; zero if
	// the service does not report it.
	Started  time.Time
	Families map[string]*dto.MetricFamily
}

// ByName indexes families.
func ByName(families []*dto.MetricFamily) map[string]*dto.MetricFamily {
	all := make(map[string]*dto.MetricFamily, len(families))
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// MaxAnswer is the longest answer of a service that Parse reads, in bytes. That of a node
// with 500 pods has one megabyte.
const MaxAnswer = 8 << 20

// Parse reads an answer in a format. What it returns can be merged and written: an answer
// with a family that cannot is an error, which costs the metrics of one service.
func Parse(r io.Reader, format expfmt.Format) (map[string]*dto.MetricFamily, error) {
	data, err := file.Bounded(r, MaxAnswer, fmt.Errorf("metrics: longer than %d bytes", MaxAnswer))
	if err != nil {
		return nil, err
	}
	var all map[string]*dto.MetricFamily
	if format.FormatType() == expfmt.TypeProtoDelim {
		all, err = parseDelimited(data)
	} else {
		all, err = parseText(data)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %s", quiet.Cut(err.Error(), 256))
	}
	for name, family := range all {
		if err := check(family); err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", quiet.Cut(name, 256), err)
		}
	}
	return all, nil
}

// parseText reads the text format. expfmt's parser panics at some lines, "{}" for one.
func parseText(data []byte) (all map[string]*dto.MetricFamily, err error) {
	defer func() {
		if p := recover(); p != nil {
			all, err = nil, fmt.Errorf("text format: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(data))
}

// parseDelimited reads families with a length before each. expfmt's decoder allocates any
// such length before it reads.
func parseDelimited(data []byte) (map[string]*dto.MetricFamily, error) {
	all := map[string]*dto.MetricFamily{}
	for len(data) > 0 {
		raw, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		family := &dto.MetricFamily{}
		if err := proto.Unmarshal(raw, family); err != nil {
			return nil, err
		}
		all[family.GetName()] = family
		data = data[n:]
	}
	return all, nil
}

// check is why a family cannot be merged or written, nil if it can.
func check(family *dto.MetricFamily) error {
	if !model.UTF8Validation.IsValidMetricName(family.GetName()) || !utf8.ValidString(family.GetHelp()) {
		return errors.New("name or help is not valid UTF-8")
	}
	if len(family.GetMetric()) == 0 {
		return errors.New("no metric")
	}
	known := make(map[string]bool, len(family.GetMetric()))
	for _, m := range family.GetMetric() {
		if !hasOnly(m, family.GetType()) {
			return fmt.Errorf("a metric does not have the one value of a %s", family.GetType())
		}
		labels := map[string]bool{}
		for _, l := range m.GetLabel() {
			if !model.UTF8Validation.IsValidLabelName(l.GetName()) || !utf8.ValidString(l.GetValue()) || labels[l.GetName()] {
				return errors.New("a label is invalid or duplicate")
			}
			labels[l.GetName()] = true
		}
		name := series(m)
		if known[name] {
			return errors.New("duplicate metric")
		}
		known[name] = true
	}
	return nil
}

// hasOnly reports whether a metric has a value of a type, and of no other.
func hasOnly(m *dto.Metric, kind dto.MetricType) bool {
	has := map[dto.MetricType]bool{
		dto.MetricType_COUNTER: m.GetCounter() != nil, dto.MetricType_GAUGE: m.GetGauge() != nil, dto.MetricType_SUMMARY: m.GetSummary() != nil,
		dto.MetricType_UNTYPED: m.GetUntyped() != nil, dto.MetricType_HISTOGRAM: m.GetHistogram() != nil,
	}
	maps.DeleteFunc(has, func(_ dto.MetricType, there bool) bool { return !there })
	return len(has) == 1 && has[kind]
}

// series names a metric of a family by its labels.
func series(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	labels := make([]string, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels = append(labels, strconv.Quote(l.GetName())+"="+strconv.Quote(l.GetValue()))
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}
