// SPDX-License-Identifier: Apache-2.0

package figures_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
)

func TestQuantiles(t *testing.T) {
	s := figures.Series{5, 1, 4, 2, 3, 10, 9, 8, 7, 6}
	for q, want := range map[float64]float64{0: 1, .1: 1, .5: 5, .9: 9, .91: 10, .99: 10, 1: 10} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if s[0] != 5 {
		t.Error("the sample was sorted in place")
	}
	if s.Max() != 10 || s.Mean() != 5.5 {
		t.Errorf("max %v, mean %v", s.Max(), s.Mean())
	}
	for what, v := range map[string]float64{"quantile": figures.Series{}.Quantile(.5), "mean": figures.Series{}.Mean()} {
		if !math.IsNaN(v) {
			t.Errorf("%s of nothing is %v", what, v)
		}
	}
	if s := figures.Seconds(1500*time.Millisecond, time.Second); !slices.Equal(s, figures.Series{1.5, 1}) {
		t.Errorf("seconds %v", s)
	}
}

// sample is a run with everything.
func sample() *figures.Run {
	r := &figures.Run{
		When: time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), Commit: "abc1234", Pods: []int{100}, Rounds: 2, Single: 3, Idle: 2 * time.Minute,
		Machine: figures.Machine{Cores: 2, Kernel: "6.18", Runtime: "containerd 2.4.2", Cgroup: "cgroup v1", Busy: .03},
		Requests: map[string]map[string]map[string]float64{
			figures.Sextant: {figures.PodRequests: {"patch pods/status": 2, "create serviceaccounts/token": 1}, figures.EndRequests: {"delete pods": 1}},
		},
		Budget: []figures.Stage{{Name: "in all", Times: figures.Series{.2, .3}}},
	}
	r.Add(figures.Floor, figures.Create, .16, .17, .18)
	r.Add(figures.Same, figures.Create, .18)
	r.Add(figures.Reference, figures.Create, .5, .56, .6)
	r.Add(figures.Sextant, figures.Create, .2, .23, .9)
	r.Add(figures.Floor, figures.Of(figures.Up, 100), 9)
	r.Add(figures.Reference, figures.Of(figures.Up, 100), 22, 24)
	r.Add(figures.Sextant, figures.Of(figures.Up, 100), 12, 14)
	r.Add(figures.Floor, figures.Of(figures.Down, 100), 10)
	r.Add(figures.Reference, figures.Of(figures.Down, 100), 20)
	r.Add(figures.Sextant, figures.Of(figures.Down, 100), 15)
	r.Add(figures.Reference, figures.Of(figures.IdleAgent, 100), 6.5)
	r.Add(figures.Sextant, figures.Of(figures.IdleAgent, 100), .8)
	r.Add(figures.Sextant, figures.Of(figures.Memory, 100), 118)
	r.Add(figures.Sextant, figures.PartOf(figures.Of(figures.Memory, 100), "podworker"), 20)
	r.Add(figures.Reference, figures.PartOf(figures.Recovery, "kubelet"), 2, 2.1, 2.2)
	r.Add(figures.Sextant, figures.PartOf(figures.Recovery, "bus"), .4, .5, .6)
	return r
}

