// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Series is one series of a metrics page: NAME is the family's, or NAME_sum for the
// sum of a histogram or summary, whose count has the family's own name.
type Series struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Moves is by how much each series has changed between two scrapes of one node, by
// the text of the series. A series that one of the scrapes lacks is 0 there, so that
// one which ended has moved by less than nothing.
type Moves map[string]Series

// Scrape are the pages of one node at one moment, in the Prometheus text format. A
// series that several pages have is taken from the last of them.
type Scrape [][]byte

// MovesOf compares two scrapes, the earlier one first. Series that did not move are
// in it, with 0.
func MovesOf(before, after Scrape) (Moves, error) {
	first, err := series(before)
	if err != nil {
		return nil, fmt.Errorf("before: %w", err)
	}
	moves, err := series(after)
	if err != nil {
		return nil, fmt.Errorf("after: %w", err)
	}
	for key, was := range first {
		is, ok := moves[key]
		if !ok {
			is = Series{Name: was.Name, Labels: was.Labels}
		}
		is.Value -= was.Value
		moves[key] = is
	}
	return moves, nil
}

// series are the finite values of a scrape.
func series(pages Scrape) (map[string]Series, error) {
	all := map[string]Series{}
	for _, page := range pages {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return nil, fmt.Errorf("metrics page: %w", err)
		}
		for name, family := range families {
			for _, m := range family.GetMetric() {
				for _, s := range seriesOf(name, m) {
					all[s.String()] = s
				}
			}
		}
	}
	return all, nil
}

func seriesOf(name string, m *dto.Metric) (all []Series) {
	own := map[string]string{}
	for _, l := range m.GetLabel() {
		own[l.GetName()] = l.GetValue()
	}
	for suffix, v := range values(m) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			all = append(all, Series{name + suffix, own, v})
		}
	}
	return all
}

// values are what a series counts, by the suffix of its name.
func values(m *dto.Metric) map[string]float64 {
	switch {
	case m.GetHistogram() != nil:
		return map[string]float64{"": float64(m.GetHistogram().GetSampleCount()), "_sum": m.GetHistogram().GetSampleSum()}
	case m.GetSummary() != nil:
		return map[string]float64{"": float64(m.GetSummary().GetSampleCount()), "_sum": m.GetSummary().GetSampleSum()}
	default: // the others are nil, which is 0
		return map[string]float64{"": m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()}
	}
}

// String is the series without its value, its labels in order.
func (s Series) String() string { return s.Name + braced(s.Labels) }

func braced(values map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, fmt.Sprintf("%s=%q", name, values[name]))
	}
	return "{" + strings.Join(all, ",") + "}"
}
