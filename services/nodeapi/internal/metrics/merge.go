// Package metrics merges what the services of a node measure into one answer
// under the kubelet's names. It is pure: families in, families out.
//
// Most families belong to one service and pass through. What several processes
// measure because every Go program, or every client of the API server, does is
// added up: a user of a kubelet finds one series where the kubelet has one. So
// that rates of such sums are right, Totals remembers across the restarts of the
// processes it adds up; after a restart of its own process it begins anew, as
// the counters of a kubelet that was restarted do.
package metrics

import (
	"cmp"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Scrape is what one service said.
type Scrape struct {
	Service  string
	Up       bool
	Families map[string]*dto.MetricFamily
}

// Parse reads an answer in the format its content type names.
func Parse(r io.Reader, format expfmt.Format) (map[string]*dto.MetricFamily, error) {
	if format.FormatType() != expfmt.TypeProtoDelim {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		return parser.TextToMetricFamilies(r)
	}
	all := map[string]*dto.MetricFamily{}
	for decoder := expfmt.NewDecoder(r, format); ; {
		family := &dto.MetricFamily{}
		switch err := decoder.Decode(family); err {
		case nil:
			all[family.GetName()] = family
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
	}
}

// ByName indexes families.
func ByName(families []*dto.MetricFamily) map[string]*dto.MetricFamily {
	all := make(map[string]*dto.MetricFamily, len(families))
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// Merge joins the families of all services, sorted by name; self is the service
// that asks. A series that two services have though it is not to be added up
// gets a label service from the second on, for a series twice would spoil the
// whole answer. A family that two services type differently is taken from the
// first.
func (t *Totals) Merge(scrapes []Scrape, self string) []*dto.MetricFamily {
	t.mu.Lock()
	defer t.mu.Unlock()
	merged := map[string]*dto.MetricFamily{}
	up := &dto.MetricFamily{
		Name: proto.String("sextant_service_up"), Type: dto.MetricType_GAUGE.Enum(),
		Help: proto.String("Whether a service of the node answered the scrape."),
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
	all := t.families()
	for _, family := range merged {
		all = append(all, family)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
}

// What the services take together is the sum of their shares: the binary is in
// memory once, and counts in the resident size of each.
const resident, proportional = "process_resident_memory_bytes", "sextant_process_proportional_memory_bytes"

// shares is the family to add up for the resident memory, where a service tells
// its share.
func shares(family, share *dto.MetricFamily) *dto.MetricFamily {
	if len(share.GetMetric()) == 0 || math.IsNaN(share.GetMetric()[0].GetGauge().GetValue()) {
		return family
	}
	return &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type, Metric: []*dto.Metric{gauge(share.GetMetric()[0].GetGauge().GetValue())}}
}

// single adds a process's own value under a name of its own: beside the sum, in
// the same family, it would be counted twice by whoever adds up series.
func single(merged map[string]*dto.MetricFamily, service string, family *dto.MetricFamily) {
	name := "sextant_" + family.GetName()
	if merged[name] == nil {
		merged[name] = &dto.MetricFamily{
			Name: &name, Type: family.Type, Help: proto.String(strings.TrimSpace(family.GetHelp() + " Of one service.")),
		}
	}
	for _, m := range family.GetMetric() {
		one := &dto.Metric{Gauge: m.GetGauge(), Counter: m.GetCounter()}
		one.Label = append(slices.Clone(m.GetLabel()), pair("service", service))
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
		m.Label = append(m.Label, pair("service", service))
	}
}

// join adds the series of a service to a family.
func join(have, more *dto.MetricFamily, service string) {
	known := map[string]bool{}
	for _, m := range have.GetMetric() {
		known[series(m)] = true
	}
	for _, m := range more.GetMetric() {
		if known[series(m)] {
			m.Label = append(m.Label, pair("service", service))
		}
		have.Metric = append(have.Metric, m)
	}
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

func gauge(value float64, labels ...*dto.LabelPair) *dto.Metric {
	return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}}
}

func pair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)}
}
