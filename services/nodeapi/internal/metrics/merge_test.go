package metrics_test

import (
	"bytes"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
)

func scrape(t *testing.T, service, text string) metrics.Scrape {
	t.Helper()
	families, err := metrics.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Scrape{Service: service, Up: true, Families: families}
}

func render(t *testing.T, families []*dto.MetricFamily) string {
	t.Helper()
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestMerge(t *testing.T) {
	const up = `# HELP sextant_service_up Whether a service of the node answered the scrape.
# TYPE sextant_service_up gauge
`
	for name, test := range map[string]struct {
		scrapes []metrics.Scrape
		want    string
	}{
		"own and per process": {
			[]metrics.Scrape{
				scrape(t, "self", "# TYPE go_goroutines gauge\ngo_goroutines 1\n"),
				scrape(t, "b", "# TYPE go_goroutines gauge\ngo_goroutines 2\n# TYPE kubelet_x counter\nkubelet_x{a=\"1\"} 3\n"),
			},
			"# TYPE go_goroutines gauge\ngo_goroutines 1\ngo_goroutines{service=\"b\"} 2\n# TYPE kubelet_x counter\nkubelet_x{a=\"1\"} 3\n" +
				up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
		"one is away": {
			[]metrics.Scrape{{Service: "self", Up: true}, {Service: "gone"}},
			up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"gone\"} 0\n",
		},
		"the same series twice": {
			[]metrics.Scrape{
				scrape(t, "a", "# TYPE rest_total counter\nrest_total{code=\"200\"} 1\n"),
				scrape(t, "b", "# TYPE rest_total counter\nrest_total{code=\"200\"} 2\nrest_total{code=\"500\"} 3\n"),
				scrape(t, "c", "# TYPE rest_total counter\nrest_total{code=\"200\"} 4\n"),
			},
			"# TYPE rest_total counter\nrest_total{code=\"200\"} 1\nrest_total{code=\"200\",service=\"b\"} 2\nrest_total{code=\"500\"} 3\nrest_total{code=\"200\",service=\"c\"} 4\n" +
				up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\nsextant_service_up{service=\"c\"} 1\n",
		},
		"one name, two types": {
			[]metrics.Scrape{scrape(t, "a", "# TYPE x gauge\nx 1\n"), scrape(t, "b", "# TYPE x counter\nx 2\n")},
			up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\n# TYPE x gauge\nx 1\n",
		},
		"a histogram": {
			[]metrics.Scrape{scrape(t, "a", "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n")},
			"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n" + up + "sextant_service_up{service=\"a\"} 1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, metrics.Merge(test.scrapes, "self"))
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if _, err := metrics.Parse(strings.NewReader(got)); err != nil {
				t.Errorf("the answer does not parse: %v", err)
			}
		})
	}
}

func TestParseRefusesGarbage(t *testing.T) {
	for _, text := range []string{"{", "x{a=} 1\n", "# TYPE x nonsense\nx 1\n"} {
		if families, err := metrics.Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q parses as %v", text, families)
		}
	}
}

func TestByName(t *testing.T) {
	name := "x"
	if all := metrics.ByName([]*dto.MetricFamily{{Name: &name}}); len(all) != 1 || all["x"].GetName() != "x" {
		t.Errorf("index %v", all)
	}
}
