// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/wire"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/shutdown"
)

// nodeKey is the one item of podworker.node.
const nodeKey = "node"

// nodeEnd is the shutdown of the node: it learns of one, has pods end in their
// order, and lets the machine go down when they have.
type nodeEnd struct {
	*mailbox

	journal *journal.Journal
	report  *feed.Owner[*podworkerv1.NodeState]
	metrics *metrics
	clock   clock.WithTicker
	log     *slog.Logger
	boot    string
	// tell records an event about the node.
	tell    func(ctx context.Context, kind, reason, message string)
	machine *machine

	mu  sync.Mutex
	now shutdown.State
	// groups are those of the configuration; nil for none.
	groups []shutdown.Group
	trying bool // the journal cannot be written
	// reclaim identifies what was freed last for resource; nil for nothing.
	reclaim *timestamppb.Timestamp
}

// endings are the pods as the end of the node sees them.
type endings interface {
	Ending() (pods []shutdown.Pod, known bool)
}

// newNodeEnd completes one with what a former process left.
func newNodeEnd(e *nodeEnd, connect func(ctx context.Context) (host, error)) (*nodeEnd, error) {
	e.mailbox = newMailbox()
	e.machine = &machine{connect: connect, log: e.log, changed: e.poke, wake: signal.New()}
	return e, e.restore()
}

// restore takes up what an earlier process left.
func (e *nodeEnd) restore() error {
	state, err := e.journal.Shutdown()
	if err != nil {
		return err
	}
	if state.Boot != e.boot {
		state.Stage = shutdown.Staying
	}
	e.mu.Lock()
	e.now = state
	e.mu.Unlock()
	e.metrics.shutdownTimes(state)
	return nil
}

// configure takes over the configuration.
func (e *nodeEnd) configure(c *kubeletconfig.Config) {
	groups := shutdownGroups(c)
	e.mu.Lock()
	e.groups = groups
	e.mu.Unlock()
	e.machine.need(shutdown.Total(groups))
	e.poke()
}

// shutdownGroups reads the groups of a configuration. The older two fields stand for
// two groups: everything, and what is system-critical (KEP-2712).
func shutdownGroups(c *kubeletconfig.Config) []shutdown.Group {
	const systemCritical = 2_000_000_000
	k := &c.Kubelet
	if !c.Gate("GracefulNodeShutdown") {
		return nil
	}
	var groups []shutdown.Group
	if c.Gate("GracefulNodeShutdownBasedOnPodPriority") {
		for _, g := range k.ShutdownGracePeriodByPodPriority {
			groups = append(groups, shutdown.Group{Priority: g.Priority, Period: pod.Seconds(g.ShutdownGracePeriodSeconds)})
		}
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	if len(groups) == 0 && total > 0 && critical >= 0 && critical <= total {
		groups = []shutdown.Group{{Period: (total - critical).Truncate(time.Second)}, {Priority: systemCritical, Period: critical.Truncate(time.Second)}}
	}
	return shutdown.Sorted(groups)
}

// turn says what the end of the node means for pods of a priority.
func (e *nodeEnd) turn(priority int32) (active, end bool, within time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, within = e.now.Turn(e.groups, priority)
	return e.now.Active(), end, within
}

// active reports whether the node goes down.
func (e *nodeEnd) active() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.Active()
}

// stir says that a pod has changed; that matters once the node goes down.
func (e *nodeEnd) stir() {
	if e.active() {
		e.poke()
	}
}

// run works until ctx ends; changed is called after every decision. The configuration
// must be known.
func (e *nodeEnd) run(ctx context.Context, pods endings, changed func()) {
	e.poke()
	e.each(ctx, e.clock, func() (at time.Time, last bool) { return e.round(ctx, pods, changed), false })
}

// round decides once: what is decided is on the disk before pods hear of it.
func (e *nodeEnd) round(ctx context.Context, of endings, changed func()) (at time.Time) {
	pods, known := of.Ending()
	preparing, problem := e.machine.said()
	e.mu.Lock()
	was, groups := e.now, e.groups
	e.mu.Unlock()
	plan := shutdown.Step(shutdown.Input{
		Now: e.clock.Now(), Boot: e.boot, Groups: groups, Preparing: preparing, Known: known, Pods: pods, State: was,
	})
	if plan.State != was {
		if err := e.save(ctx, plan.State); err != nil {
			return e.clock.Now().Add(retryPeriod)
		}
		e.mu.Lock()
		e.now = plan.State
		e.mu.Unlock()
		e.log.Info("node shutdown", "stage", string(plan.State.Stage), "group", plan.State.Group)
		e.metrics.shutdownTimes(plan.State)
		changed()
	}
	switch plan.Change {
	case shutdown.Began:
		e.tell(ctx, v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
	case shutdown.Cancelled:
		e.tell(ctx, v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
	}
	e.publish(ctx, plan.State, groups, problem)
	e.machine.hold(plan.Hold)
	return plan.WakeAt
}

func (e *nodeEnd) save(ctx context.Context, state shutdown.State) error {
	err := fault.Hit(ctx, "podworker.shutdown")
	if err == nil {
		err = e.journal.SaveShutdown(state)
	}
	if err != nil && !e.trying {
		e.log.Error("journal cannot be written: the node's shutdown stands still", service.KeyError, err.Error())
	}
	e.trying = err != nil
	return err
}

var shutdownStages = map[shutdown.Stage]podworkerv1.ShutdownStage{
	shutdown.Staying:   podworkerv1.ShutdownStage_SHUTDOWN_STAGE_STAYING,
	shutdown.Ending:    podworkerv1.ShutdownStage_SHUTDOWN_STAGE_ENDING,
	shutdown.Reporting: podworkerv1.ShutdownStage_SHUTDOWN_STAGE_REPORTING,
	shutdown.Ended:     podworkerv1.ShutdownStage_SHUTDOWN_STAGE_ENDED,
}

func (e *nodeEnd) publish(ctx context.Context, state shutdown.State, groups []shutdown.Group, problem string) {
	e.mu.Lock()
	item := &podworkerv1.NodeState{Stage: shutdownStages[state.Stage], Reclaimed: e.reclaim}
	e.mu.Unlock()
	if len(groups) > 0 {
		item.Error = problem
	}
	if state.Active() {
		item.Since, item.EndedAt = wire.Time(state.Since), wire.Time(state.EndedAt)
		if state.Group < len(groups) {
			item.Priority = groups[state.Group].Priority
		}
	}
	if _, err := e.report.Set(ctx, nodeKey, item); err != nil {
		e.log.Error("node state not published", service.KeyError, err.Error())
	}
	e.report.SetComplete(ctx, true)
}
