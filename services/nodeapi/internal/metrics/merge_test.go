// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
)

var text = expfmt.NewFormat(expfmt.TypeTextPlain)

func scrape(t *testing.T, service, from string) metrics.Scrape {
	t.Helper()
	families, err := metrics.Parse(strings.NewReader(from), text)
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
		"one service's family passes": {
			[]metrics.Scrape{scrape(t, "self", ""), scrape(t, "b", "# TYPE kubelet_x counter\nkubelet_x{a=\"1\"} 3\n")},
			"# TYPE kubelet_x counter\nkubelet_x{a=\"1\"} 3\n" + up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
		"processes are added up, and told one by one": {
			[]metrics.Scrape{
				scrape(t, "self", "# TYPE go_goroutines gauge\ngo_goroutines 1\n"),
				scrape(t, "b", "# TYPE go_goroutines gauge\ngo_goroutines 2\n"),
			},
			"# TYPE go_goroutines gauge\ngo_goroutines 3\n# HELP sextant_go_goroutines Of one service.\n# TYPE sextant_go_goroutines gauge\n" +
				"sextant_go_goroutines{service=\"self\"} 1\nsextant_go_goroutines{service=\"b\"} 2\n" +
				up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
		"shared memory counts once": {
			[]metrics.Scrape{
				scrape(t, "a", "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 55\n# TYPE sextant_process_proportional_memory_bytes gauge\nsextant_process_proportional_memory_bytes 11\n"),
				scrape(t, "b", "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 56\n# TYPE sextant_process_proportional_memory_bytes gauge\nsextant_process_proportional_memory_bytes NaN\n"),
			},
			"# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 67\n" +
				"# TYPE sextant_process_proportional_memory_bytes gauge\nsextant_process_proportional_memory_bytes{service=\"a\"} 11\nsextant_process_proportional_memory_bytes{service=\"b\"} NaN\n" +
				"# HELP sextant_process_resident_memory_bytes Of one service.\n# TYPE sextant_process_resident_memory_bytes gauge\n" +
				"sextant_process_resident_memory_bytes{service=\"a\"} 55\nsextant_process_resident_memory_bytes{service=\"b\"} 56\n" +
				up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
		"what cannot be added up": {
			[]metrics.Scrape{
				scrape(t, "b", "# TYPE go_info gauge\ngo_info{version=\"old\"} 1\n# TYPE go_memstats_last_gc_time_seconds gauge\ngo_memstats_last_gc_time_seconds 9\n"),
				scrape(t, "self", "# TYPE go_info gauge\ngo_info{version=\"new\"} 1\n# TYPE go_memstats_last_gc_time_seconds gauge\ngo_memstats_last_gc_time_seconds 7\n"),
			},
			"# TYPE go_info gauge\ngo_info{version=\"new\"} 1\n# TYPE go_memstats_last_gc_time_seconds gauge\ngo_memstats_last_gc_time_seconds 9\n" +
				up + "sextant_service_up{service=\"b\"} 1\nsextant_service_up{service=\"self\"} 1\n",
		},
		"gRPC tells the service": {
			[]metrics.Scrape{scrape(t, "self", "# TYPE grpc_x counter\ngrpc_x 1\n"), scrape(t, "b", "# TYPE grpc_x counter\ngrpc_x 2\n")},
			"# TYPE grpc_x counter\ngrpc_x{service=\"self\"} 1\ngrpc_x{service=\"b\"} 2\n" +
				up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
		"one is away": {
			[]metrics.Scrape{{Service: "self", Up: true}, {Service: "gone"}},
			up + "sextant_service_up{service=\"self\"} 1\nsextant_service_up{service=\"gone\"} 0\n",
		},
		"the same series twice": {
			[]metrics.Scrape{
				scrape(t, "a", "# TYPE a_total counter\na_total{code=\"200\"} 1\n"),
				scrape(t, "b", "# TYPE a_total counter\na_total{code=\"200\"} 2\na_total{code=\"500\"} 3\n"),
				scrape(t, "c", "# TYPE a_total counter\na_total{code=\"200\"} 4\n"),
			},
			"# TYPE a_total counter\na_total{code=\"200\"} 1\na_total{code=\"200\",service=\"b\"} 2\na_total{code=\"500\"} 3\na_total{code=\"200\",service=\"c\"} 4\n" +
				up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\nsextant_service_up{service=\"c\"} 1\n",
		},
		"one name, two types": {
			[]metrics.Scrape{scrape(t, "a", "# TYPE x gauge\nx 1\n# TYPE go_x gauge\ngo_x 1\n"), scrape(t, "b", "# TYPE x counter\nx 2\n# TYPE go_x counter\ngo_x 2\n")},
			"# TYPE go_x gauge\ngo_x 1\n" + up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\n# TYPE x gauge\nx 1\n",
		},
		"histograms of two": {
			[]metrics.Scrape{
				scrape(t, "a", "# TYPE rest_client_h histogram\nrest_client_h_bucket{v=\"GET\",le=\"1\"} 1\nrest_client_h_bucket{v=\"GET\",le=\"+Inf\"} 2\nrest_client_h_sum{v=\"GET\"} 3\nrest_client_h_count{v=\"GET\"} 2\n"),
				scrape(t, "b", "# TYPE rest_client_h histogram\nrest_client_h_bucket{v=\"GET\",le=\"1\"} 4\nrest_client_h_bucket{v=\"GET\",le=\"+Inf\"} 4\nrest_client_h_sum{v=\"GET\"} 1\nrest_client_h_count{v=\"GET\"} 4\n"),
			},
			"# TYPE rest_client_h histogram\nrest_client_h_bucket{v=\"GET\",le=\"1\"} 5\nrest_client_h_bucket{v=\"GET\",le=\"+Inf\"} 6\nrest_client_h_sum{v=\"GET\"} 4\nrest_client_h_count{v=\"GET\"} 6\n" +
				up + "sextant_service_up{service=\"a\"} 1\nsextant_service_up{service=\"b\"} 1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, metrics.NewTotals(time.Unix(0, 0)).Merge(test.scrapes, "self"))
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if _, err := metrics.Parse(strings.NewReader(got), text); err != nil {
				t.Errorf("the answer does not parse: %v", err)
			}
		})
	}
}

// TestTotalsNeverFall: a sum of counters goes on through the restarts of those
// that are added up, and a restart of the adding process looks like one.
func TestTotalsNeverFall(t *testing.T) {
	const began = 1_000_000 // of the adding process
	at := func(service string, started int64, requests, seconds float64) metrics.Scrape {
		return scrape(t, service, fmt.Sprintf("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n"+
			"# TYPE rest_client_n counter\nrest_client_n{code=\"200\"} %v\n# TYPE rest_client_h histogram\n"+
			"rest_client_h_bucket{le=\"1\"} %v\nrest_client_h_bucket{le=\"+Inf\"} %v\nrest_client_h_sum %v\nrest_client_h_count %v\n",
			started, requests, requests, requests, seconds, requests))
	}
	totals := metrics.NewTotals(time.Unix(began, 0))
	for i, step := range []struct {
		what           string
		scrapes        []metrics.Scrape
		count, seconds float64
	}{
		{"what an old process counted before is left out", []metrics.Scrape{at("old", began-1000, 500, 50), at("young", began-10, 3, 1)}, 3, 1},
		{"both count", []metrics.Scrape{at("old", began-1000, 510, 51), at("young", began-10, 4, 2)}, 14, 3},
		{"one is away", []metrics.Scrape{{Service: "old"}, at("young", began-10, 5, 2)}, 15, 3},
		{"it comes back anew", []metrics.Scrape{at("old", began+100, 2, 1), at("young", began-10, 5, 2)}, 17, 4},
		{"an answer that was overtaken", []metrics.Scrape{at("old", began-1000, 511, 51), at("young", began-10, 4, 2)}, 17, 4},
		{"and on", []metrics.Scrape{at("old", began+100, 7, 3), at("young", began-10, 6, 3)}, 23, 7},
	} {
		got := render(t, totals.Merge(step.scrapes, "self"))
		for _, want := range []string{
			fmt.Sprintf("\nrest_client_n{code=\"200\"} %v\n", step.count), fmt.Sprintf("\nrest_client_h_sum %v\n", step.seconds),
			fmt.Sprintf("\nrest_client_h_count %v\n", step.count), fmt.Sprintf("\nrest_client_h_bucket{le=\"1\"} %v\n", step.count),
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%d, %s: no %q in\n%s", i, step.what, want, got)
			}
		}
	}
}

// TestTheClockIsSet: process_start_time_seconds moves when the clock is set, for it is the
// kernel's time of the boot and what the process started after that. No sum doubles for it,
// and none stands still.
func TestTheClockIsSet(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	at := func(started time.Time, set, requests int) []metrics.Scrape {
		one := scrape(t, "a", fmt.Sprintf("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n"+
			"# TYPE rest_client_n counter\nrest_client_n %d\n# TYPE go_goroutines gauge\ngo_goroutines 7\n", started.Unix()+int64(set), requests))
		one.Started = started
		return []metrics.Scrape{one}
	}
	const overtaken = "an answer that was overtaken"
	totals, next := metrics.NewTotals(began), began.Add(time.Minute)
	for _, step := range []struct {
		what    string
		scrapes []metrics.Scrape
		count   int
	}{
		{"at first", at(began, 0, 100), 100},
		{"set forward", at(began, 3600, 101), 101},
		{"set back", at(began, -3600, 102), 102},
		{"another process", at(next, -3600, 3), 105},
		{overtaken, at(began, -3600, 104), 105},
		{"and on", at(next, 0, 4), 106},
	} {
		got := render(t, totals.Merge(step.scrapes, "self"))
		if want := fmt.Sprintf("\nrest_client_n %d\n", step.count); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", step.what, want, got)
		}
		if gauge := strings.Contains(got, "\ngo_goroutines 7\n"); gauge == (step.what == overtaken) {
			t.Errorf("%s: gauge %v in\n%s", step.what, gauge, got)
		}
	}
}

func TestGaugesOfTheAwayAreGone(t *testing.T) {
	totals := metrics.NewTotals(time.Unix(0, 0))
	both := []metrics.Scrape{scrape(t, "a", "# TYPE go_threads gauge\ngo_threads 3\n"), scrape(t, "b", "# TYPE go_threads gauge\ngo_threads 4\n")}
	if got := render(t, totals.Merge(both, "a")); !strings.Contains(got, "\ngo_threads 7\n") {
		t.Errorf("both:\n%s", got)
	}
	one := []metrics.Scrape{scrape(t, "a", "# TYPE go_threads gauge\ngo_threads 3\n"), {Service: "b"}}
	if got := render(t, totals.Merge(one, "a")); !strings.Contains(got, "\ngo_threads 3\n") {
		t.Errorf("one:\n%s", got)
	}
}

func TestParse(t *testing.T) {
	const family = "# TYPE x counter\nx{a=\"1\"} 3\n"
	families, err := metrics.Parse(strings.NewReader(family), text)
	if err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	if err := expfmt.NewEncoder(&wire, format).Encode(families["x"]); err != nil {
		t.Fatal(err)
	}
	again, err := metrics.Parse(&wire, format)
	if err != nil || render(t, []*dto.MetricFamily{again["x"]}) != family {
		t.Errorf("as protobuf: %v, %v", again, err)
	}
	for _, garbage := range []string{"{", "x{a=} 1\n", "# TYPE x nonsense\nx 1\n"} {
		for _, format := range []expfmt.Format{text, format} {
			if families, err := metrics.Parse(strings.NewReader(garbage), format); err == nil {
				t.Errorf("%q parses as %v", garbage, families)
			}
		}
	}
}

func TestByName(t *testing.T) {
	name := "x"
	if all := metrics.ByName([]*dto.MetricFamily{{Name: &name}}); len(all) != 1 || all["x"].GetName() != "x" {
		t.Errorf("index %v", all)
	}
}
