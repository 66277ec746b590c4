// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/standin"
)

// The environment of a process that is the service under test.
const (
	runEnv, stateEnv, machineEnv = "SEXTANT_TEST_RESOURCE_RUN", "SEXTANT_TEST_RESOURCE_STATE", "SEXTANT_TEST_RESOURCE_MACHINE"
)

func TestMain(m *testing.M) {
	if os.Getenv(machineEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is such a process: it runs until it is killed.
func serve() error {
	kit, err := service.New(service.Options{
		Service: house.Resource, Log: slog.New(slog.DiscardHandler),
		Paths: house.Paths{Run: os.Getenv(runEnv), State: os.Getenv(stateEnv)},
	})
	if err != nil {
		return err
	}
	root := os.Getenv(machineEnv)
	deps := resource.Deps{Kit: kit, Machine: machine.Host{Root: root}, Now: func() time.Time { return clock(root) }}
	if _, err := resource.New(resource.Config{RootDir: root}, deps); err != nil {
		return err
	}
	return kit.Run(context.Background())
}

// clockFile has the time of a made-up machine, in nanoseconds.
const clockFile = "clock"

// clock is the time of a made-up machine: the test's, once it has set one.
func clock(root string) time.Time {
	text, err := os.ReadFile(filepath.Join(root, clockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Now()
	}
	at, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err = errors.Join(err, bad); err != nil {
		panic(err)
	}
	return time.Unix(0, at)
}

// siege is the service as a process that is killed again and again.
type siege struct {
	*rig
	process *standin.Process
	now     time.Time
}

func newSiege(t *testing.T, lives int) *siege {
	t.Helper()
	usual := standin.Limit
	standin.Limit += time.Duration(lives) * 10 * time.Second
	t.Cleanup(func() { standin.Limit = usual })
	s := &siege{rig: newRig(t, nil)}
	s.configure(nil)
	s.answers()
	s.stop()
	s.live("")
	return s
}

// live starts the service with faults (package fault).
func (s *siege) live(faults string) {
	s.Helper()
	s.process = s.Spawn(runEnv+"="+s.Paths.Run, stateEnv+"="+s.Paths.State, machineEnv+"="+s.machine, fault.Env+"="+faults)
}

// ahead sets the machine's clock, which stands from then on.
func (s *siege) ahead(d time.Duration) {
	s.Helper()
	if s.now.IsZero() {
		s.now = time.Now()
	}
	s.now = s.now.Add(d)
	s.file(clockFile+".next", strconv.FormatInt(s.now.UnixNano(), 10))
	if err := os.Rename(filepath.Join(s.machine, clockFile+".next"), filepath.Join(s.machine, clockFile)); err != nil {
		s.Fatal(err)
	}
}

// killedIn carries a step out in a life with faults, and ends it in one without. It
// reports whether the first was killed; else the step has returned that it is done. What else
// shows that it is done may be seen while the step goes on, which then waits for ever for a
// service that is killed.
func (s *siege) killedIn(faults string, step func() (done bool)) (dies bool) {
	s.Helper()
	s.process.Kill()
	s.live(faults)
	var call sync.WaitGroup
	var done atomic.Bool
	call.Go(func() { done.Store(step()) })
	if dies = s.process.Dies(done.Load); dies {
		s.live("")
	}
	call.Wait()
	return dies
}

// call makes a call of a pod's life. Admit answers in a decision what it cannot do yet.
func (s *siege) call(ctx context.Context, c any) (err error) {
	switch c := c.(type) {
	case *resourcev1.AdmitRequest:
		var resp *resourcev1.AdmitResponse
		if resp, err = s.client.Admit(ctx, c); err == nil && resp.GetDecision() != resourcev1.Decision_DECISION_ADMITTED {
			err = errors.New(decision(resp))
		}
	case *resourcev1.ResizeRequest:
		_, err = s.client.Resize(ctx, c)
	case *resourcev1.SettleRequest:
		_, err = s.client.Settle(ctx, c)
	case *resourcev1.ReleaseRequest:
		_, err = s.client.Release(ctx, c)
	case *resourcev1.UsageRequest:
		_, err = s.client.Usage(ctx, c)
	}
	return err
}

// insist calls until it is answered: the service may be killed at any moment.
func (s *siege) insist(c any) {
	s.Eventually(fmt.Sprintf("%T", c), func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		return s.call(ctx, c) == nil
	})
}

// pod is a pod as the calls take it.
func (s *siege) pod(uid, cpu, memory string, generation int64) []byte {
	s.Helper()
	data, err := sized(uid, cpu, memory, generation).Marshal()
	if err != nil {
		s.Fatal(err)
	}
	return data
}

// limits waits until a pod's cgroup has a limit of memory.
func (s *siege) limits(uid, bytes string) {
	s.Helper()
	name := s.kubepods("burstable", "pod"+uid)
	s.Eventually("the cgroup of "+uid+" has "+bytes, func() bool { return cgrouptest.Exists(s, name) && s.memoryLimit(uid) == bytes })
}

// eachWrite makes the calls of a life again and again, each time with a kill before or after
// another write of the checkpoint, until there is none left to kill at. After each it judges
// a service without faults. It returns how many kills there were.
func (s *siege) eachWrite(life []any, judge func()) (kills int) {
	s.Helper()
	for _, point := range []string{"store.write", "store.written"} {
		for n, dies := 0, true; dies; n++ {
			faults := point + "=kill"
			if n > 0 {
				faults = fmt.Sprintf("%s=%d*off->kill", point, n)
			}
			dies = s.killedIn(faults, func() (done bool) {
				s.insist(&resourcev1.UsageRequest{}) // it knows the node
				for _, c := range life {
					if s.call(s.Context(), c) != nil {
						return false // it was killed; the rest is not wanted any more
					}
				}
				return true
			})
			if dies {
				kills++
			} else { // its fault is still to come
				s.process.Kill()
				s.live("")
			}
			judge()
		}
	}
	return kills
}

// accounted: if a pod has a cgroup, the checkpoint has the pod.
func (s *siege) accounted(uid string) {
	s.Helper()
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually("what the checkpoint has", now.Complete)
	if _, ok := now.Get(uid); !ok && cgrouptest.Exists(s, s.kubepods("burstable", "pod"+uid)) {
		s.Errorf("the cgroup of %s was made before the checkpoint had the pod", uid)
	}
}

// gone waits until nothing of a pod is left. It reads the feed from its beginning: what was
// read before may be of a life that was killed.
func (s *siege) gone(uid string) {
	s.Helper()
	now := standin.Read(s.House, house.ResourcePods)
	s.Eventually(uid+" gone", func() bool { _, ok := now.Get(uid); return !ok && now.Complete() })
	// The reader of the whole test may be behind the one above.
	s.Eventually(uid+" told gone", func() bool { _, ok := s.pods.Get(uid); return !ok })
	if cgrouptest.Exists(s, s.kubepods("burstable", "pod"+uid)) {
		s.Errorf("the cgroup of %s is left", uid)
	}
}

// TestKillAtEachPoint kills the service at each point of a pod's life, and starts it again:
// what was asked for is done once, and the pod beside it keeps its own.
func TestKillAtEachPoint(t *testing.T) {
	s := newSiege(t, 12)
	s.insist(&resourcev1.AdmitRequest{Pod: s.pod("stays", "1", "64Mi", 1)})
	for _, step := range []struct {
		point string
		call  any
		judge func()
	}{
		{"resource.admit", &resourcev1.AdmitRequest{Pod: s.pod("u", "1", "64Mi", 1)}, func() { s.limits("u", "67108864") }},
		{"resource.usage", &resourcev1.UsageRequest{}, func() { s.limits("u", "67108864") }},
		{"resource.resize", &resourcev1.ResizeRequest{Pod: s.pod("u", "2", "32Mi", 2)}, func() {
			s.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 1 && a.GetSettled() == 0 })
			s.limits("u", "67108864") // room for what its containers had
		}},
		{"resource.settle", &resourcev1.SettleRequest{Uid: "u", Allocation: 1}, func() {
			s.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetSettled() == 1 })
			s.limits("u", "33554432")
		}},
		{"resource.grow", &resourcev1.ResizeRequest{Pod: s.pod("u", "1", "128Mi", 3)}, func() {
			s.item("u", func(a *resourcev1.PodAllocation) bool { return a.GetAllocation() == 2 })
			s.limits("u", "134217728")
		}},
		{"resource.release", &resourcev1.ReleaseRequest{Uid: "u"}, func() { s.gone("u") }},
	} {
		t.Run(step.point, func(t *testing.T) {
			s.killedIn(step.point+"=kill", func() bool { s.insist(step.call); return false })
			step.judge()
			s.limits("stays", "67108864")
		})
	}
	s.insist(&resourcev1.ReleaseRequest{Uid: "stays"})
	s.gone("stays")
}

// TestKillAtEachWrite kills the service at each write of its checkpoint while a pod is
// admitted, resized and released. What was begun is known, so that a pod that is not
// wanted any more leaves nothing: a cgroup is of a pod in the checkpoint, and is not only
// found by the release, which takes up what it finds.
func TestKillAtEachWrite(t *testing.T) {
	s := newSiege(t, 30)
	life := []any{
		&resourcev1.AdmitRequest{Pod: s.pod("u", "1", "64Mi", 1)}, &resourcev1.ResizeRequest{Pod: s.pod("u", "2", "32Mi", 2)},
		&resourcev1.SettleRequest{Uid: "u", Allocation: 1}, &resourcev1.ReleaseRequest{Uid: "u"},
	}
	kills := s.eachWrite(life, func() {
		s.accounted("u")
		s.insist(&resourcev1.ReleaseRequest{Uid: "u"})
		s.gone("u")
	})
	if kills < 8 {
		t.Errorf("only %d kills: the checkpoint has more writes", kills)
	}
}
