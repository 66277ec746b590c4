// SPDX-License-Identifier: Apache-2.0

package volumekills_test

import (
	"context"
	"errors"
	"flag"
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

var (
	volumeKills = flag.Int("kills", 8, "TestVolumeKills: kills of volume and podworker; from 50 on the API server is stopped twice as well")
	volumeOut   = flag.String("volume-out", "", "TestVolumeKills: file for the table")
)

// Sizes of TestVolumeKills.
const (
	keepers = 3 // pods that stay
	lanes   = 3 // in each, pods come and go one after another

	// soon bounds the random moment of a kill after the victim's start.
	soon = 1200 * time.Millisecond
	// outage is how many kills an API server that is stopped misses.
	outage = 5
	// orphaned is how long something may be left of a pod that is gone.
	orphaned = 2 * time.Minute
)

// TestVolumeKills kills volume, podworker or both, at random moments, under pods
// with a volume of every kind that stay, and pods of the same kind that come and
// go; while the API server answers, is slow, is silent, refuses, or is stopped. No
// mount of a pod that stays may go, nothing that a volume holds may change, and of
// pods that went nothing may be left after two minutes.
func TestVolumeKills(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d has the same victims and weather again", *seed)
	random := rand.New(rand.NewPCG(*seed, 1))
	began := time.Now()
	since := func() time.Duration { return time.Since(began) }
	cp := harness.StartControlPlane(t)
	gate := cp.Gate(t)
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Gate: gate})
	t.Logf("the node is up after %.1f s", since().Seconds())
	s := startStorage(t, load.Watch(t, cp, n))
	s.keepers(keepers)
	t.Logf("the pods that stay are Ready after %.1f s", since().Seconds())
	s.killing.Store(true)
	s.comeAndGo(*seed)
	victims := [][]house.Service{{house.Volume}, {house.PodWorker}, {house.Volume, house.PodWorker}}
	// All is well half of the time.
	weathers := []harness.Weather{harness.Fair, harness.Fair, harness.Fair, harness.Slow, harness.Silent, harness.Refusing}
	const stopped = "is stopped"
	var all []judge.Round
	stops := 0
	for i := range *volumeKills {
		w := weathers[random.IntN(len(weathers))]
		if *volumeKills >= 50 && (i == *volumeKills/3 || i == *volumeKills*2/3) {
			s.Pause()
			cp.Stop(t)
			stops = outage
		}
		if stops > 0 {
			w = stopped
		} else {
			gate.Set(w)
		}
		r := s.killed(victims[random.IntN(len(victims))], time.Duration(random.Int64N(int64(soon))))
		r.Fault = "kill -9, API server " + string(w)
		for _, f := range r.Findings {
			t.Errorf("kill %d, of %s, API server %s: %s: %s", i, r.To, w, f.Kind, f.What)
		}
		all = append(all, r)
		if stops > 0 {
			if stops--; stops == 0 {
				cp.Resume(t)
				s.Resume()
			}
		}
	}
	if stops > 0 {
		cp.Resume(t)
		s.Resume()
	}
	gate.Set(harness.Fair)
	s.killing.Store(false)
	s.Kills() // the weather is fair again
	calm := time.Now()
	t.Logf("the last kill was after %.1f s", since().Seconds())
	r := judge.Round{Fault: "afterwards", To: "all"}
	found, clean := s.settled()
	left := time.Now()
	r.Findings = append(r.Findings, found...)
	r.Findings = append(r.Findings, s.finish()...)
	for _, f := range r.Findings {
		t.Errorf("afterwards: %s: %s", f.Kind, f.What)
	}
	all = append(all, r)
	text := harness.The(t).Header(t) + fmt.Sprintf("%d kills, seed %d; %d pods with %d mounts each stayed, %d pods came and went; of those nothing was left %.1f s after the last kill, %.1f s after the last was gone\n\n%s",
		*volumeKills, *seed, keepers, len(s.mounts)/keepers, s.went.Load(), left.Sub(calm).Seconds(), clean.Seconds(), judge.Table(all, judge.VolumeKinds()))
	fmt.Printf("\n%s\n", text)
	if *volumeOut != "" {
		if err := os.WriteFile(*volumeOut, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// killed waits for the victims to be there and then a moment, kills them at once,
// and looks.
func (s *storage) killed(victims []house.Service, moment time.Duration) judge.Round {
	s.T.Helper()
	r := judge.Round{}
	pids := map[house.Service]int{}
	for _, v := range victims {
		if r.To != "" {
			r.To += "+"
		}
		r.To += string(v)
		harness.Eventually(s.T, load.Patience, "a process of "+string(v), func(context.Context) error {
			if pids[v] = s.Node.Process(v); pids[v] == 0 || pids[v] == s.killedLast[v] {
				return errors.New("there is none") // or one that is ending
			}
			return nil
		})
	}
	harness.Rest(s.T, moment)
	for v, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			s.T.Errorf("kill -9 %s: %v", v, err)
		}
		s.killedLast[v] = pid
	}
	s.Kills()
	r.Findings = append(s.whole(), s.Look()...)
	return r
}

// settled waits until all services serve, the pods that come and go are gone, and
// nothing is left of them, and says how long the last took.
func (s *storage) settled() (found []judge.Finding, took time.Duration) {
	s.T.Helper()
	if err := harness.Within(s.T.Context(), orphaned, s.Node.Serving); err != nil {
		s.T.Errorf("after the last kill: %v", err)
	}
	s.Churners.Wait()
	gone := time.Now()
	err := harness.Within(s.T.Context(), orphaned, func(context.Context) error { return s.left(s.uids, s.stages) })
	took = time.Since(gone)
	if err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	found = append(found, s.whole()...)
	return append(found, s.Look()...), took
}

// finish has the pods that stayed go as well; then nothing is left of any, and what
// is not a pod's own is as it was.
func (s *storage) finish() (found []judge.Finding) {
	s.T.Helper()
	found = s.End()
	if err := harness.Within(s.T.Context(), orphaned, func(context.Context) error { return s.left(nil, nil) }); err != nil {
		found = append(found, judge.Finding{Kind: judge.Orphan, What: err.Error()})
	}
	return append(found, s.sources()...)
}
