// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// The faults.
const (
	kill      = "kill -9"
	stop      = "SIGSTOP"
	memory    = "memory limit"
	disk      = "disk full"
	diskKill  = "disk full, kill -9"
	gone      = "API server gone"
	restarted = "runtime killed"
	ahead     = "clock set on"
	behind    = "clock set back"
)

// deed is a fault to one or two services, or to what is around them.
type deed struct {
	fault string
	to    []house.Service
}

// victims names those it is done to.
func (d deed) victims() string {
	var names []string
	for _, s := range d.to {
		names = append(names, string(s))
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

func (d deed) what() string { return strings.TrimSpace(d.fault + " " + d.victims()) }

// round does a deed, makes a pod at that moment, and judges.
func (l *load) round(d deed) judge.Round {
	l.t.Helper()
	switch d.fault {
	case gone:
		return l.judged(d.fault, "API server", func() (mend func()) {
			l.cut()
			return func() {
				harness.Rest(l.t, *away)
				l.join()
			}
		})
	case restarted:
		return l.judged(d.fault, "containerd", func() (mend func()) {
			l.n.Runtime.Kill(l.t)
			return func() { l.n.Runtime.Restart(l.t) }
		})
	case ahead:
		return l.judged(d.fault, "the whole node", func() (mend func()) { return l.setClock(time.Hour) })
	case behind: // by less than an hour, which is how long certificates of the tests are valid
		return l.judged(d.fault, "the whole node", func() (mend func()) { return l.setClock(-50 * time.Minute) })
	}
	to := d.victims()
	if len(d.to) > 1 {
		to = "two at once"
	}
	pid := map[house.Service]int{}
	for _, s := range d.to {
		pid[s] = l.there(s)
	}
	r := l.judged(d.fault, to, func() (mend func()) {
		var undo []func()
		for _, s := range d.to {
			if u := l.hurt(d.fault, s, pid[s]); u != nil {
				undo = append(undo, u)
			}
		}
		if len(undo) == 0 {
			return nil
		}
		return func() {
			for _, u := range undo {
				u()
			}
		}
	})
	if d.fault == kill && slices.Contains(d.to, house.Prober) {
		l.probed(&r, pid[house.Prober])
	}
	return r
}

// judged does something, makes a pod at that moment, ends the fault, and collects
// what was found until that pod is Ready and everybody serves; then it makes
// another one, with nothing done.
func (l *load) judged(fault, to string, do func() (mend func())) judge.Round {
	l.t.Helper()
	r := judge.Round{Fault: fault, To: to}
	began := time.Now()
	var mend func()
	if do != nil {
		mend = do()
	}
	var err error
	pod := l.fresh()
	present := l.cp.Running()
	if present {
		l.find(l.t.Context(), judge.Stuck, l.create(l.t.Context(), pod))
	}
	if mend != nil {
		mend()
		began = time.Now()
	}
	switch {
	case *cut && !l.cp.Running(): // nobody to make pods at
		err = harness.Within(l.t.Context(), patience, l.alive)
		r.Recovery = time.Since(began)
	case !present:
		err = l.create(l.t.Context(), pod)
		fallthrough
	default:
		if err == nil {
			err = l.w.await(l.t.Context(), pod.Name, isReady)
		}
		r.Recovery = max(time.Since(began), time.Millisecond)
		if err == nil {
			err = harness.Within(l.t.Context(), patience, func(ctx context.Context) error { return l.logs(ctx, pod.Name) })
		}
		if to == string(house.NodeAPI) { // which no pod needs to start
			r.Recovery = time.Since(began)
		}
		l.leave(pod.Name)
		if err == nil {
			err = harness.Within(l.t.Context(), patience, l.n.Serving)
		}
	}
	if err != nil {
		l.w.find(judge.Stuck, err)
		r.Recovery = 0
	}
	if l.cp.Running() {
		if r.Calm, err = l.calm(); err != nil {
			l.w.find(judge.Stuck, fmt.Errorf("with nothing done: %w", err))
		}
	}
	r.Findings = append(l.w.take(), l.now()...)
	return r
}

// calm makes a pod with nothing done to anybody.
func (l *load) calm() (took time.Duration, err error) {
	pod, began := l.fresh(), time.Now()
	if err := l.create(l.t.Context(), pod); err != nil {
		return 0, err
	}
	if err := l.w.await(l.t.Context(), pod.Name, isReady); err != nil {
		return 0, err
	}
	took = time.Since(began)
	l.leave(pod.Name)
	return took, nil
}

// leave deletes a pod and goes on.
func (l *load) leave(pod string) {
	l.churners.Go(func() { l.find(l.t.Context(), judge.Lost, l.remove(l.t.Context(), pod)) })
}

// there is the process of a service, once there is one.
func (l *load) there(s house.Service) (pid int) {
	l.t.Helper()
	harness.Eventually(l.t, patience, "a process of "+string(s), func(context.Context) error {
		if pid = l.n.Process(s); pid == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return pid
}

// hurt does something to a service and returns what ends it, or nil.
func (l *load) hurt(fault string, s house.Service, pid int) (mend func()) {
	l.t.Helper()
	switch fault {
	case stop:
		l.signal(pid, unix.SIGSTOP)
		return func() {
			harness.Rest(l.t, *stopped)
			l.signal(pid, unix.SIGCONT)
		}
	case memory:
		return l.starve(s, pid)
	case disk:
		return l.fill(s)
	case diskKill:
		mend := l.fill(s)
		l.signal(pid, unix.SIGKILL)
		return mend
	}
	l.signal(pid, unix.SIGKILL)
	return nil
}

func (l *load) signal(pid int, sig unix.Signal) {
	l.t.Helper()
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		l.t.Errorf("signal %d to %d: %v", sig, pid, err)
	}
}

// probed measures how long pods waited for their first probe after prober began
// again.
func (l *load) probed(r *judge.Round, old int) {
	l.t.Helper()
	now := 0
	harness.Eventually(l.t, patience, "another prober", func(context.Context) error {
		if now = l.n.Process(house.Prober); now == 0 || now == old {
			return errors.New("there is none")
		}
		return nil
	})
	began, err := harness.Process{PID: now}.Began()
	if err != nil {
		l.t.Error(err)
		return
	}
	for _, pod := range l.heard {
		first := time.Time{}
		err := harness.Within(l.t.Context(), patience, func(context.Context) (err error) {
			if at, ok := l.audience.first(pod, began); ok {
				first = at
				return nil
			}
			return fmt.Errorf("pod %s is not probed any more", pod)
		})
		if err != nil {
			r.Findings = append(r.Findings, judge.Finding{Kind: judge.Late, What: err.Error()})
			continue
		}
		wait := first.Sub(began)
		if r.Probe = max(r.Probe, wait); wait > probePeriod+*slack {
			r.Findings = append(r.Findings, judge.Finding{Kind: judge.Late, What: fmt.Sprintf("pod %s was probed %s after prober had begun, its period is %s", pod, wait, probePeriod)})
		}
	}
	l.audience.forget(began)
}

// room is how much the state of a service may take on its disk.
const room = 4 << 20

// disks puts the state of each service on a small disk of its own.
func disks(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, s := range house.Services() {
		dir := filepath.Join(n.State, string(s))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("state", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", room)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // while services have files there
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

// fill leaves no room on the disk with the state of a service.
func (l *load) fill(s house.Service) (mend func()) {
	l.t.Helper()
	ballast := filepath.Join(l.n.State, string(s), "ballast")
	if err := os.WriteFile(ballast, make([]byte, room+1), 0o600); !errors.Is(err, unix.ENOSPC) {
		l.t.Errorf("fill the disk of %s: %v", s, err)
	}
	return func() {
		harness.Rest(l.t, *full)
		if err := os.Remove(ballast); err != nil {
			l.t.Errorf("empty the disk of %s: %v", s, err)
		}
	}
}

// starve puts a process into a memory cgroup with no room, where the kernel ends
// it at its next growth.
func (l *load) starve(s house.Service, pid int) (mend func()) {
	l.t.Helper()
	base, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(base); err != nil {
		base, limit = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(base, l.n.Runtime.CgroupRoot+"-starved-"+string(s))
	err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, limit), []byte("262144"), 0o644),
		os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0o644))
	if err != nil {
		l.t.Errorf("starve %s: %v", s, err)
	}
	return func() {
		err := harness.Within(l.t.Context(), time.Minute, func(ctx context.Context) error {
			_ = l.n.TryVerb(ctx, "profile", string(s), "--kind=trace", "--seconds=1", "--file="+os.DevNull) // takes memory
			if l.n.Process(s) == pid {
				return fmt.Errorf("%s lives on without memory", s)
			}
			return nil
		})
		if err != nil { // back to where it came from
			l.t.Error(err)
			if err := os.WriteFile(filepath.Join(base, "cgroup.procs"), fmt.Append(nil, pid), 0o644); err != nil && !errors.Is(err, unix.ESRCH) {
				l.t.Error(err)
			}
		}
		if err := harness.Within(l.t.Context(), time.Minute, func(context.Context) error { return os.Remove(dir) }); err != nil {
			l.t.Error(err)
		}
	}
}

// setClock sets the clock of every process of the node, the runtime among them.
func (l *load) setClock(by time.Duration) (mend func()) {
	l.t.Helper()
	set := func(by time.Duration) {
		for _, p := range append(l.n.Processes(), harness.Process{PID: l.n.Runtime.PID(), Name: "containerd"}) {
			if err := jump(l.t.Context(), p.PID, by); err != nil {
				l.t.Errorf("set the clock of %s: %v", p.Name, err)
			}
		}
	}
	set(by)
	return func() {
		harness.Rest(l.t, *jumped)
		set(0)
	}
}

// cut takes the API server away, and with it all that asks it.
func (l *load) cut() {
	l.running.Lock() // nobody of the load is asking
	l.w.absent(true)
	l.cp.Stop(l.t)
	l.cp.StopControllers(l.t)
}

// join brings the API server back.
func (l *load) join() {
	l.cp.Resume(l.t)
	l.cp.StartControllers(l.t)
	l.w.absent(false)
	l.running.Unlock()
}

// alive says who does not answer. Who needs the API server may wait for it.
func (l *load) alive(ctx context.Context) error {
	all, err := l.n.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.PID == 0 || s.Epoch == "" {
			return fmt.Errorf("%s is %s: %s", s.Service, s.Health, s.Reason)
		}
	}
	return nil
}
