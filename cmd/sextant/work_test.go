// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Allocations are counted, of which the race detector makes more (make work).

package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/fakecri"
)

var updateWork = flag.Bool("update-work", false, "TestWork: write what is measured, with room for what varies, to testdata/work.txt")

const workTable = "testdata/work.txt"

// together are how many pods start, and end, at once: the bounds per pod are the same
// for all, so work that grows with the number of pods on the node exceeds them.
var together = []int{20, 60, 120}

// exactly is what happens once a pod, whatever the machine does.
var exactly = []string{
	"api DELETE pods", "api POST serviceaccounts", "resource Admit", "volume Declare", "config Token",
	"runtime RunPodSandbox", "runtime CreateContainer", "runtime StartContainer", "runtime ImageStatus",
	"runtime StopContainer", "runtime RemoveContainer",
}

// withoutRoom is what happens as often as was seen at most, and less often where changes come
// together: two events of the API server's watch may be one change.
var withoutRoom = []string{"changes of config.pods"}

// TestWork counts what one start and one end of an ordinary pod give each process to do,
// and compares it with testdata/work.txt. Counts do not depend on how fast the machine
// is, but on what comes together: several changes may be read, written or listed at one
// time. What varies for that has an upper bound: of many pods the most that was seen and
// three fifths, of one alone, where one more reading is a large part, twice that.
func TestWork(t *testing.T) {
	n := startNode(t)
	n.begin([]string{"first"}) // it pays for what all pods share
	n.end([]string{"first"})
	var rows [4]tally // starts and ends, alone and together
	for i := range rows {
		rows[i] = tally{}
	}
	for round, size := range append([]int{1, 1, 1}, together...) {
		names := make([]string, size)
		for i := range names {
			names[i] = fmt.Sprintf("p%d-%d", round, i)
		}
		column := 0
		if size > 1 {
			column = 2
		}
		before := n.rest()
		n.begin(names)
		between := n.rest()
		rows[column].most(between, before, size)
		n.end(names)
		rows[column+1].most(n.rest(), between, size)
	}
	if *updateWork {
		if err := os.WriteFile(workTable, []byte(workText(rows)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	bounds := readWork(t)
	for _, what := range slices.Sorted(maps.Keys(rows[3])) {
		for i, when := range []string{"one start", "one end", "a start of many", "an end of many"} {
			got, want := rows[i][what], "0"
			if len(bounds[what]) == len(rows) {
				want = bounds[what][i]
			}
			bound, err := strconv.ParseFloat(strings.TrimPrefix(want, "="), 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", workTable, what, err)
			}
			if exact := strings.HasPrefix(want, "="); exact && got != bound || got > bound {
				t.Errorf("%s: %s: %.2f, want %s", when, what, got, want)
			}
		}
	}
}

// tally is counts by service and what is counted.
type tally map[string]float64

// most notes what was done between two looks, per pod, where it is more than before.
func (t tally) most(after, before tally, pods int) {
	for what, count := range after {
		if strings.HasSuffix(what, "KiB allocated") && pods != slices.Max(together) {
			count = before[what] // the looks themselves count too much
		}
		t[what] = max(t[what], (count-before[what])/float64(pods))
	}
}

// aboutNode is what happens with time, and not with pods.
var aboutNode = []string{"leases", "nodes", "csinodes", "resourceslices", "runtime Status", "runtime ListImages", "runtime ImageFsInfo",
	"changes of status.node", "changes of pleg.runtime", "changes of resource.node", "changes of podworker.node", "Hello", "Check"}

// aboutPods reports whether the items of a feed are about pods. The others are pulled now
// and then, for safety's sake, which takes as long as it takes.
func aboutPods(feed string) bool {
	return strings.HasSuffix(feed, ".pods") || strings.HasSuffix(feed, ".statuses") || feed == house.PodWorkerEvents.Name
}

// rest waits until nothing is counted any more and returns the counts so far.
func (n *wholeNode) rest() tally {
	n.Helper()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	quiet := func(a, b tally) bool {
		for what, count := range b {
			if a[what] != count && !strings.HasSuffix(what, "allocated") {
				return false
			}
		}
		return true
	}
	last := n.work()
	for range 100 {
		<-tick.C
		now := n.work()
		if quiet(last, now) {
			return now
		}
		last = now
	}
	n.Fatal("the node does not come to rest")
	return nil
}

// work are the counts of a node so far.
func (n *wholeNode) work() tally {
	n.Helper()
	counts := tally{}
	for _, s := range house.Services() {
		for name, family := range n.families(s) {
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				count := m.GetCounter().GetValue()
				switch name {
				case "sextant_feed_changes_total":
					counts["changes of "+labels["feed"]] += count
				case "sextant_feed_pulls_total", "sextant_feed_decodings_total", "sextant_feed_bytes_total":
					if !aboutPods(labels["feed"]) {
						continue
					}
					counts[string(s)+" "+strings.TrimSuffix(strings.TrimPrefix(name, "sextant_feed_"), "_total")] += count
				case "sextant_state_file_commits_total":
					counts[string(s)+" commits"] += count
				case "sextant_podworker_steps_total":
					counts["podworker rounds"] += count
				case "go_memstats_alloc_bytes_total":
					counts[string(s)+" KiB allocated"] += count / 1024
				case "grpc_server_handled_total":
					if strings.HasPrefix(labels["grpc_service"], "sextant.") && labels["grpc_method"] != "Changes" {
						counts[string(s)+" "+labels["grpc_method"]] += count
					}
				}
			}
		}
	}
	n.api.mu.Lock()
	for what, count := range n.api.requests {
		counts["api "+what] = float64(count)
	}
	n.api.mu.Unlock()
	for _, c := range n.runtime.Calls(fakecri.Match{}) {
		counts["runtime "+path.Base(c.Method)]++
	}
	maps.DeleteFunc(counts, func(what string, _ float64) bool {
		return slices.ContainsFunc(aboutNode, func(s string) bool { return strings.HasSuffix(what, s) })
	})
	return counts
}

// workText is the table with room for what varies.
func workText(rows [4]tally) string {
	var b strings.Builder
	b.WriteString(`# What one start and one end of a pod gives a node to do, at most: TestWork. Alone, and per pod of many at once.
# =N is exact. The rest varies with what comes together: changes that are pulled, lists that are asked for and
# records that are written at one time count once.
#
`)
	fmt.Fprintf(&b, "%-34s %9s %9s %9s %9s\n", "# what", "start", "end", "of many", "of many")
	for _, what := range slices.Sorted(maps.Keys(rows[3])) {
		if !slices.ContainsFunc(rows[:], func(row tally) bool { return row[what] > 0 }) {
			continue
		}
		line := fmt.Sprintf("%-34s", what)
		for i, row := range rows {
			v := row[what]
			var text string
			switch {
			case slices.Contains(exactly, what) && v == math.Trunc(v):
				text = fmt.Sprintf("=%g", v)
			case slices.Contains(withoutRoom, what):
				text = fmt.Sprintf("%g", math.Ceil(v))
			case v == 0:
				text = "0"
			case i < 2:
				text = fmt.Sprintf("%g", math.Ceil(v)+max(3, math.Ceil(v)))
			default:
				text = fmt.Sprintf("%.1f", v*1.6+0.4)
			}
			line += fmt.Sprintf(" %9s", text)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// readWork reads the table.
func readWork(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(workTable)
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if at := len(fields) - 4; at > 0 && fields[0] != "#" {
			bounds[strings.Join(fields[:at], " ")] = fields[at:]
		}
	}
	return bounds
}
