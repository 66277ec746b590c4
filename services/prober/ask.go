// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// launch queues the probes that are due, and begins those whose turn it is. A command
// that several probes of a container want to run at the same time is run once.
func (s *Service) launch(ctx context.Context) {
	asked := map[string]*question{}
	for _, t := range s.plan.Due(s.now()) {
		p, ok := s.pods.Get(t.UID)
		record, seen := s.records.Get(t.UID)
		var c *v1.Container
		if ok && seen {
			c = pod.FindDeclared(p, t.Container)
		}
		if c == nil {
			s.plan.Done(t, schedule.Unknown, "", s.now())
			continue
		}
		if q := asked[t.Question()]; q != nil {
			q.targets = append(q.targets, t)
			continue
		}
		subject := probe.Subject{ContainerID: t.ContainerID, Container: c, PodIP: record.primary(cmp.Or(p.Status.HostIP, s.host))}
		if p.Spec.HostNetwork && subject.PodIP == "" {
			if subject.PodIP = p.Status.HostIP; subject.PodIP == "" {
				subject.PodIP = ownAddress(ctx)
			}
		}
		q := &question{targets: []schedule.Target{t}, subject: subject}
		asked[t.Question()] = q
		s.turns.Add(t.UID, q)
	}
	for _, q := range s.turns.Next() {
		var limited context.Context
		limited, q.stop = context.WithCancel(ctx)
		go s.ask(ctx, limited, q)
	}
}

// ask runs a probe; limited ends when the container is not probed any more.
func (s *Service) ask(ctx, limited context.Context, q *question) {
	began := s.now()
	s.metrics.late.Observe(max(began.Sub(q.targets[0].Due), 0).Seconds())
	outcome := s.probes.Run(limited, q.targets[0].Spec, q.subject)
	if ctx.Err() != nil {
		return // broken off, not failed
	}
	select {
	case s.done <- finished{q, outcome, s.now().Sub(began), limited.Err() != nil}:
	case <-ctx.Done():
	}
}

// abandon lets go of the questions about containers of a pod that are not probed any
// more, those that are asked now and those that wait.
func (s *Service) abandon(uid string) {
	useful := func(q *question) bool { return slices.ContainsFunc(q.targets, s.plan.Current) }
	for _, q := range s.turns.Keep(uid, useful) {
		q.stop()
	}
}

// finish takes one result in, for all that wanted to know it.
func (s *Service) finish(ctx context.Context, f finished, changed map[string]bool) {
	f.stop()
	s.turns.Done(f.targets[0].UID, f.question)
	if f.abandoned {
		return
	}
	for _, t := range f.targets {
		s.settle(ctx, t, f.outcome, f.took, changed)
	}
}

// settle takes the result of one probe in.
func (s *Service) settle(ctx context.Context, t schedule.Target, o probe.Outcome, took time.Duration, changed map[string]bool) {
	p, ok := s.pods.Get(t.UID)
	if ok {
		s.metrics.observe(p, t, o.Result, took)
	}
	if s.plan.Done(t, o.Result, o.Message, s.now()) {
		changed[t.UID] = true
	}
	if !ok {
		return
	}
	switch {
	case o.Error != "":
		s.emit(ctx, p, t, "Unhealthy", fmt.Sprintf("%s probe errored and resulted in %s state: %s", t.Kind, o.Result, o.Error))
	case o.Result == schedule.Failure:
		s.emit(ctx, p, t, "Unhealthy", fmt.Sprintf("%s probe failed: %s", t.Kind, o.Message))
	case o.Warning != "":
		s.emit(ctx, p, t, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", t.Kind, o.Warning))
	}
}
