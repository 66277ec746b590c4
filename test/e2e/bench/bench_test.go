// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	agents   = flag.String("agents", "reference,sextant", "whose nodes to measure, separated by commas")
	single   = flag.Int("single", 15, "how many pods are started one at a time, in each round")
	pods     = flag.String("pods", "100,240", "how many pods are started at once, one number after the other, the largest last")
	rounds   = flag.Int("rounds", 3, "how often: bare calls and each agent in turn")
	idle     = flag.Duration("idle", 2*time.Minute, "how long idle processes are watched, without and with pods")
	settle   = flag.Duration("settle", 15*time.Second, "how long a node is left alone before it is watched")
	recovery = flag.Int("recovery", 3, "how often each part is killed")
	budget   = flag.Int("budget", 15, "how many pod starts of Sextant's are parted into stages")
	out      = flag.String("out", "", "where bench.json, bench.svg and bench.txt go")
	history  = flag.String("history", "../../../docs/bench/history.jsonl", "earlier runs")
	record   = flag.Bool("record", false, "add this run to the history")
	worse    = flag.Float64("worse", 0, "fail when Sextant is worse than in the last run of the history by more than this part, such as 0.3")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		short(map[string]string{
			"single": "4", "pods": "8,16", "rounds": "1", "idle": "5s", "settle": "2s", "recovery": "1", "budget": "3",
			"fake": "8,16", "real": "4,8", "churn": "5s", "scrapes": "2",
		})
	}
	harness.Main(m)
}

// short sets the flags that were not given.
func short(values map[string]string) {
	flag.Visit(func(f *flag.Flag) { delete(values, f.Name) })
	for name, value := range values {
		if err := flag.Set(name, value); err != nil {
			panic(err) // a flag of this file
		}
	}
}

func TestBench(t *testing.T) {
	run := &figures.Run{When: time.Now(), Commit: harness.The(t).Commit(), Pods: sizes(t, "pods", *pods), Rounds: *rounds, Single: *single, Idle: *idle}
	cp := harness.StartControlPlane(t)
	audit := cp.Audit(t)
	rt := harness.StartRuntime(t, harness.V2)
	run.Machine = machine(t, rt)

	// As kubeadm configures a node, but for the room.
	options := harness.NodeOptions{Runtime: rt, ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.ClusterDNS, c.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
		c.MaxPods = int32(2*slices.Max(run.Pods) + 10)
	}}
	var same bareRequest
	kept := t.TempDir()
	if !t.Run("model", func(t *testing.T) { same = sameAs(t, options, kept) }) {
		return
	}
	for round := range *rounds {
		t.Run(fmt.Sprintf("%s-%d", figures.Floor, round), func(t *testing.T) { floor(t, run, figures.Floor, rt, least, round) })
		t.Run(fmt.Sprintf("%s-%d", figures.Same, round), func(t *testing.T) { floor(t, run, figures.Same, rt, same, round) })
		for name := range strings.SplitSeq(*agents, ",") {
			t.Run(fmt.Sprintf("%s-%d", name, round), func(t *testing.T) {
				o := options
				o.Name = fmt.Sprintf("bench-%s-%d", name, round)
				measure(t, run, name, o, audit, round)
			})
		}
		if t.Failed() {
			return
		}
	}
	report(t, run)
}

// sizes are the numbers of pods of a flag.
func sizes(t *testing.T, name, list string) (all []int) {
	t.Helper()
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-%s: %q is no number of pods", name, text)
		}
		all = append(all, n)
	}
	return all
}

// report prints the run, keeps it, and compares it with the last one.
func report(t *testing.T, run *figures.Run) {
	t.Helper()
	table := run.Table()
	fmt.Printf("\n%s\n", table)
	before, err := os.ReadFile(*history)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	entries, err := figures.ReadHistory(before)
	if err != nil {
		t.Fatalf("%s: %v", *history, err)
	}
	if len(entries) > 0 {
		last := entries[len(entries)-1]
		part := *worse
		if part == 0 {
			part = .2
		}
		list := figures.Worse(last, run.Entry(), part)
		fmt.Printf("beside the last run of the history (%s): %d rows are worse by more than %.0f %%\n", last.Commit, len(list), 100*part)
		for _, line := range list {
			fmt.Println("  " + line)
		}
		if *worse > 0 && len(list) > 0 {
			t.Errorf("worse than before:\n%s", strings.Join(list, "\n"))
		}
	}
	if *out != "" {
		b, err := json.MarshalIndent(run, "", "  ")
		err = errors.Join(err, os.MkdirAll(*out, 0o755),
			os.WriteFile(filepath.Join(*out, "bench.json"), append(b, '\n'), 0o644),
			os.WriteFile(filepath.Join(*out, "bench.svg"), []byte(run.Chart()), 0o644),
			os.WriteFile(filepath.Join(*out, "bench.txt"), []byte(harness.The(t).Header(t)+table), 0o644))
		if err != nil {
			t.Error(err)
		}
	}
	if *record && !t.Failed() {
		b, err := json.Marshal(run.Entry())
		err = errors.Join(err, os.MkdirAll(filepath.Dir(*history), 0o755),
			os.WriteFile(*history, append(append(before, b...), '\n'), 0o644))
		if err != nil {
			t.Error(err)
		}
	}
}

func machine(t *testing.T, rt *harness.Runtime) figures.Machine {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	m := figures.Machine{
		Cores: runtime.NumCPU(), Kernel: unix.ByteSliceToString(name.Release[:]),
		Runtime: "containerd " + rt.Version().String(), Cgroup: "cgroup v1",
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroup = "cgroup v2"
	}
	m.Busy = busy(t, 5*time.Second)
	return m
}

// busy is the part of all cores that is in use while nothing is asked of them.
func busy(t *testing.T, span time.Duration) float64 {
	t.Helper()
	work := func() (used, all float64) {
		b, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(b), "\n")
		for i, f := range strings.Fields(first)[1:] {
			var n float64
			if _, err := fmt.Sscan(f, &n); err != nil {
				t.Fatal(err)
			}
			if i > 7 {
				break // guests are in user already
			}
			if all += n; i != 3 && i != 4 { // idle, iowait
				used += n
			}
		}
		return used, all
	}
	usedBefore, allBefore := work()
	rest(t, span)
	used, all := work()
	return (used - usedBefore) / max(all-allBefore, 1)
}

// rest lets a time go by in which something is measured.
func rest(t *testing.T, span time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(span):
	}
}
