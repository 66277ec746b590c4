package main

// promise is one thing that is promised.
type promise struct {
	// about is what part of a pod's life it is about.
	about string
	what  string
	// metric is the unit that a benchmark reports it in, and atMost its bound. Without
	// one the test holds it, and fails if it is not kept.
	metric string
	atMost float64
}

// show is a test or benchmark that shows promises.
type show struct {
	dir      string // of the module; empty for the main one
	args     []string
	promises []promise
}

const e2e = "test/e2e"

func bench(dir, pkg, name string, promises ...promise) show {
	return show{dir, []string{pkg, "-run=^$", "-bench=^Benchmark" + name + "$", "-benchtime=1x"}, promises}
}

func test(dir, pkg, pattern string, promises ...promise) show {
	return show{dir, []string{pkg, "-run=" + pattern}, promises}
}

// shows are all of them. Kills are few unless full.
func shows(full bool) []show {
	kills := []string{"./killmatrix", "-run=^TestKills$", "-pairs=0", "-churn=0"}
	if full {
		kills = append(kills, "-rounds=20", "-ready=100", "-unready=20", "-starting=10")
	} else {
		kills = append(kills, "-rounds=1", "-ready=20", "-unready=4", "-starting=2")
	}
	return []show{
		test("", "./services/status", "^TestWritesOfAStart$",
			promise{about: "status", what: "an ordinary start of a pod: at most 3 writes, no read"}),
		bench("", "./services/status", "ReadyToAPI",
			promise{"status", "250 pods ready within 5 s, 20 ms per API request: verdict to the API, p99 in ms", "p99-ms", 500},
			promise{"status", "the same: writes per pod that becomes ready", "writes/ready", 3},
			promise{"status", "the same: reads of pods", "GETs", 0}),
		test("", "./services/status/internal/report", "^TestReplayAfterTenMinutes$",
			promise{about: "status", what: "250 pods changed while the API server was away for 10 min: told within 10 s"}),
		test("", "./services/status", "^TestReplay$",
			promise{about: "status", what: "what happened without the API server is told after it, through a kill"}),
		bench(e2e, "./bench", "FakeRuntime",
			promise{"starts", "pod with ConfigMap and token, runtime of no time: bind to Running at the API, p50 in ms", "p50-ms-bind-to-running", 30},
			promise{"starts", "the same, p99 in ms", "p99-ms-bind-to-running", 100}),
		bench(e2e, "./bench", "Overhead",
			promise{"starts", "containerd: bind to Running beyond the runtime's calls, p99 in ms", "p99-ms-beyond-the-runtime", 100}),
		test("", "./services/podworker/internal/actuate", "^TestStalledPullHoldsNobodyUp$",
			promise{about: "pulls", what: "a stalled pull holds no other up for more than 1 s"}),
		test("", "./services/podworker/internal/pulls", ".",
			promise{about: "pulls", what: "a pull that goes on is told of every 5 s"}),
		bench("", "./services/prober", "ExecLateness",
			promise{"probes", "200 pods, exec probes each second: late, p99 in ms", "p99-ms-late", 100},
			promise{"probes", "identical liveness and readiness: commands per pod and second", "execs/pod/s", 1.01}),
		{e2e, []string{".", "-run=TestNodes/behaviour/v2-bus/commands", "-kinds=v2-bus"}, []promise{
			{about: "probes", what: "a command whose time is over leaves no process"}}},
		test("", "./services/prober/internal/schedule", "^TestFiveHundredPods$",
			promise{about: "probes", what: "500 pods, period 60 s: first probe at most 100 ms late, no burst, also after a restart"}),
		test("", "./services/podworker", "^TestEditedStaticPod$",
			promise{about: "static pods", what: "a static pod edited 100 times, API server there and away: never two copies, the last runs"}),
		test("", "./services/status", "^(TestMirrorPod|TestMirrorAfterTheAPIServerIsBack|TestEndedStaticPodBeginsAnew)$",
			promise{about: "static pods", what: "its mirror is of the last version within 5 s of the API server's return"}),
		{e2e, kills, []promise{{about: "kills", what: "kill -9 of each part under pods: no flip, no restart, no late probe"}}},
		{e2e, append(kills, "-cut"), []promise{{about: "kills", what: "the same without the API server"}}},
	}
}
