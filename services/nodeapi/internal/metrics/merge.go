// Package metrics merges what the services of a node measure into one answer
// under the kubelet's names. It is pure: families in, families out.
package metrics

import (
	"cmp"
	"io"
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

// Parse reads the Prometheus text format.
func Parse(r io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// ByName indexes families.
func ByName(families []*dto.MetricFamily) map[string]*dto.MetricFamily {
	all := make(map[string]*dto.MetricFamily, len(families))
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// perProcess are families that every process has: merged, they need a label to
// tell them apart.
func perProcess(name string) bool {
	for _, prefix := range []string{"go_", "process_", "grpc_", "promhttp_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Merge joins the families of all services, sorted by name. Those that every
// process has get a label service, except self's: its are unlabelled, where the
// kubelet's own would be. So does a series that another service has as well, for
// a series twice would spoil the whole answer. A family that two services type
// differently is taken from the first.
func Merge(scrapes []Scrape, self string) []*dto.MetricFamily {
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
		up.Metric = append(up.Metric, &dto.Metric{Label: []*dto.LabelPair{pair("service", s.Service)}, Gauge: &dto.Gauge{Value: &value}})
		for name, family := range s.Families {
			if perProcess(name) && s.Service != self {
				for _, m := range family.GetMetric() {
					m.Label = append(m.Label, pair("service", s.Service))
				}
			}
			have := merged[name]
			if have == nil {
				merged[name] = family
				continue
			}
			if have.GetType() == family.GetType() {
				join(have, family, s.Service)
			}
		}
	}
	merged[up.GetName()] = up
	all := make([]*dto.MetricFamily, 0, len(merged))
	for _, family := range merged {
		all = append(all, family)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return all
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
	labels := make([]string, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels = append(labels, strconv.Quote(l.GetName())+"="+strconv.Quote(l.GetValue()))
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

func pair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)}
}
