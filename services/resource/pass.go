// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/resource/internal/eviction"
)

// soon is when a pass that decided nothing is made again.
const soon = time.Second

// recall has the conditions of the life before count until the first pass of this one is
// over, which asks the runtime and may wait for it: pods are admitted meanwhile.
func (e *evictor) recall(now *settings) {
	transition := now.conf.Kubelet.EvictionPressureTransitionPeriod.Duration
	e.node.press(eviction.Lasting(e.history.Conditions, transition, e.now()))
}

// pass makes a pass if one is due, and carries out what it decides.
func (e *evictor) pass(ctx context.Context, now *settings, at time.Time) {
	hurried := e.hurried.Swap(false)
	done := e.reclaimed(at)
	if !hurried && !done && at.Before(e.next) && !at.Before(e.next.Add(-period)) {
		return
	}
	e.next = at.Add(period)
	e.findLayout(ctx, now)
	in := eviction.Input{
		Now: at, Config: now.eviction(e.layout), Leaving: e.leaving(at), Left: e.shortages.left(),
		Observed: e.observe(ctx, now, at), Reclaimed: done, History: e.history,
	}
	e.alarm.set(at, hurried, now, in)
	in.Pods, in.Layers = e.candidates(ctx, now, in)
	out := eviction.Step(in)
	e.history = out.History
	if out.Soon {
		e.next = at.Add(soon)
	}
	if out.Reclaiming != "" {
		e.events.node(ctx, now, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(out.Reclaiming))
	}
	for signal, age := range out.Ages {
		e.metrics.statsAge.WithLabelValues(signal).Observe(age.Seconds())
	}
	for _, v := range out.Verdicts {
		e.evict(ctx, v)
	}
	if err := e.shortages.keep(at, out.History); err != nil {
		e.log.Error("shortages of the node are not kept", "error", err.Error())
	}
	e.node.press(maps.Clone(out.History.Conditions))
}
