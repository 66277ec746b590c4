// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/resource"
)

// kernelLog is a log of kills that begins with the machine's boot, as the supervisor
// serves it.
type kernelLog struct {
	mu    sync.Mutex
	kills []*supervisorv1.WatchKillsResponse
	more  chan struct{}
	// asked are the lines from which it was read.
	asked []uint64
}

func (l *kernelLog) add(k *supervisorv1.WatchKillsResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, k)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

func (l *kernelLog) WatchKills(ctx context.Context, from uint64, found func(*supervisorv1.WatchKillsResponse) error) error {
	l.mu.Lock()
	l.asked = append(l.asked, from)
	l.mu.Unlock()
	for sent := 0; ; {
		l.mu.Lock()
		next := l.kills[sent:]
		if len(next) == 0 && l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		for _, k := range next {
			sent++
			if k.GetSequence() < from {
				continue
			}
			if err := found(k); err != nil {
				return err
			}
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return rpc.Unavailable.Errorf("%w", ctx.Err())
		case <-more:
		}
	}
}

// TestSystemOOM: a process that is killed because the machine has no memory left is an
// event of the node, once over restarts; one that is killed in a pod's cgroup is not.
func TestSystemOOM(t *testing.T) {
	log := &kernelLog{}
	watched := func(d *resource.Deps) { d.Kills = log }
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	log.add(&supervisorv1.WatchKillsResponse{Sequence: 10, At: timestamppb.New(at), Process: "sshd", Pid: 41, Machine: true})
	r := newRig(t, nil)
	r.stop()
	r.file("proc/sys/kernel/random/boot_id", "one")
	r.start(watched)
	r.settle()
	r.admit(burstable("u", "1"), false)
	log.add(&supervisorv1.WatchKillsResponse{Sequence: 20, At: timestamppb.New(at), Process: "java", Pid: 42, Cgroup: r.kubepods("burstable", "podu").Path("cgroupfs"), Limit: "/kubepods"})
	log.add(&supervisorv1.WatchKillsResponse{Sequence: 30, At: timestamppb.New(at), Process: "etcd", Pid: 43, Machine: true})
	r.Eventually("the kills of the machine", func() bool {
		_, first := r.said("SystemOOM", "System OOM encountered, victim process: sshd, pid: 41")
		_, last := r.said("SystemOOM", "System OOM encountered, victim process: etcd, pid: 43")
		return first == 1 && last == 1
	})
	e, all := r.said("SystemOOM", "")
	if all != 2 || e.GetObject().GetKind() != "Node" || e.GetObject().GetName() != "n1" || e.GetType() != "Warning" || !e.GetTime().AsTime().Equal(at) {
		t.Errorf("%d events, one of them %v", all, e)
	}
	before, _, _, _ := r.events.State()
	r.stop()
	log.add(&supervisorv1.WatchKillsResponse{Sequence: 40, At: timestamppb.New(at), Process: "late", Pid: 44, Machine: true})
	r.start(watched)
	r.Eventually("the kill while it was away", func() bool {
		now, _, _, _ := r.events.State()
		_, late := r.said("SystemOOM", "late")
		return now.Epoch != before.Epoch && late == 1
	})
	if _, again := r.said("SystemOOM", "etcd"); again != 0 {
		t.Error("a kill was reported again after a restart")
	}
	r.stop()
	r.file("proc/sys/kernel/random/boot_id", "two")
	log.mu.Lock()
	log.kills, log.asked = nil, nil
	log.mu.Unlock()
	log.add(&supervisorv1.WatchKillsResponse{Sequence: 1, At: timestamppb.New(at), Process: "early", Pid: 45, Machine: true})
	r.start(watched)
	r.Eventually("the kill after a boot", func() bool { _, n := r.said("SystemOOM", "early"); return n == 1 })
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.asked[0] != 0 {
		t.Errorf("after a boot the log was read from line %d", log.asked[0])
	}
}

// TestOOMKilledContainers: the pod's item says in which of its containers the kernel killed a
// process for want of memory, the newest ones, also after a restart; kills elsewhere it does
// not tell.
func TestOOMKilledContainers(t *testing.T) {
	log := &kernelLog{}
	watched := func(d *resource.Deps) { d.Kills = log }
	r := newRig(t, nil)
	r.stop()
	r.start(watched)
	r.settle()
	r.admit(burstable("u", "1"), false)
	r.admit(burstable("other", "1"), false)
	cgroup := r.kubepods("burstable", "podu").Path("cgroupfs")
	id := func(n int) string { return fmt.Sprintf("%064x", n) }
	sequence := uint64(0)
	kill := func(cgroup string) {
		sequence++
		log.add(&supervisorv1.WatchKillsResponse{Sequence: sequence, At: timestamppb.Now(), Process: "dd", Pid: 42, Cgroup: cgroup, Limit: cgroup})
	}
	told := func(want ...string) {
		t.Helper()
		r.Eventually("the containers that were killed", func() bool {
			item, _ := r.pods.Get("u")
			return slices.Equal(item.GetOomKilled(), want)
		})
	}
	kill(cgroup)               // of no container
	kill("/system.slice/sshd") // of no pod
	kill(cgroup + "/" + id(1))
	kill(cgroup + "/" + id(1)) // a second process
	kill(cgroup + "/" + id(2) + "/child")
	told(id(1), id(2))
	r.stop()
	r.start(watched)
	told(id(1), id(2))
	var newest []string
	for n := 3; n < 20; n++ {
		kill(cgroup + "/" + id(n))
		newest = append(newest, id(n))
	}
	told(newest[len(newest)-16:]...)
	if item, _ := r.pods.Get("other"); len(item.GetOomKilled()) > 0 {
		t.Errorf("of another pod: %v", item.GetOomKilled())
	}
}
