// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func target(kind schedule.Kind, id string, started time.Time, edit func(*v1.Probe)) schedule.Target {
	spec := v1.Probe{PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	if edit != nil {
		edit(&spec)
	}
	return schedule.Target{Key: schedule.Key{UID: "u", Container: "c", Kind: kind}, ContainerID: id, Started: started, Spec: spec}
}

// run lets time pass in steps of a second, answers every probe, and returns
// the seconds at which each kind was launched.
func run(s *schedule.Schedule, from, to int, answer func(second int, t schedule.Target) schedule.Result) map[schedule.Kind][]int {
	launched := map[schedule.Kind][]int{}
	for second := from; second < to; second++ {
		now := epoch.Add(time.Duration(second) * time.Second)
		for _, t := range s.Due(now) {
			launched[t.Kind] = append(launched[t.Kind], second)
			s.Done(t, answer(second, t), "", now)
		}
	}
	return launched
}

func always(r schedule.Result) func(int, schedule.Target) schedule.Result {
	return func(int, schedule.Target) schedule.Result { return r }
}

func result(s *schedule.Schedule, kind schedule.Kind) schedule.Result {
	return s.Verdicts("u")[schedule.Key{UID: "u", Container: "c", Kind: kind}].Result
}

func equalInts(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: launched at %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: launched at %v, want %v", what, got, want)
		}
	}
}

func TestRhythm(t *testing.T) {
	s := schedule.New(epoch)
	readiness := target(schedule.Readiness, "1", epoch, func(p *v1.Probe) { p.InitialDelaySeconds = 5 })
	s.Update("u", []schedule.Target{readiness}, epoch)
	equalInts(t, "readiness", run(s, 0, 30, always(schedule.Success))[schedule.Readiness], 5, 15, 25)
}

func TestThresholds(t *testing.T) {
	s := schedule.New(epoch)
	s.Update("u", []schedule.Target{target(schedule.Readiness, "1", epoch, func(p *v1.Probe) { p.SuccessThreshold = 2 })}, epoch)
	run(s, 0, 1, always(schedule.Success))
	if got := result(s, schedule.Readiness); got != schedule.Unknown {
		t.Errorf("after one of two successes: %v", got)
	}
	run(s, 1, 11, always(schedule.Success))
	if got := result(s, schedule.Readiness); got != schedule.Success {
		t.Errorf("after two successes: %v", got)
	}
	run(s, 11, 31, always(schedule.Failure)) // 20, 30
	if got := result(s, schedule.Readiness); got != schedule.Success {
		t.Errorf("after two of three failures: %v", got)
	}
	run(s, 31, 41, always(schedule.Unknown)) // decides nothing, and does not break the run
	run(s, 41, 51, always(schedule.Failure))
	if got := result(s, schedule.Readiness); got != schedule.Failure {
		t.Errorf("after three failures: %v", got)
	}
}

func TestLivenessIsHeldUntilTheNextContainer(t *testing.T) {
	s := schedule.New(epoch)
	s.Update("u", []schedule.Target{target(schedule.Liveness, "1", epoch, nil)}, epoch)
	equalInts(t, "first container", run(s, 0, 100, always(schedule.Failure))[schedule.Liveness], 0, 10, 20)
	if got := result(s, schedule.Liveness); got != schedule.Failure {
		t.Fatalf("verdict %v", got)
	}
	next := epoch.Add(100 * time.Second)
	s.Update("u", []schedule.Target{target(schedule.Liveness, "2", next, nil)}, next)
	if got := result(s, schedule.Liveness); got != schedule.Unknown {
		t.Errorf("the new container inherited %v", got)
	}
	equalInts(t, "second container", run(s, 100, 111, always(schedule.Success))[schedule.Liveness], 100, 110)
}

func TestLateResultDoesNotJudgeTheSuccessor(t *testing.T) {
	s := schedule.New(epoch)
	first := target(schedule.Liveness, "1", epoch, func(p *v1.Probe) { p.FailureThreshold = 1 })
	s.Update("u", []schedule.Target{first}, epoch)
	launched := s.Due(epoch)
	second := target(schedule.Liveness, "2", epoch, func(p *v1.Probe) { p.FailureThreshold = 1 })
	s.Update("u", []schedule.Target{second}, epoch)
	if s.Done(launched[0], schedule.Failure, "", epoch) || result(s, schedule.Liveness) != schedule.Unknown {
		t.Error("a late result judged the successor")
	}
	s.Due(epoch) // the successor is being probed itself when the result comes
	if s.Done(launched[0], schedule.Failure, "", epoch) || result(s, schedule.Liveness) != schedule.Unknown {
		t.Error("a late result judged the successor while that was being probed")
	}
}

