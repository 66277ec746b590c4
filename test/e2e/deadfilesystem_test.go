// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/stallfs"
)

var (
	stallPods   = flag.Int("stall-pods", 50, "TestDeadFileSystem: pods that stay; one in ten is on the file system")
	stallRounds = flag.Int("stall-rounds", 20, "TestDeadFileSystem: rounds in which the file system answers, and as many in which it does not")
	stallStarts = flag.Int("stall-starts", 10, "TestDeadFileSystem: pods that come and go in a round")
)

// stallMost is how much longer the slowest hundredth may take while another pod's
// file system does not answer.
const stallMost = 1.10

// TestDeadFileSystem has a file system under one pod in ten that answers and stops
// answering by turns. Meanwhile other pods come and go, one at a time, and what that
// takes is compared; in each round one pod more wants the file system, and somebody
// asks how full volumes are. In the end it does not answer, and every service is
// killed in turn. It fails when starts or ends are for certain slower than they may
// be; on a machine that has much else to do, or after less than ten rounds, nothing
// is certain.
func TestDeadFileSystem(t *testing.T) {
	e := oneNode(t)
	dead := stallfs.Mount(t)
	folder := filepath.Join(dead.Dir, "folder")
	kinds := []corev1.HostPathType{corev1.HostPathDirectory, corev1.HostPathUnset}
	var names []string
	for i := range *stallPods {
		pod := e.podWithScratch(fmt.Sprintf("stays-%d", i))
		if i%10 == 0 {
			pod = e.podOn(pod.Name, folder, kinds[i/10%2])
		}
		e.create(pod)
		names = append(names, pod.Name)
	}
	for _, name := range names {
		e.awaitRunning(name, usual)
	}
	e.startAndEnd(e.podWithScratch("warm"))
	before, began := e.state(names), time.Now()
	starts, ends := map[bool][]figures.Series{}, map[bool][]figures.Series{}
	for i := range *stallRounds {
		for _, stalled := range []bool{i%2 == 0, i%2 == 1} { // neither is always the first
			s, d := e.comeAndGo(fmt.Sprintf("round-%d-%v", i, stalled), dead, folder, stalled)
			starts[stalled], ends[stalled] = append(starts[stalled], s), append(ends[stalled], d)
		}
	}
	for what, took := range map[string]map[bool][]figures.Series{"create to Ready": starts, "delete to gone": ends} {
		e.notSlower(what, took)
	}
	calm := e.undisturbed()
	dead.Stall()
	for _, s := range e.n.services() {
		serving, runs := e.killOne(s, calm)
		t.Logf("kill -9 %-10s beside it: all services serve after %5.2f s, a new pod runs after %5.2f s", s, serving.Seconds(), runs.Seconds())
	}
	e.same("a dead file system", names, before, e.state(names))
	e.flips("a dead file system", names, began)
	dead.Go()
}

// comeAndGo is a round: pods come and go while the file system answers or not.
func (e *env) comeAndGo(name string, dead *stallfs.FS, folder string, stalled bool) (starts, ends figures.Series) {
	e.Helper()
	if stalled {
		dead.Stall()
	}
	wants := e.podOn(name+"-wants", folder, corev1.HostPathDirectory)
	e.create(wants)
	for i := range *stallStarts {
		if i == *stallStarts/2 {
			if _, err := e.n.summary(e.Context()); err != nil {
				e.Errorf("%s: summary: %v", name, err)
			}
		}
		start, end := e.startAndEnd(e.podWithScratch(fmt.Sprintf("%s-%d", name, i)))
		starts, ends = append(starts, start.Seconds()), append(ends, end.Seconds())
	}
	dead.Go()
	e.awaitRunning(wants.Name, usual)
	e.delete(wants.Name, 1)
	e.awaitGone(wants.Name, usual)
	return starts, ends
}

// notSlower prints a comparison, and fails when it is for certain worse than allowed.
func (e *env) notSlower(what string, took map[bool][]figures.Series) {
	e.Helper()
	for _, stalled := range []bool{false, true} {
		var all figures.Series
		for _, s := range took[stalled] {
			all = append(all, s...)
		}
		which := "answers"
		if stalled {
			which = "stalls"
		}
		e.Logf("%s while the file system %-7s: p50 %4.0f ms, p90 %4.0f ms, p99 %4.0f ms, most %4.0f ms of %d", what, which,
			1000*all.Quantile(.5), 1000*all.Quantile(.9), 1000*all.Quantile(.99), 1000*all.Max(), len(all))
	}
	for _, q := range []float64{.5, .9, .99} {
		r := figures.QuantileRatio(took[true], took[false], q)
		e.Logf("%s: p%.0f %.2f times (95 %%: %.2f to %.2f)", what, 100*q, r.Estimate, r.Low, r.High)
		switch enough := *stallRounds >= 10; {
		case q != .99:
		case enough && r.Low > stallMost:
			e.Errorf("%s: p99 is more than %.2f times", what, stallMost)
		case enough && r.High > stallMost:
			e.Errorf("%s: whether p99 stays within %.2f times is not decided: the machine is too busy, or there were too few rounds", what, stallMost)
		case !enough:
			e.Logf("%s: too few rounds to say whether p99 stays within %.2f times", what, stallMost)
		}
	}
}
