// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics returns facts about a page in the Prometheus text format: each family
// with its type, the label names its series have, and the buckets of a
// histogram. With a Normalizer the label values are facts too.
func Metrics(page []byte, values *Normalizer) ([]string, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	var facts []string
	for name, family := range families {
		facts = append(facts, name+" is a "+strings.ToLower(family.GetType().String()))
		for _, m := range family.GetMetric() {
			facts = append(facts, name+labels(m, values))
			if h := m.GetHistogram(); h != nil {
				facts = append(facts, name+" has buckets "+buckets(h))
			}
		}
	}
	slices.Sort(facts)
	return slices.Compact(facts), nil
}

func labels(m *dto.Metric, values *Normalizer) string {
	var all []string
	for _, l := range m.GetLabel() {
		if values == nil {
			all = append(all, l.GetName())
			continue
		}
		all = append(all, l.GetName()+"="+strconv.Quote(values.Text(l.GetValue())))
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

func buckets(h *dto.Histogram) string {
	var bounds []string
	for _, b := range h.GetBucket() {
		bounds = append(bounds, strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
	}
	return strings.Join(bounds, " ")
}