func TestStartupHoldsTheOthersBack(t *testing.T) {
	targets := []schedule.Target{
		target(schedule.Startup, "1", epoch, nil), target(schedule.Readiness, "1", epoch, nil), target(schedule.Liveness, "1", epoch, nil),
	}
	startupHoldsTheOthersBack(t, targets)
	slices.Reverse(targets) // whatever the order in which they are told
	startupHoldsTheOthersBack(t, targets)
}

func startupHoldsTheOthersBack(t *testing.T, targets []schedule.Target) {
	t.Helper()
	s := schedule.New(epoch)
	s.Update("u", targets, epoch)
	launched := run(s, 0, 25, func(second int, t schedule.Target) schedule.Result {
		if t.Kind == schedule.Startup && second < 20 {
			return schedule.Failure
		}
		return schedule.Success
	})
	equalInts(t, "startup", launched[schedule.Startup], 0, 10, 20)
	equalInts(t, "readiness", launched[schedule.Readiness], 21)
	equalInts(t, "liveness", launched[schedule.Liveness], 21)
}

func TestRestoredVerdictsStayAndCauseNoBurst(t *testing.T) {
	s := schedule.New(epoch)
	for _, kind := range []schedule.Kind{schedule.Liveness, schedule.Readiness} {
		s.Restore(schedule.Key{UID: "u", Container: "c", Kind: kind}, schedule.Verdict{ContainerID: "1", Result: schedule.Success, Since: epoch})
	}
	now := epoch.Add(time.Hour)
	s.Update("u", []schedule.Target{target(schedule.Liveness, "1", epoch, nil), target(schedule.Readiness, "2", epoch, nil)}, now)
	if got := result(s, schedule.Liveness); got != schedule.Success {
		t.Errorf("same container: %v, want the restored verdict", got)
	}
	if got := result(s, schedule.Readiness); got != schedule.Unknown {
		t.Errorf("other container: %v, want none", got)
	}
	starts := map[int]int{}
	spread := schedule.New(epoch)
	for i := range 500 {
		key := schedule.Key{UID: string(rune('a'+i%26)) + time.Duration(i).String(), Container: "c", Kind: schedule.Liveness}
		spread.Restore(key, schedule.Verdict{ContainerID: "1", Result: schedule.Success})
		one := target(schedule.Liveness, "1", epoch, nil)
		one.Key = key
		spread.Update(key.UID, []schedule.Target{one}, now)
	}
	for tenth := range 100 {
		starts[tenth] = len(spread.Due(now.Add(time.Duration(tenth+1) * 100 * time.Millisecond)))
	}
	for tenth, n := range starts {
		if n > 10 { // twice the mean
			t.Errorf("%d probes in tenth %d", n, tenth)
		}
	}
}

// TestFiveHundredPods: with a period of a minute each first probe runs when its
// delay is over, and neither then nor after a restart do the probes come in
// bursts: in no second more than twice the mean.
func TestFiveHundredPods(t *testing.T) {
	const pods, period, delay = 500, 60, 5
	restarted, s := schedule.New(epoch), schedule.New(epoch)
	for i := range pods {
		one := target(schedule.Readiness, "1", epoch.Add(time.Duration(i)*period*time.Second/pods), func(p *v1.Probe) {
			p.PeriodSeconds, p.InitialDelaySeconds = period, delay
		})
		one.UID = strconv.Itoa(i)
		s.Update(one.UID, []schedule.Target{one}, one.Started)
		later := one
		later.Started = epoch.Add(-time.Hour)
		restarted.Restore(later.Key, schedule.Verdict{ContainerID: "1", Result: schedule.Success})
		restarted.Update(later.UID, []schedule.Target{later}, epoch)
	}
	for name, plan := range map[string]*schedule.Schedule{"new pods": s, "restarted": restarted} {
		perSecond := map[int]int{}
		for tick := range (2*period + delay) * 10 {
			now := epoch.Add(time.Duration(tick) * 100 * time.Millisecond)
			for _, one := range plan.Due(now) {
				perSecond[tick/10]++
				plan.Done(one, schedule.Success, "", now)
				first := one.Started.Add(delay * time.Second)
				if late := now.Sub(first); name == "new pods" && late < period*time.Second && late > 100*time.Millisecond {
					t.Errorf("pod %s: its first probe %v late", one.UID, late)
				}
			}
		}
		for second, n := range perSecond {
			if n > 2*pods/period+1 {
				t.Errorf("%s: %d probes in second %d", name, n, second)
			}
		}
	}
}