func TestTable(t *testing.T) {
	table := sample().Table()
	// How wide the columns are is the table's own business.
	narrow := regexp.MustCompile(" +").ReplaceAllString(table, " ")
	for _, want := range []string{
		"\ncreate to Ready, one at a time, p50 0.170 s 0.180 s 0.560 s 0.230 s 0.200 to 0.900 s 0.41 1.35 <= 0.252 s (1.4 x same) met\n",
		"\ncreate to Ready, one at a time, p99 0.180 s 0.180 s 0.600 s 0.900 s 0.200 to 0.900 s 1.50 5.00\n",
		"\ndelete 100 at once to all gone 10.0 s - 20.0 s 15.0 s 0.75 1.50 <= 11.0 s (1.1 x floor) missed\n",
		"\nCPU of the agent, 100 pods idle - - 6.50 % 0.80 % 0.12 - <= 0.70 % missed\n",
		"\ndelete to gone, one at a time, p50 - - - - - -\n",
		"\n sextant podworker 20.0\n",
		"\n reference kubelet 2.10\n sextant bus 0.50\n",
		"\nAPI requests per pod started, sextant\n create serviceaccounts/token 1.00, patch pods/status 2.00\n",
		"\nAPI requests per pod deleted, sextant\n delete pods 1.00\n",
		"\n 200.0 300.0 in all\n",
	} {
		if !strings.Contains(narrow, want) {
			t.Errorf("the table lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(table)
	}
}

func TestTableOfOneAgent(t *testing.T) {
	r := &figures.Run{Pods: []int{100}}
	r.Add(figures.Sextant, figures.Of(figures.Up, 100), 3)
	if table := r.Table(); !strings.Contains(table, "3.00 s") || strings.Contains(table, "met") || strings.Contains(table, "missed") {
		t.Errorf("without a floor nothing is met or missed:\n%s", table)
	}
}

func TestRowsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range figures.Rows([]int{100, 240}) {
		if seen[row.Key] || seen[row.Label] {
			t.Errorf("%s, %q: twice", row.Key, row.Label)
		}
		seen[row.Key], seen[row.Label] = true, true
	}
}

func TestChart(t *testing.T) {
	chart := sample().Chart()
	rects := 0
	for d := xml.NewDecoder(strings.NewReader(chart)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("no XML: %v\n%s", err, chart)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects++
		}
	}
	// The ground, four of the legend, and a bar for each value.
	bars := 0
	for _, values := range sample().Entry().Values {
		bars += len(values)
	}
	if rects != bars+5 {
		t.Errorf("%d bars, want %d", rects-5, bars)
	}
}

func TestHistory(t *testing.T) {
	e := sample().Entry()
	if e.Values[figures.Sextant]["create.p50"] != .23 || e.Values[figures.Floor]["up.100"] != 9 || e.Commit != "abc1234" {
		t.Errorf("entry %+v", e)
	}
	if _, ok := e.Values[figures.Floor]["idle.agent.100"]; ok {
		t.Error("what was not measured is in the history")
	}
	all, err := figures.ReadHistory([]byte("{\"commit\":\"a\"}\n\n{\"commit\":\"b\"}\n"))
	if err != nil || len(all) != 2 || all[1].Commit != "b" {
		t.Errorf("read %v, %v", all, err)
	}
	if _, err := figures.ReadHistory([]byte("{}\n{")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that is cut off: %v", err)
	}
}

func TestWorse(t *testing.T) {
	entry := func(cores int, sextant, reference float64) figures.Entry {
		e := figures.Entry{Commit: "old", Machine: figures.Machine{Cores: cores, Kernel: "6.18"}, Values: map[string]map[string]float64{
			figures.Sextant: {"create.p50": sextant},
		}}
		if reference > 0 {
			e.Values[figures.Reference] = map[string]float64{"create.p50": reference}
		}
		return e
	}
	for _, tt := range []struct {
		name        string
		before, now figures.Entry
		worse       bool
	}{
		{"the same", entry(2, .3, .6), entry(2, .3, .6), false},
		{"a slower machine", entry(2, .3, .6), entry(2, .6, 1.2), false},
		{"slower than the kubelet by more", entry(2, .3, .6), entry(2, .45, .6), true},
		{"faster", entry(2, .3, .6), entry(2, .2, .6), false},
		{"within the part", entry(2, .3, .6), entry(2, .35, .6), false},
		{"within the noise", entry(2, .03, .6), entry(2, .06, .6), false},
		{"no kubelet, machines alike", entry(2, .3, 0), entry(2, .5, 0), true},
		{"no kubelet, machines differ", entry(8, .3, 0), entry(2, .5, 0), false},
		{"kubelet in one of them only", entry(2, .3, 0), entry(2, .5, .6), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if list := figures.Worse(tt.before, tt.now, .2); (len(list) > 0) != tt.worse {
				t.Errorf("worse: %q", list)
			}
		})
	}
	of := func(n int, v float64) figures.Entry {
		return figures.Entry{Pods: []int{n}, Values: map[string]map[string]float64{figures.Sextant: {figures.Of(figures.Up, n): v}}}
	}
	if list := figures.Worse(of(100, 1), of(8, 100), .2); len(list) > 0 {
		t.Errorf("bursts of different size were compared: %q", list)
	}
	if list := figures.Worse(of(8, 1), of(8, 100), .2); len(list) != 1 {
		t.Errorf("bursts of the same size: %q", list)
	}
}
