// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/load"
)

const (
	// soon bounds the random moment of a kill.
	soon = 1200 * time.Millisecond
	// atPoint is how long one waits for the kills at a fault point.
	atPoint = 2 * time.Minute
)

// TestDeviceKills kills services of a node at random moments and at fault points, and has
// the node start anew, while pods with devices, claims, CPUs and memory come and go and
// plugins and the driver have troubles of their own. No running container loses what it has,
// no device and no CPU is given twice, every pod for which there is room gets what it asks
// for, and nothing stays prepared that no pod holds. At the end the node loses its power:
// the pods that stay have the same devices again.
func TestDeviceKills(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d has the same victims and faults again", *seed)
	random := rand.New(rand.NewPCG(*seed, 1))
	began := time.Now()
	since := func() float64 { return time.Since(began).Seconds() }
	c := start(t, random)
	c.churn.keepers()
	t.Logf("the pods that stay are Ready after %.1f s", since())
	c.churn.begin(*seed)
	s := &series{crowd: c, troubles: &troubles{crowd: c, now: map[string]*trouble{}}}
	s.random()
	s.atPoints()
	c.churn.killing.Store(false)
	s.troubles.over()
	s.restart("")
	t.Logf("the last kill was after %.1f s", since())
	s.note("afterwards", "all", s.afterwards())
	s.note("loss of power", "the node", s.powerCut())
	s.note("the end", "all", s.finish())
	text := harness.The(t).Header(t) + fmt.Sprintf("%d kills, %d starts of the node, seed %d; %d pods with devices, claims and CPUs stayed, %d came and went, in %.0f s\n\n%s",
		s.killed, s.starts, *seed, keepers, c.churn.went.Load(), since(), judge.Table(s.rounds, judge.DeviceKinds()))
	fmt.Printf("\n%s\n", text)
	if *out != "" {
		if err := os.WriteFile(*out, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// series are the rounds of a run.
type series struct {
	*crowd
	troubles       *troubles
	rounds         []judge.Round
	killed, starts int
}

// note keeps what a round found.
func (s *series) note(fault, to string, found []judge.Finding) {
	s.T.Helper()
	for _, f := range found {
		s.T.Errorf("%s, %s %s: %s: %s", time.Now().Format(time.TimeOnly), fault, to, f.Kind, f.What)
	}
	s.rounds = append(s.rounds, judge.Round{Fault: fault, To: to, Findings: found})
	s.mood.count.Add(1)
	s.Kills()
}

// random kills services, pairs of them, and all of them at once.
func (s *series) random() {
	s.T.Helper()
	victims := [][]house.Service{
		{house.Resource}, {house.Resource}, {house.PodWorker}, {house.Resource, house.PodWorker}, {house.Resource, house.Status},
		{house.Resource, house.Config}, {house.PodWorker, house.Volume},
	}
	for _, service := range house.Services() {
		victims = append(victims, []house.Service{service})
	}
	last := map[house.Service]int{}
	for s.killed < *kills {
		trouble := s.troubles.pass(s.crowd.random)
		if s.crowd.random.IntN(25) == 0 {
			s.restart("")
			s.starts++
			s.note("all services start anew", "the node", append(s.truth(), s.Look()...))
			continue
		}
		chosen := victims[s.crowd.random.IntN(len(victims))]
		to := s.kill(chosen, last, time.Duration(s.crowd.random.Int64N(int64(soon))))
		s.killed += len(chosen)
		found := append(s.truth(), s.Look()...)
		if len(found) > 0 {
			s.T.Logf("meanwhile%s", trouble)
		}
		s.note("kill -9", to, found)
	}
	s.troubles.over()
	s.quiet()
}

// quiet waits until what is to be so a while after a kill is.
func (s *series) quiet() {
	s.T.Helper()
	var found []judge.Finding
	if err := s.serving(); err != nil {
		found = append(found, judge.Finding{Kind: judge.Stuck, What: err.Error()})
	}
	if err := s.apart(); err != nil {
		found = append(found, judge.Finding{Kind: judge.Taken, What: err.Error()})
	}
	s.note("nothing", "all", append(found, s.Look()...))
}

// kill waits for victims to be there and then a moment, and kills them at once.
func (s *series) kill(victims []house.Service, last map[house.Service]int, moment time.Duration) (to string) {
	s.T.Helper()
	processes := map[house.Service]int{}
	for _, v := range victims {
		if to != "" {
			to += "+"
		}
		to += string(v)
		harness.Eventually(s.T, load.Patience, "a process of "+string(v), func(context.Context) error {
			if processes[v] = s.Node.Process(v); processes[v] == 0 || processes[v] == last[v] {
				return errors.New("there is none") // or one that is ending
			}
			return nil
		})
	}
	harness.Rest(s.T, moment)
	for v, pid := range processes {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			s.T.Errorf("kill -9 %s: %v", v, err)
		}
		last[v] = pid
	}
	return to
}

// atPoints has services killed at fault points, each in every life, while pods go on to
// come and go.
func (s *series) atPoints() {
	s.T.Helper()
	chosen := faultPoints
	if *points > 0 {
		chosen = nil
		for _, i := range s.crowd.random.Perm(len(faultPoints))[:*points] {
			chosen = append(chosen, faultPoints[i])
		}
	}
	for _, point := range chosen {
		before := s.ended()
		s.restart(fmt.Sprintf("%s=%d*off->kill", point.name, point.off))
		s.starts++
		killed := 0
		var found []judge.Finding
		began := time.Now()
		for killed < *perHit && time.Since(began) < atPoint {
			found = append(append(found, s.truth()...), s.Look()...)
			killed = s.ended() - before
			s.mood.count.Add(1) // pods that stay for some rounds go on
			s.Kills()
			harness.Rest(s.T, 200*time.Millisecond)
		}
		s.killed += killed
		if killed == 0 {
			s.T.Errorf("no service was killed at %s", point.name)
		}
		for range max(1, killed) - 1 {
			s.rounds = append(s.rounds, judge.Round{Fault: "kill at " + point.name, To: "who passes"})
		}
		s.note("kill at "+point.name, "who passes", append(append(found, s.truth()...), s.Look()...))
	}
	s.restart("")
	s.starts++
	s.quiet()
}

// afterwards is when the pods that come and go are gone.
func (s *series) afterwards() (found []judge.Finding) {
	s.T.Helper()
	if err := s.serving(); err != nil {
		found = append(found, judge.Finding{Kind: judge.Stuck, What: err.Error()})
	}
	if err := s.churn.settled(); err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	if err := s.apart(); err != nil {
		found = append(found, judge.Finding{Kind: judge.Taken, What: err.Error()})
	}
	return append(append(found, s.truth()...), s.Look()...)
}

// powerCut takes the node's power away; the pods that stay start again with what they had.
func (s *series) powerCut() (found []judge.Finding) {
	s.T.Helper()
	had := map[string]has{}
	all, err := s.running(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	for _, h := range all {
		had[h.pod] = h
	}
	s.Keep(nil)
	s.Node.PowerCut(s.T)
	s.Node.Runtime.Restart(s.T)
	s.starts++
	s.Kills()
	s.Node.Up(s.T)
	err = harness.Within(s.T.Context(), load.Patience, func(ctx context.Context) error {
		now, err := s.running(ctx)
		if err == nil && len(now) != len(had) {
			err = fmt.Errorf("%d containers run", len(now))
		}
		for _, h := range now {
			if was := had[h.pod]; err == nil && (was.uid != h.uid || fmt.Sprint(was.devices) != fmt.Sprint(h.devices)) {
				found = []judge.Finding{{Kind: judge.Taken, What: fmt.Sprintf("pod %s had %v and has %v", h.pod, was.devices, h.devices)}}
			}
		}
		return err
	})
	if err != nil {
		found = append(found, judge.Finding{Kind: judge.Stuck, What: err.Error()})
	}
	if err := s.churn.left(keepers + 1); err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	return found
}

// finish has the pods that stayed go as well: nothing is prepared, and no pod holds anything.
func (s *series) finish() (found []judge.Finding) {
	s.T.Helper()
	found = s.End()
	if err := s.churn.left(0); err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	if err := harness.Within(s.T.Context(), load.Patience, func(ctx context.Context) error {
		listed, err := s.listed(ctx)
		if err == nil && len(listed) > 0 {
			err = fmt.Errorf("the PodResources API has %v", listed)
		}
		return err
	}); err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	return found
}