func TestAHeldVerdictStaysHeldAfterARestart(t *testing.T) {
	s := schedule.New(epoch)
	s.Restore(schedule.Key{UID: "u", Container: "c", Kind: schedule.Liveness}, schedule.Verdict{ContainerID: "1", Result: schedule.Failure})
	s.Update("u", []schedule.Target{target(schedule.Liveness, "1", epoch, nil)}, epoch)
	equalInts(t, "liveness", run(s, 0, 60, always(schedule.Success))[schedule.Liveness])
}

func TestTargets(t *testing.T) {
	sidecar := v1.ContainerRestartPolicyAlways
	probe := &v1.Probe{}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", LivenessProbe: probe}, {Name: "side", RestartPolicy: &sidecar, LivenessProbe: probe}},
		Containers:     []v1.Container{{Name: "c", LivenessProbe: probe, ReadinessProbe: probe, StartupProbe: probe}, {Name: "plain"}},
	}}
	running := func(name, id string, attempt uint32, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Id: id, State: state, Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}}
	}
	up, gone := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	record := []*runtimeapi.ContainerStatus{
		running("init", "i", 0, up), running("side", "s", 0, up), running("c", "old", 0, gone), running("c", "new", 1, up), running("plain", "p", 0, up),
	}
	count := func(want int) {
		t.Helper()
		if got := schedule.Targets(p, record); len(got) != want {
			t.Errorf("targets %v, want %d", got, want)
		}
	}
	count(4) // the sidecar's one, c's three
	for _, target := range schedule.Targets(p, record) {
		if target.Container == "c" && target.ContainerID != "new" {
			t.Errorf("%v is not against the newest container", target)
		}
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	count(1) // readiness alone
	p.DeletionTimestamp = nil
	record[3].State = gone
	count(1) // the sidecar alone
}

// FuzzSchedule checks what must hold whatever happens: one probe in flight per
// key, results of strangers change nothing, and no kind runs before its startup
// probe has succeeded.
func FuzzSchedule(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := schedule.New(epoch)
		now := epoch
		flying := map[schedule.Key]schedule.Target{}
		started := map[string]bool{}
		id := "0"
		for range 300 {
			now = now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
			switch r.IntN(4) {
			case 0:
				if r.IntN(4) == 0 {
					id = string(rune('0' + r.IntN(10)))
				}
				var targets []schedule.Target
				for _, kind := range []schedule.Kind{schedule.Startup, schedule.Liveness, schedule.Readiness} {
					targets = append(targets, target(kind, id, now, nil))
				}
				had := s.Verdicts("u")
				s.Update("u", targets, now)
				for key, v := range s.Verdicts("u") {
					if v.ContainerID != id {
						t.Fatalf("verdict of %s after the container became %s", v.ContainerID, id)
					}
					if had[key] != v {
						t.Fatal("an update made a verdict")
					}
				}
				for key, fl := range flying {
					if fl.ContainerID != id {
						delete(flying, key)
					}
				}
			case 1, 2:
				for _, launched := range s.Due(now) {
					if _, twice := flying[launched.Key]; twice {
						t.Fatalf("%v launched twice", launched.Key)
					}
					if launched.Kind != schedule.Startup && !started[launched.ContainerID] && result(s, schedule.Startup) != schedule.Success {
						t.Fatalf("%v before startup", launched.Key)
					}
					flying[launched.Key] = launched
				}
			case 3:
				for key, fl := range flying {
					s.Done(fl, schedule.Result(r.IntN(3)), "", now)
					delete(flying, key)
					break
				}
			}
		}
	})
}

