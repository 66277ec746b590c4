// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/store"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/resource/internal/oom"
)

// watches is the pause before the supervisor is asked for kills again.
var watches = backoff.Doubling{Least: time.Second, Most: time.Minute}

// KillWatcher sends the processes that the kernel killed for want of memory.
type KillWatcher interface {
	// WatchKills calls found with each, the oldest first, from a line of the kernel's log
	// on. It returns when found fails, with that error, when ctx ends, or when no more can
	// be had.
	WatchKills(ctx context.Context, from uint64, found func(*supervisorv1.WatchKillsResponse) error) error
}

// WatchKills implements KillWatcher. A node may run without a supervisor.
func (s supervisor) WatchKills(ctx context.Context, from uint64, found func(*supervisorv1.WatchKillsResponse) error) error {
	if _, err := os.Stat(s.socket); err != nil {
		return rpc.Unavailable.Errorf("no supervisor is there: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.WatchKills(ctx, &supervisorv1.WatchKillsRequest{From: from})
	if err != nil {
		return err
	}
	for {
		kill, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := found(kill); err != nil {
			return err
		}
	}
}

// read is how far the kernel's log was read, on one boot of the machine.
type read struct {
	Boot string `json:"boot"`
	// Next is the first line that was not.
	Next uint64 `json:"next"`
}

// killReporter reports processes that the kernel killed for want of memory.
type killReporter struct {
	watcher  KillWatcher
	node     *node
	ledger   *ledger
	readings *readings
	events   *events
	table    *store.Table[read]
	read     read
	count    *prometheus.CounterVec
	log      *slog.Logger
	// kills is the log of them, bounded.
	kills *quiet.Log
}

func newKillReporter(watcher KillWatcher, kit *service.Kit, n *node, l *ledger, readings *readings, events *events) (*killReporter, error) {
	r := &killReporter{
		watcher: watcher, node: n, ledger: l, readings: readings, events: events, read: read{Boot: n.facts.BootID}, log: kit.Log, kills: quiet.NewLog(kit.Log),
		count: metric.In(kit.Metrics).Counters("sextant_oom_kills_total", "Processes that the kernel killed for want of memory, by what was short of it: node, pod (in its cgroup) or other.", "scope"),
	}
	r.table = store.NewTable(l.file, "kernel-log", store.JSON[read]())
	all, err := r.table.All()
	if was, ok := all["read"]; ok && was.Boot == r.read.Boot {
		r.read = was
	}
	return r, err
}

// run reports kills until ctx ends.
func (r *killReporter) run(ctx context.Context) error {
	said := ""
	for failures := 1; ; failures++ {
		err := r.watcher.WatchKills(ctx, r.read.Next, func(k *supervisorv1.WatchKillsResponse) error {
			failures = 1
			return r.killed(ctx, k)
		})
		if rpc.Is(err, rpc.Conflict) && err.Error() != said { // it will be the same for good
			said = err.Error()
			r.log.Warn("processes killed for want of memory are not reported", "error", said)
		}
		if !watches.Wait(ctx, failures) {
			return nil
		}
	}
}

var errNoName = errors.New("the node's name is not known yet")

// killed reports one kill: to the log, in the metric, in the pod's item, and as an event of
// the node if it was short of memory itself.
func (r *killReporter) killed(ctx context.Context, k *supervisorv1.WatchKillsResponse) error {
	now, _ := r.node.now()
	if now == nil {
		return errNoName
	}
	var pods []oom.Pod
	for _, t := range r.readings.targets() {
		pods = append(pods, oom.Pod{UID: t.uid, Namespace: t.namespace, Name: t.name, Cgroup: t.cgroup})
	}
	v := oom.Judge(oom.Kill{Process: k.GetProcess(), PID: k.GetPid(), Machine: k.GetMachine(), Cgroup: k.GetCgroup(), Limit: k.GetLimit()}, pods)
	about := []any{"process", k.GetProcess(), "pid", k.GetPid(), "cgroup", k.GetCgroup(), "limit", k.GetLimit()}
	if v.Pod != nil {
		about = append(about, "namespace", v.Pod.Namespace, "pod", v.Pod.Name, service.KeyUID, v.Pod.UID, "container-id", v.Container)
	}
	if v.Container != "" {
		if err := r.ledger.killed(ctx, v.Pod.UID, v.Container); err != nil {
			return fmt.Errorf("pod %s: %w", v.Pod.UID, err)
		}
	}
	r.kills.Say(slog.LevelWarn, v.Scope, "a process was killed for want of memory", about...)
	if v.Event != "" {
		err := r.events.feed.Emit(ctx, &eventv1.Event{
			Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: now.conf.Node.Name, Uid: now.conf.Node.Name},
			Type:   v1.EventTypeWarning, Reason: oom.Reason, Message: v.Event, Time: timestamppb.New(k.GetAt().AsTime()),
		})
		if err != nil {
			return fmt.Errorf("event %s: %w", oom.Reason, err)
		}
	}
	r.count.WithLabelValues(v.Scope).Inc()
	r.read.Next = k.GetSequence() + 1
	if err := r.table.Put("read", r.read); err != nil {
		r.log.Error("how far the kernel's log was read is not kept", "error", err.Error())
	}
	return nil
}
