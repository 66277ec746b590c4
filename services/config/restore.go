// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// restore reads what an earlier life accepted: the pods of this node, and, into
// the manager and the cache, objects and tokens. A record that is of no use is
// left out.
func (s *Service) restore() ([]*merge.Pod, error) {
	records, err := s.keeper.Pods.All()
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	current, _ := s.configuration.get()
	var pods []*merge.Pod
	for key, record := range records {
		p := &v1.Pod{}
		if err := p.Unmarshal(record.GetPod()); err != nil {
			s.log.Error("kept pod skipped", service.KeyUID, key, service.KeyError, err.Error())
			continue
		}
		if p.Spec.NodeName != current.Node.Name || string(p.UID) != key || pod.CheckUID(p.UID) != nil {
			s.keeper.Pods.Delete(key) // the node was called otherwise then, or the pod would be refused now
			continue
		}
		pods = append(pods, &merge.Pod{
			Pod: p, Source: record.GetSource(), Origin: record.GetOrigin(), Seen: record.GetSeenAt().AsTime(), Begun: wire.TimeOf(record.GetBegunAt()),
		})
	}
	if err := s.restoreObjects(); err != nil {
		return nil, err
	}
	tokens, err := s.keeper.Tokens.All()
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	boot, err := service.BootID()
	if err != nil {
		return nil, err
	}
	s.tokens = token.New(token.Config{
		Issue: token.Patient(s.session.issue), Keep: s.keeper.Tokens.Put, Drop: s.keeper.Tokens.Delete, Now: s.now,
		Boot: boot,
		Renewal: func(r token.Request, err error) {
			s.log.Warn("token not renewed", service.KeyPod, r.Namespace+"/"+r.PodName, service.KeyError, err.Error())
		},
	}, tokens)
	return pods, nil
}

func (s *Service) restoreObjects() error {
	records, err := s.keeper.Objects.All()
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	s.restoring = true
	defer func() { s.restoring = false }()
	for key, record := range records {
		ref := refs.Ref{Kind: record.GetKind(), Namespace: record.GetNamespace(), Name: record.GetName()}
		if err := s.objects.Restore(ref, record); err != nil {
			s.log.Error("kept object skipped", "object", key, service.KeyError, err.Error())
		}
	}
	return nil
}
