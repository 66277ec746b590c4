// SPDX-License-Identifier: Apache-2.0

package prober_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// commandTakes is how long a command of the runtime takes, as of runc on an idle machine.
const commandTakes = 50 * time.Millisecond

// timed is the way to a runtime whose commands take their time; it remembers when each
// was asked for.
type timed struct {
	grpc.ClientConnInterface
	mu    sync.Mutex
	calls map[string][]time.Time // by container
}

func (r *timed) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	now := time.Now()
	if exec, ok := args.(*runtimeapi.ExecSyncRequest); ok {
		r.mu.Lock()
		r.calls[exec.GetContainerId()] = append(r.calls[exec.GetContainerId()], now)
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(commandTakes):
		}
	}
	return r.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// lateness is how late each run of a probe was that was due by a time, with a period
// from its container's start on: from when it was due to the first run after that.
func lateness(started time.Time, period time.Duration, until time.Time, runs []time.Time) (late []time.Duration) {
	for due := started; due.Before(until); due = due.Add(period) {
		after := until
		if i := slices.IndexFunc(runs, func(at time.Time) bool { return !at.Before(due) }); i >= 0 {
			after = runs[i]
		}
		late = append(late, after.Sub(due))
	}
	return late
}

func TestLateness(t *testing.T) {
	start := time.Unix(1700000000, 0)
	at := func(millis ...int) (all []time.Time) {
		for _, ms := range millis {
			all = append(all, start.Add(time.Duration(ms)*time.Millisecond))
		}
		return all
	}
	for _, tt := range []struct {
		name string
		runs []time.Time
		want []int // milliseconds
	}{
		{"on time", at(0, 1000, 2000, 3000), []int{0, 0, 0, 0}},
		{"each a little late", at(10, 1020, 2030, 3040), []int{10, 20, 30, 40}},
		{"at half the rate", at(0, 2000), []int{0, 1000, 0, 1000}},
		{"all half a period late", at(500, 1500, 2500, 3500), []int{500, 500, 500, 500}},
		{"never", nil, []int{4000, 3000, 2000, 1000}},
	} {
		var got []int
		for _, late := range lateness(start, time.Second, start.Add(4*time.Second), tt.runs) {
			got = append(got, int(late.Milliseconds()))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: late by %v ms, want %v", tt.name, got, tt.want)
		}
	}
}

// BenchmarkExecLateness: 200 pods, each with the same command for liveness and
// readiness, every second, in a runtime that takes 50 ms for it. How late a run begins
// after it was due, one that is left out counting until the next; and how far the
// commands for a pod and a second are from one.
func BenchmarkExecLateness(b *testing.B) {
	const pods, seconds = 200, 20
	for b.Loop() {
		r := newRig(b)
		r.stop()
		runtime := &timed{ClientConnInterface: r.cri.Conn(b), calls: map[string][]time.Time{}}
		r.runtime = runtime
		r.start()
		probe := &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
			PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
		}
		containers := make([]string, pods)
		for i := range pods {
			containers[i] = r.container()
			r.want(strconv.Itoa(i), func(c *v1.Container) { c.LivenessProbe, c.ReadinessProbe = probe, probe })
		}
		started := map[string]time.Time{}
		for i, id := range containers {
			started[id] = time.Now()
			r.runs(strconv.Itoa(i), id, 0)
		}
		<-time.After(seconds*time.Second - 500*time.Millisecond) // between two runs
		until := time.Now()
		runtime.mu.Lock()
		var late []time.Duration
		commands, due := 0, 0
		for id, since := range started {
			late = append(late, lateness(since, time.Second, until.Add(-time.Second), runtime.calls[id])...)
			commands += len(runtime.calls[id])
			due += int(until.Sub(since)/time.Second) + 1
		}
		runtime.mu.Unlock()
		slices.Sort(late)
		rate := float64(commands) / float64(due)
		b.ReportMetric(float64(late[len(late)/2])/1e6, "p50-ms-late")
		b.ReportMetric(float64(late[len(late)*99/100])/1e6, "p99-ms-late")
		b.ReportMetric(rate, "execs/pod/s")
		b.ReportMetric(math.Abs(rate-1), "execs/pod/s-off-1")
	}
}
