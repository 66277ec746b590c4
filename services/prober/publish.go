// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// publish writes the verdicts of pods to disk and then to the feed. Writers at
// the same time share a flush, so that many pods cost little more than one.
func (s *Service) publish(ctx context.Context, uids map[string]bool) {
	var flush sync.WaitGroup
	next := map[string]*proberv1.PodVerdicts{} // nil: none any more
	for uid := range uids {
		verdicts := s.verdictsOf(uid)
		had, published := s.verdicts.Get(uid)
		if verdicts == nil && !published || published && proto.Equal(had, verdicts) {
			continue
		}
		next[uid] = verdicts
		flush.Go(func() { s.keep(uid, verdicts) })
	}
	flush.Wait()
	for uid, verdicts := range next {
		if verdicts == nil {
			s.verdicts.Delete(ctx, uid)
			continue
		}
		if _, err := s.verdicts.Set(ctx, uid, verdicts); err != nil {
			s.kit.Log.Error("publish", "uid", uid, "error", err.Error())
		}
	}
}

func (s *Service) keep(uid string, verdicts *proberv1.PodVerdicts) {
	var err error
	if verdicts == nil {
		err = s.journal.Delete(uid)
	} else {
		err = s.journal.Put(uid, verdicts)
	}
	if err != nil {
		s.kit.Log.Error("journal", "uid", uid, "error", err.Error())
	}
}

// verdictsOf is a pod's item; nil when nothing of it is decided.
func (s *Service) verdictsOf(uid string) *proberv1.PodVerdicts {
	verdicts := s.plan.Verdicts(uid)
	if len(verdicts) == 0 {
		return nil
	}
	item := &proberv1.PodVerdicts{Uid: uid}
	for _, key := range schedule.Keys(verdicts) {
		v := verdicts[key]
		item.Verdicts = append(item.Verdicts, &proberv1.Verdict{
			Container: key.Container, ContainerId: v.ContainerID, Kind: wireKind[key.Kind],
			Result: wireResult[v.Result], Since: timestamppb.New(v.Since), Message: v.Message,
		})
	}
	return item
}

func (s *Service) emit(ctx context.Context, p *v1.Pod, t schedule.Target, reason, message string) {
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{
			ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID),
			FieldPath: pod.ContainerFieldPath(p, t.Container),
		},
		Type: v1.EventTypeWarning, Reason: reason, Message: message, Time: timestamppb.New(s.now()),
	})
	if err != nil {
		s.kit.Log.Error("event", "uid", t.UID, "error", err.Error())
	}
}
