package prober

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// idle is the longest the loop sleeps, so that the watchdog hears of it.
const idle = 20 * time.Second

// loop is the only goroutine that touches the schedule: facts and results come
// in, probes go out when they are due.
func (s *Service) loop(ctx context.Context) error {
	if err := s.restore(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.beat()
		changed := map[string]bool{}
		select {
		case <-ctx.Done():
			return s.file.Close()
		case <-s.wake:
		case <-timer.C:
		case f := <-s.done:
			s.finish(ctx, f, changed)
			s.drain(ctx, changed)
		}
		s.takeIn(ctx, changed)
		s.publish(ctx, changed)
		s.launch(ctx)
		wait := idle
		if due, ok := s.plan.Next(); ok {
			wait = min(max(due.Sub(s.now()), 0), idle)
		}
		timer.Reset(wait)
	}
}

// drain takes the results that have come in meanwhile: what they change is
// written together.
func (s *Service) drain(ctx context.Context, changed map[string]bool) {
	for {
		select {
		case f := <-s.done:
			s.finish(ctx, f, changed)
		default:
			return
		}
	}
}

// restore publishes the verdicts of the earlier life. They are right as long as
// the containers are the same, which takeIn finds out.
func (s *Service) restore(ctx context.Context) error {
	all, err := s.journal.All()
	if err != nil {
		return err
	}
	for uid, saved := range all {
		for _, v := range saved.GetVerdicts() {
			kind, ok := kindOf[v.GetKind()]
			if !ok {
				continue
			}
			s.plan.Restore(schedule.Key{UID: uid, Container: v.GetContainer(), Kind: kind}, schedule.Verdict{
				ContainerID: v.GetContainerId(), Result: schedule.Result(v.GetResult()), Since: v.GetSince().AsTime(), Message: v.GetMessage(),
			})
		}
		if _, err := s.verdicts.Set(ctx, uid, saved); err != nil {
			return err
		}
	}
	return nil
}

// takeIn applies what config and pleg say. Until both have answered, nothing is
// probed and nothing forgotten.
func (s *Service) takeIn(ctx context.Context, changed map[string]bool) {
	if !s.pods.Synced() || !s.records.Synced() {
		return
	}
	for uid := range s.takeDirty() {
		p, wanted := s.pods.Get(uid)
		record, seen := s.records.Get(uid)
		if !wanted && !s.pods.Complete() || !seen && !s.records.Complete() || seen && record.unread {
			s.later(uid) // not known is not gone
			continue
		}
		var targets []schedule.Target
		if wanted {
			s.known[uid] = p
			if seen {
				targets = schedule.Targets(p, record.containers)
			}
		}
		s.plan.Update(uid, targets, s.now())
		changed[uid] = true
		if gone := s.known[uid]; !wanted && gone != nil {
			s.metrics.forget(gone)
			delete(s.known, uid)
		}
	}
	if s.complete || !s.pods.Complete() || !s.records.Complete() {
		return
	}
	for _, uid := range s.verdicts.Keys() { // of pods that went while prober was away
		if _, wanted := s.pods.Get(uid); !wanted {
			s.plan.Update(uid, nil, s.now())
			changed[uid] = true
		}
	}
	s.publish(ctx, changed)
	clear(changed)
	s.complete = true
	s.verdicts.SetComplete(ctx, true)
	s.kit.Serving()
}

// question is what one or more probes of a container want to know.
type question struct {
	targets []schedule.Target
	subject probe.Subject
}

// launch starts the probes that are due. A command that several probes of a
// container want to run at the same time is run once.
func (s *Service) launch(ctx context.Context) {
	var order []*question
	asked := map[string]*question{}
	for _, t := range s.plan.Due(s.now()) {
		p, ok := s.pods.Get(t.UID)
		record, seen := s.records.Get(t.UID)
		c := container(p, t.Container)
		if !ok || !seen || c == nil {
			s.plan.Done(t, schedule.Unknown, "", s.now())
			continue
		}
		if q := asked[t.Question()]; q != nil {
			q.targets = append(q.targets, t)
			continue
		}
		subject := probe.Subject{ContainerID: t.ContainerID, Container: c, PodIP: record.ip}
		if p.Spec.HostNetwork && subject.PodIP == "" {
			subject.PodIP = cmp.Or(p.Status.HostIP, s.cfg.NodeIP)
		}
		q := &question{[]schedule.Target{t}, subject}
		asked[t.Question()] = q
		order = append(order, q)
	}
	for _, q := range order {
		go s.ask(ctx, q)
	}
}

// ask runs a probe and tells its result to all that want to know it.
func (s *Service) ask(ctx context.Context, q *question) {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	began := s.now()
	s.metrics.late.Observe(max(began.Sub(q.targets[0].Due), 0).Seconds())
	outcome := s.probes.Run(ctx, q.targets[0].Spec, q.subject)
	if ctx.Err() != nil {
		return // broken off, not failed
	}
	for _, t := range q.targets {
		select {
		case s.done <- finished{t, outcome, s.now().Sub(began)}:
		case <-ctx.Done():
		}
	}
}

// finish takes one result in.
func (s *Service) finish(ctx context.Context, f finished, changed map[string]bool) {
	p, ok := s.pods.Get(f.target.UID)
	if ok {
		s.metrics.observe(p, f.target, f.outcome.Result, f.took)
	}
	if s.plan.Done(f.target, f.outcome.Result, f.outcome.Message, s.now()) {
		changed[f.target.UID] = true
	}
	if !ok {
		return
	}
	switch {
	case f.outcome.Error != "":
		s.emit(ctx, p, f.target, "Unhealthy", fmt.Sprintf("%s probe errored and resulted in %s state: %s", f.target.Kind, f.outcome.Result, f.outcome.Error))
	case f.outcome.Result == schedule.Failure:
		s.emit(ctx, p, f.target, "Unhealthy", fmt.Sprintf("%s probe failed: %s", f.target.Kind, f.outcome.Message))
	case f.outcome.Warning != "":
		s.emit(ctx, p, f.target, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", f.target.Kind, f.outcome.Warning))
	}
}

func (s *Service) emit(ctx context.Context, p *v1.Pod, t schedule.Target, reason, message string) {
	field := "spec.containers"
	for _, c := range p.Spec.InitContainers {
		if c.Name == t.Container {
			field = "spec.initContainers"
		}
	}
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{
			ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID),
			FieldPath: fmt.Sprintf("%s{%s}", field, t.Container),
		},
		Type: v1.EventTypeWarning, Reason: reason, Message: message, Time: timestamppb.New(s.now()),
	})
	if err != nil {
		s.kit.Log.Error("event", "uid", t.UID, "error", err.Error())
	}
}
