// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
)

// TestKills is TestLives with a Sextant whose services are killed one after the other, in a random
// order, as long as there are pods. The kubelet is let live.
func TestKills(t *testing.T) {
	compareLives(t, lives{make: (*maker).killable, beside: kills}, "testdata/lives.txt", "testdata/kills.txt")
}

// killable is a random pod whose probes do not fail at their first run alone: prober may not live
// to hear of that one.
func (m *maker) killable(name string) (*corev1.Pod, []fault) {
	p, faults := m.life(name)
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if probe != nil && probe.Exec != nil && strings.Contains(strings.Join(probe.Exec.Command, " "), "touch") {
					probe.ProbeHandler = shell("true")
				}
			}
		}
	}
	return p, faults
}

// killPause is the mean time from one kill to the next.
const killPause = 1500 * time.Millisecond

// kills ends the services of a Sextant as kill -9 does.
func kills(t *testing.T, s *side) (stop func()) {
	t.Helper()
	if s.sextant == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(t.Context())
	random := rand.New(rand.NewPCG(*seed, 0))
	killed := 0
	var killing sync.WaitGroup
	killing.Go(func() {
		for {
			all := house.Services()
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, service := range all {
				select {
				case <-ctx.Done():
					return
				case <-time.After(killPause/2 + time.Duration(random.Int64N(int64(killPause)))):
				}
				pid := s.sextant.Process(service)
				if pid == 0 {
					t.Errorf("%s has not come back since its last kill", service)
					continue
				}
				if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
					t.Errorf("kill -9 %s: %v", service, err)
				}
				killed++
				t.Logf("%s kill -9 %s", time.Now().UTC().Format(time.StampMilli), service)
			}
		}
	})
	return func() {
		cancel()
		killing.Wait()
		t.Logf("%d kills", killed)
		if killed == 0 {
			t.Error("nothing was killed")
		}
	}
}
