// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// killer does what the supervisor does, unless it is told to fail, or to hang.
type killer struct {
	root   string
	broken atomic.Bool
	hang   chan struct{} // until it is closed; nil for not at all
	hung   atomic.Int32  // orders that hang
}

func (k *killer) EndPod(ctx context.Context, uid string) error {
	if k.hang != nil {
		k.hung.Add(1)
		select {
		case <-k.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if k.broken.Load() {
		return errors.New("it is asleep")
	}
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + k.root + "/kubepods/burstable/pod" + uid)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		pids, err := cgroups.GetAllPids(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// versionOne are cgroups whose kernel kills nothing.
type versionOne struct{ cgroup.Tree }

func (versionOne) Kill(pod.CgroupName) (bool, error) { return false, nil }

// onVersionOne is a rig where k kills what the kernel does not.
func onVersionOne(t *testing.T, k *killer) *rig {
	t.Helper()
	r := newRig(t, func(d *resource.Deps) {
		d.Ender = k
		d.Cgroups = func(driver pod.CgroupDriver) resource.Cgroups { return versionOne{cgroup.Tree{Driver: driver}} }
	})
	k.root = r.cgroup[0]
	r.settle()
	return r
}

// said finds an event whose message holds a text.
func (r *rig) said(reason, text string) (found *eventv1.Event, times int) {
	for _, e := range r.events.Items() {
		if e.GetReason() == reason && strings.Contains(e.GetMessage(), text) {
			found, times = e, times+1
		}
	}
	return found, times
}

// TestWhatIsLeftOfAPodIsKilled: processes in the cgroup of a pod that is released are no
// container's. They are killed, and an event says so.
func TestWhatIsLeftOfAPodIsKilled(t *testing.T) {
	k := &killer{}
	r := newRig(t, func(d *resource.Deps) { d.Ender = k })
	k.root = r.cgroup[0]
	r.settle()
	r.admit(burstable("a", "1"), false)
	cgrouptest.Occupy(t, r.kubepods("burstable", "poda"))
	r.release("a")
	r.Eventually("what holds it up", func() bool {
		item, ok := r.pods.Get("a")
		return !ok || item.GetReleasing() && strings.HasSuffix(item.GetError(), "still holds 1 processes")
	})
	r.Eventually("released", func() bool { _, ok := r.pods.Get("a"); return !ok })
	if cgrouptest.Exists(t, r.kubepods("burstable", "poda")) {
		t.Error("the cgroup is left")
	}
	r.Eventually("the event", func() bool {
		e, _ := r.said("FailedKillPod", "still holds 1 processes, which no container owned; they were killed")
		return e.GetType() == "Warning" && e.GetObject().GetKind() == "Pod" && e.GetObject().GetName() == "name-a" && e.GetObject().GetUid() == "a"
	})
}

// TestWhatCannotBeKilled holds its own pod up and no other; an event says so once.
func TestWhatCannotBeKilled(t *testing.T) {
	k := &killer{}
	k.broken.Store(true)
	r := onVersionOne(t, k)
	for _, uid := range []string{"a", "b"} {
		r.admit(burstable(uid, "1"), false)
	}
	leave := cgrouptest.Occupy(t, r.kubepods("burstable", "poda"))
	r.release("a")
	r.Eventually("why", func() bool {
		item, _ := r.pods.Get("a")
		return strings.HasSuffix(item.GetError(), "still holds 1 processes: it is asleep")
	})
	r.release("b")
	r.Eventually("another pod", func() bool { _, ok := r.pods.Get("b"); return !ok })
	leave()
	r.Eventually("released", func() bool { _, ok := r.pods.Get("a"); return !ok })
	said := func() (times int) {
		_, times = r.said("FailedKillPod", "cannot be killed: it is asleep")
		return times
	}
	r.Eventually("the event", func() bool { return said() > 0 })
	if times := said(); times != 1 {
		t.Errorf("said %d times", times)
	}
}

// TestASupervisorThatHangs holds up the pods whose processes it is to kill at the same
// time, and nothing else.
func TestASupervisorThatHangs(t *testing.T) {
	k := &killer{hang: make(chan struct{})}
	r := onVersionOne(t, k)
	for _, uid := range []string{"a", "b"} {
		r.admit(burstable(uid, "1"), false)
		cgrouptest.Occupy(t, r.kubepods("burstable", "pod"+uid))
		r.release(uid)
	}
	r.Eventually("an order for each", func() bool { return k.hung.Load() == 2 })
	r.configure(func(c *kubeletconfig.Config) { c.Kubelet.SystemReserved = map[string]string{"cpu": "3"} })
	r.Eventually("another configuration", func() bool {
		item, _ := r.node.Get("node")
		return item.GetAllocatable()["cpu"] == "1"
	})
	close(k.hang)
	r.Eventually("released", func() bool {
		_, a := r.pods.Get("a")
		_, b := r.pods.Get("b")
		return !a && !b
	})
}

// TestACgroupOfNothingHeld: the runtime has made the cgroup of a pod that was released,
// and something runs there.
func TestACgroupOfNothingHeld(t *testing.T) {
	k := &killer{}
	r := newRig(t, func(d *resource.Deps) { d.Ender = k })
	k.root = r.cgroup[0]
	r.settle()
	r.admit(burstable("a", "1"), false)
	r.release("a")
	r.Eventually("released", func() bool { _, ok := r.pods.Get("a"); return !ok })
	mounts := []string{"pids", "memory"}
	if cgrouptest.V2() {
		mounts = []string{""}
	}
	for _, mount := range mounts {
		dir := filepath.Join("/sys/fs/cgroup", mount, r.kubepods("burstable", "poda", "sandbox").Path(pod.Cgroupfs))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cgrouptest.Occupy(t, r.kubepods("burstable", "poda", "sandbox"))
	r.release("a")
	if item, ok := r.pods.Get("a"); !ok || !item.GetReleasing() {
		t.Errorf("not being released: %v", item)
	}
	r.Eventually("released", func() bool { _, ok := r.pods.Get("a"); return !ok })
	if cgrouptest.Exists(t, r.kubepods("burstable", "poda")) {
		t.Error("the cgroup is left")
	}
	r.Eventually("the event", func() bool {
		e, _ := r.said("FailedKillPod", "they were killed")
		return e.GetObject().GetKind() == "Node" && e.GetObject().GetName() == "n1"
	})
	r.release("../../..")
	r.configure(func(c *kubeletconfig.Config) {
		off := false
		c.Kubelet.CgroupsPerQOS = &off
		c.Kubelet.EnforceNodeAllocatable = nil
	})
	r.release("a")
}
