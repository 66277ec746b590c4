// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sextant-node/sextant/test/e2e/bench/figures"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// floorParallel is how many pods are started beside each other: more are no
// faster on few cores.
const floorParallel = 10

// floor measures what the runtime takes by itself: the three calls that a pod
// of one container cannot do without.
func floor(t *testing.T, run *figures.Run, subject string, rt *harness.Runtime, request bareRequest, round int) {
	logs := t.TempDir()
	name := func(of string, i int) string { return fmt.Sprintf("%s-%s-%d-%d", subject, of, round, i) }
	one := func(uid string) (up, down time.Duration) {
		pod := request.of(t, rt, logs, uid)
		began := time.Now()
		id := pod.make(t, rt)
		up = time.Since(began)
		end(t, rt, id)
		return up, time.Since(began) - up
	}
	for i := range *single {
		up, down := one(name("single", i))
		run.Add(subject, figures.Create, up.Seconds())
		run.Add(subject, figures.Delete, down.Seconds())
	}
	for _, n := range run.Pods {
		asked, ids := make([]barePod, n), make([]string, n)
		for i := range asked {
			asked[i] = request.of(t, rt, logs, name(fmt.Sprint(n), i))
		}
		began := time.Now()
		parallel(n, func(i int) { ids[i] = asked[i].make(t, rt) })
		run.Add(subject, figures.Of(figures.Up, n), time.Since(began).Seconds())
		if run.Last(round) && subject == figures.Floor {
			rest(t, *settle)
			run.Add(subject, figures.Of(figures.IdleRuntime, n), idleRuntime(t, rt))
		}
		began = time.Now()
		parallel(n, func(i int) { end(t, rt, ids[i]) })
		run.Add(subject, figures.Of(figures.Down, n), time.Since(began).Seconds())
		if t.Failed() {
			t.FailNow()
		}
	}
	for i := range *single {
		up, _ := one(name("then", i))
		run.Add(subject, figures.After, up.Seconds())
	}
}

// idleRuntime is what the runtime uses while nobody asks it for anything, in
// percent of one core.
func idleRuntime(t *testing.T, rt *harness.Runtime) float64 {
	t.Helper()
	processes, began := rt.Processes(), time.Now()
	before := cpu(t, processes)
	rest(t, *idle)
	return 100 * (cpu(t, processes) - before).Seconds() / time.Since(began).Seconds()
}

// parallel does something n times, floorParallel of them at once.
func parallel(n int, do func(i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range min(floorParallel, n) {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}