// TestTheClockIsSet: when the next probe is due does not depend on the clock that
// says when a container started.
func TestTheClockIsSet(t *testing.T) {
	delayed := func(p *v1.Probe) { p.InitialDelaySeconds = 5 }
	s := schedule.New(epoch)
	s.Update("u", []schedule.Target{target(schedule.Readiness, "1", epoch.Add(time.Hour), delayed)}, epoch)
	if due, _ := s.Next(); due.Sub(epoch) != 5*time.Second {
		t.Errorf("of a container that starts in an hour the first probe is due after %s, want 5 s", due.Sub(epoch))
	}
	s = schedule.New(epoch)
	now := time.Now() // with a reading of the monotonic clock
	s.Update("u", []schedule.Target{target(schedule.Readiness, "1", now.Round(0), delayed)}, now)
	for range 2 {
		due, _ := s.Next()
		if !strings.Contains(due.String(), " m=") {
			t.Errorf("%s is not by the monotonic clock", due)
		}
		for _, probe := range s.Due(due) {
			s.Done(probe, schedule.Success, "", due)
		}
	}
}

// TestVerdictNamesItsContainer: each verdict carries the id of the container that was
// probed, and one of the former container is none of its successor.
func TestVerdictNamesItsContainer(t *testing.T) {
	s := schedule.New(epoch)
	once := func(p *v1.Probe) { p.FailureThreshold = 1 }
	for i, id := range []string{"1", "2", "3"} {
		now := epoch.Add(time.Duration(i) * time.Minute)
		s.Update("u", []schedule.Target{target(schedule.Liveness, id, now, once), target(schedule.Readiness, id, now, once)}, now)
		if verdicts := s.Verdicts("u"); len(verdicts) != 0 {
			t.Errorf("container %s begins with %v", id, verdicts)
		}
		for _, launched := range s.Due(now) {
			if launched.ContainerID != id {
				t.Errorf("%s is probed, and %s runs", launched.ContainerID, id)
			}
			s.Done(launched, schedule.Failure, "", now)
		}
		verdicts := s.Verdicts("u")
		if len(verdicts) != 2 {
			t.Errorf("verdicts %v", verdicts)
		}
		for key, v := range verdicts {
			if v.ContainerID != id {
				t.Errorf("%v's verdict is of %s, and %s was probed", key.Kind, v.ContainerID, id)
			}
		}
	}
}

// TestOnePodOfMany: what is asked about one pod does not cost more for the others there
// are.
func TestOnePodOfMany(t *testing.T) {
	cost := func(pods int) time.Duration {
		s := schedule.New(epoch)
		targets := func(uid string, id int) []schedule.Target {
			one := target(schedule.Readiness, strconv.Itoa(id), epoch, nil)
			one.UID = uid
			return []schedule.Target{one}
		}
		for i := range pods {
			uid := strconv.Itoa(i)
			s.Update(uid, targets(uid, 0), epoch)
		}
		least := time.Hour
		for round := range 20 {
			began := time.Now()
			for i := range 100 {
				s.Update("7", targets("7", round*100+i), epoch)
				s.Verdicts("7")
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	few, many := cost(10), cost(10_000)
	t.Logf("100 changes beside 10 pods %s, beside 10000 %s", few, many)
	if many > 30*few {
		t.Errorf("100 changes beside 10 pods take %s, beside 10000 %s", few, many)
	}
}

// TestFoundLate: probes of containers that prober is told of late, for pleg has started as
// well, come within a period of prober's start all the same, and not all at once.
func TestFoundLate(t *testing.T) {
	for _, took := range []time.Duration{0, time.Second, 1500 * time.Millisecond} {
		s, now := schedule.New(epoch), epoch.Add(took)
		for i := range 100 {
			one := target(schedule.Liveness, "1", epoch.Add(-time.Hour), func(p *v1.Probe) { p.PeriodSeconds = 2 })
			one.UID = strconv.Itoa(i)
			s.Restore(one.Key, schedule.Verdict{ContainerID: "1", Result: schedule.Success})
			s.Update(one.UID, []schedule.Target{one}, now)
		}
		if n := len(s.Due(now.Add(100 * time.Millisecond))); n > 25 {
			t.Errorf("found after %s: %d of 100 probes come at once", took, n)
		}
		rest := len(s.Due(epoch.Add(2 * time.Second)))
		if left := len(s.Due(epoch.Add(time.Hour))); left > 0 {
			t.Errorf("found after %s: %d probes come later than a period after the start, %d in time", took, left, rest)
		}
	}
}
