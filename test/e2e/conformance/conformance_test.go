// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/conformance/report"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	agents     = flag.String("agents", "reference,sextant", "whose nodes to test, separated by commas")
	program    = flag.String("program", "e2e", "which of upstream's programs: e2e, for any cluster, or e2e_node, for one node")
	focus      = flag.String("focus", `\[sig-node\].*\[NodeConformance\]`, "which of upstream's tests to run: a regular expression")
	leaveOut   = flag.String("leave-out", `\[Flaky\]|\[Slow\]|\[Serial\]|\[Disruptive\]`, "which of them to leave out")
	fast       = flag.Bool("fast", false, "run the few tests that fast.txt names, instead of -focus and -leave-out")
	procs      = flag.Int("procs", 4, "how many of them to run at once")
	attempts   = flag.Int("attempts", 1, "how often to try a test that fails; the table says where it took more than one")
	late       = flag.Int("late", 0, "how many tests may need more than one attempt, with -attempts")
	ledger     = flag.String("ledger", "", "file to which tests that needed more than one attempt are appended")
	repeats    = flag.Int("repeats", 3, "how often to try a test again, on both nodes, that one passed and the other did not")
	asKubelet  = flag.Bool("as-kubelet", false, "e2e_node starts, restarts and configures the agent itself, as its kubelet, on a machine that systemd runs")
	agentFlags = flag.String("kubelet-flags", "", "with -as-kubelet: more flags of the agent, separated by spaces")
	gates      = flag.String("gates", "", "with -as-kubelet: feature gates of the agent and of the API server, as in A=true,B=false")
	kubeConfig = flag.String("kubeconfig", "", "test the nodes of this cluster as they are, instead of a lab's with -agents")
)

// cluster is what the table calls the nodes of -kubeconfig.
const cluster = "cluster"

func TestMain(m *testing.M) {
	flag.Parse()
	if !*asKubelet {
		harness.Main(m)
	}
	*program = "e2e_node"
	harness.MainBooted(m, harness.Boot{Provide: devicePlugin, Disk: diskSize})
}

// TestConformance fails for each of upstream's tests that the reference kubelet
// passes and Sextant does not. What only one of them passes is tried again on both,
// -repeats times: Sextant has to pass it as often as the reference does then. Alone,
// an agent must pass them all.
func TestConformance(t *testing.T) {
	results := map[string]map[string]report.Result{}
	names := strings.Split(*agents, ",")
	if *kubeConfig != "" {
		names = []string{cluster}
	}
	for _, agent := range names {
		t.Run(agent, func(t *testing.T) {
			on := start(t, agent)
			results[agent] = on.suite(t, agent, choice())
		})
	}
	if t.Failed() {
		return
	}
	if again := report.Differing(results); *repeats > 0 && len(again) > 0 {
		for _, agent := range names {
			t.Run(agent+" again", func(t *testing.T) {
				on := start(t, agent)
				for n := range *repeats {
					report.Repeat(results[agent], on.suite(t, fmt.Sprintf("%s-%d", agent, n+1), named(again)))
				}
			})
		}
	}
	fmt.Print(harness.The(t).Header(t), report.Table(names, results), report.Skipped(names, results))
	judgeLate(t, results["sextant"])
	for _, spec := range report.Worse(results, "reference", "sextant") {
		t.Errorf("the reference passes, Sextant does not: %s\n%s", spec, results["sextant"][spec].Message)
	}
	if len(names) > 1 {
		return
	}
	for _, spec := range report.Failed(results[names[0]]) {
		t.Errorf("%s fails: %s\n%s", names[0], spec, results[names[0]][spec].Message)
	}
	if *fast {
		for _, spec := range chosen() {
			if results[names[0]][spec].State != "passed" {
				t.Errorf("fast.txt names a test that was not run to its end: %s", spec)
			}
		}
	}
}

// judgeLate counts the tests that passed, but not at once, and writes them down.
func judgeLate(t *testing.T, results map[string]report.Result) {
	again := report.NotAtOnce(results)
	if len(again) > *late {
		t.Errorf("%d tests passed only when they were tried again, at most %d may: %q", len(again), *late, again)
	}
	if *ledger == "" || len(again) == 0 {
		return
	}
	f, err := os.OpenFile(*ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range again {
		if _, err := fmt.Fprintln(f, time.Now().UTC().Format(time.RFC3339), "conformance", spec); err != nil {
			t.Error(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// choice is what -focus and -leave-out, or -fast, say to ginkgo.
func choice() []string {
	if !*fast {
		return []string{"--focus=" + *focus, "--skip=" + *leaveOut}
	}
	return named(chosen())
}

// named chooses tests by their full texts.
func named(specs []string) []string {
	var args []string
	for _, spec := range specs {
		args = append(args, "--focus="+regexp.QuoteMeta(spec)+"$")
	}
	return args
}
