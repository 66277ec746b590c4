// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// promise is one thing that is promised.
type promise struct {
	// about is what part of a pod's life it is about.
	about string
	what  string
	// metric is the unit that a benchmark reports it in, and atMost its bound. Without
	// one the test holds it, and fails if it is not kept.
	metric string
	atMost float64
	// ratchet, unless 0, is what the metric may not exceed, whatever the promise is: some
	// three times what was measured last. It is how a promise that is not met, or met by
	// far, is kept from getting worse.
	ratchet float64
	// unmet says why the promise is known not to be kept yet; empty for one that is.
	unmet string
}

// show is a test or benchmark that shows promises.
type show struct {
	dir  string // of the module; empty for the main one
	args []string
	// tests must have run and passed, subtests included; none for a benchmark.
	tests    []string
	promises []promise
}

const e2e = "test/e2e"

func bench(dir, pkg, name string, promises ...promise) show {
	return show{dir: dir, args: []string{pkg, "-run=^$", "-bench=^Benchmark" + name + "$", "-benchtime=1x"}, promises: promises}
}

// test shows promises by tests of one name, or by several of which names are separated
// by spaces.
func test(dir, pkg, names string, promises ...promise) show {
	tests := strings.Fields(names)
	return show{dir: dir, args: []string{pkg, "-v", "-run=^(" + strings.Join(tests, "|") + ")$"}, tests: tests, promises: promises}
}

// with adds arguments to the call of the test.
func (s show) with(args ...string) show {
	s.args = append(s.args, args...)
	return s
}

// outlive are the subtests of commands whose time is over, on both containerds.
func outlive() show {
	s := show{dir: e2e, args: []string{".", "-v", "-run=^TestNodes$/^behaviour$/^(debian-nobus|v2-bus)$/^commands_that_outlive_their_time$"}}
	for _, kind := range []string{"debian-nobus", "v2-bus"} {
		s.tests = append(s.tests, "TestNodes/behaviour/"+kind+"/commands_that_outlive_their_time")
	}
	s.promises = []promise{{about: "probes", what: "a command whose time is over leaves no process, containerd 1.6 and 2.x"}}
	return s
}

// shows are all of them. Kills are few unless full.
func shows(full bool) []show {
	load, size := []string{"-pairs=0", "-churn=0", "-rounds=1", "-ready=20", "-unready=4", "-starting=2"}, "once under 26 pods"
	if full {
		load, size = []string{"-pairs=0", "-churn=0", "-rounds=20", "-ready=100", "-unready=20", "-starting=10"}, "20 times under 130 pods"
	}
	kills := func(what string, args ...string) show {
		return test(e2e, "./killmatrix", "TestKills",
			promise{about: "kills", what: fmt.Sprintf("kill -9 of each part %s%s: no flip, no restart, no late probe", size, what)}).with(append(load, args...)...)
	}
	all := []show{
		test("", "./services/status", "TestWritesOfAStart",
			promise{about: "status", what: "an ordinary start of a pod: at most 3 writes, no read"}),
		bench("", "./services/status", "ReadyToAPI",
			promise{about: "status", what: "250 pods ready within 5 s, 20 ms per API request: verdict to the API, p99 in ms", metric: "p99-ms", atMost: 500, ratchet: 100},
			promise{about: "status", what: "the same: writes per pod that becomes ready", metric: "writes/ready", atMost: 1},
			promise{about: "status", what: "the same: reads of pods", metric: "GETs"}),
		test("", "./services/status/internal/report", "TestReplayAfterTenMinutes",
			promise{about: "status", what: "250 pods changed while the API server was away for 10 min: written within 10 s"}),
		test("", "./services/status", "TestReplay",
			promise{about: "status", what: "what happened without the API server is written after it, through a kill"}),
		bench(e2e, "./bench", "FakeRuntime",
			promise{about: "starts", what: "pod with ConfigMap and token, runtime of no time: bind to Running at the API, p50 in ms", metric: "p50-ms-bind-to-running", atMost: 30, ratchet: 200, unmet: shared},
			promise{about: "starts", what: "the same, p99 in ms", metric: "p99-ms-bind-to-running", atMost: 100, ratchet: 450, unmet: shared}),
		bench(e2e, "./bench", "Overhead",
			promise{about: "starts", what: "containerd: bind to Running beyond the runtime's calls, p99 in ms", metric: "p99-ms-beyond-the-runtime", atMost: 100, ratchet: 300, unmet: shared}),
		test("", "./services/podworker/internal/actuate", "TestStalledPullHoldsNobodyUp",
			promise{about: "pulls", what: "a stalled pull holds no other up for more than 1 s"}),
		test("", "./services/podworker/internal/pulls", "TestAPullIsToldOfEveryFiveSeconds",
			promise{about: "pulls", what: "how far a pull is: every 5 s"}),
		bench("", "./services/prober", "ExecLateness",
			promise{about: "probes", what: "200 pods, exec probes of 50 ms each second: late, p99 in ms", metric: "p99-ms-late", atMost: 100},
			promise{about: "probes", what: "identical liveness and readiness: commands per pod and second, off one", metric: "execs/pod/s-off-1", atMost: 0.01}),
		outlive(),
		test("", "./services/prober/internal/schedule", "TestFiveHundredPods",
			promise{about: "probes", what: "500 pods, period 60 s: first probe at most 100 ms late, no burst, also after a restart"}),
		test("", "./services/podworker", "TestEditedStaticPod",
			promise{about: "static pods", what: "a static pod edited 100 times, API server there and away: never two copies, the last runs, within two minutes of the node's clock"}),
		test("", "./services/status", "TestMirrorPod TestMirrorAfterTheAPIServerIsBack TestEndedStaticPodBeginsAnew",
			promise{about: "static pods", what: "its mirror is of the last version, also when the API server was away"}),
		test("", "./services/status/internal/report", "TestMirrorAfterTheAPIServerIsBack",
			promise{about: "static pods", what: "the mirror is there within 5 s of the API server's return"}),
		kills(""),
		kills(", without the API server", "-cut"),
	}
	if full {
		all = append(all,
			test(e2e, "./volumekills", "TestVolumeKills",
				promise{about: "volumes", what: "200 kills under pods with every kind of volume: none unmounted, nothing left after 2 min"}).with("-kills=200"),
			test(e2e, ".", "TestDeadFileSystem",
				promise{about: "volumes", what: "a file system that stops answering under 5 of 50 pods: starts and ends of the others within 10 %"}))
	}
	return append(all, show{promises: []promise{
		{about: "size", what: "1000 pods, 20 a minute come and go for an hour: no NotReady, starts within 5 s, one core", unmet: "not measured"},
		{about: "faults", what: "a deadlock, a panic, 100 MB a minute leaked in each service: back within the watchdog's time and 2 s", unmet: "not measured"},
		{about: "probes", what: "three times more work than cores for 5 min: opt-in holds liveness kills back", unmet: "not measured"},
	}})
}

// shared is why the promises of starts are not kept.
const shared = "on two cores, which etcd and the API server share"
