// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// publishPods brings config.pods in line with the state. Removed pods go first.
func (s *Service) publishPods(ctx context.Context) {
	l := &s.loop
	diff := merge.Compare(l.published, l.state)
	for _, uid := range diff.Removed {
		if source := l.published.Pods[uid].Source; source != pod.SourceAPI {
			delete(l.readAt, source) // it is further on now
		}
		s.feeds.pods.Delete(ctx, string(uid))
		s.feeds.statuses.Delete(ctx, string(uid))
		p := l.published.Pods[uid]
		s.log.Info("pod not desired any more", service.KeyPod, p.Pod.Namespace+"/"+p.Pod.Name, service.KeyUID, string(uid), "source", p.Source)
	}
	if l.state.Only == nil {
		for uid := range l.kept { // also what the store had, and was never published in this life
			if l.state.Pods[uid] == nil {
				s.keeper.Pods.Delete(string(uid))
				delete(l.kept, uid)
			}
		}
	}
	for _, p := range diff.Changed {
		s.publishStatus(ctx, p)
		s.publishPod(ctx, p)
	}
	for _, p := range diff.Reported {
		s.publishStatus(ctx, p)
		message, err := desired(p)
		if err == nil {
			err = s.feeds.pods.Amend(string(p.Pod.UID), message)
		}
		if err != nil {
			s.log.Error("pod not published", service.KeyUID, string(p.Pod.UID), service.KeyError, err.Error())
		}
	}
}

// publishPod publishes, and keeps, a pod that is new or has changed.
func (s *Service) publishPod(ctx context.Context, p *merge.Pod) {
	l, uid := &s.loop, string(p.Pod.UID)
	message, err := desired(p)
	if err != nil {
		s.log.Error("pod not published", service.KeyUID, uid, service.KeyError, err.Error())
		return
	}
	if _, had := l.published.Pods[p.Pod.UID]; !had {
		s.log.Info("pod desired", service.KeyPod, p.Pod.Namespace+"/"+p.Pod.Name, service.KeyUID, uid, "source", p.Source, "origin", p.Origin)
		s.ahead.arrived(p)
	}
	if was := l.kept[p.Pod.UID]; was != p {
		kept := proto.Clone(message).(*configv1.DesiredPod)
		kept.Mirror = nil
		s.keepPod(uid, was, p, kept)
		l.kept[p.Pod.UID] = p
	}
	if _, err := s.feeds.pods.Set(ctx, uid, message); err != nil {
		s.log.Error("pod not published", service.KeyUID, uid, service.KeyError, err.Error())
	}
}

// publishStatus publishes the status of a pod that the API server has listed.
func (s *Service) publishStatus(ctx context.Context, p *merge.Pod) {
	if !p.Listed() {
		return
	}
	from := p.Pod
	message, err := podObject(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: from.Namespace, Name: from.Name, UID: from.UID,
			ResourceVersion: from.ResourceVersion, DeletionTimestamp: from.DeletionTimestamp,
		},
		Status: from.Status,
	})
	if err == nil {
		_, err = s.feeds.statuses.Set(ctx, string(from.UID), message)
	}
	if err != nil {
		s.log.Error("status of pod not published", service.KeyUID, string(from.UID), service.KeyError, err.Error())
	}
}

// keepPod writes a pod soon; at once where its manifest was written again, which
// no later reading of the folder shows.
func (s *Service) keepPod(uid string, was, next *merge.Pod, kept *configv1.DesiredPod) {
	if was == nil || !next.Begun.After(was.Begun) {
		s.keeper.Pods.Put(uid, kept)
		return
	}
	s.log.Info("manifest was removed and written again", service.KeyPod, next.Pod.Namespace+"/"+next.Pod.Name, service.KeyUID, uid, "origin", next.Origin)
	if err := s.keeper.Pods.Now(uid, kept); err != nil {
		s.log.Error("state not kept", service.KeyUID, uid, service.KeyError, err.Error())
	}
}

// publishMirrors brings config.mirrors in line with the state.
func (s *Service) publishMirrors(ctx context.Context) {
	l := &s.loop
	for key := range l.published.Mirrors {
		if _, ok := l.state.Mirrors[key]; !ok {
			s.feeds.mirrors.Delete(ctx, key)
		}
	}
	for key, m := range l.state.Mirrors {
		if l.published.Mirrors[key] == m {
			continue
		}
		message, err := podObject(m)
		if err == nil {
			_, err = s.feeds.mirrors.Set(ctx, key, message)
		}
		if err != nil {
			s.log.Error("mirror pod not published", service.KeyPod, key, service.KeyError, err.Error())
		}
	}
}

// publishSources brings config.sources in line with the state, and tells each
// new problem once.
func (s *Service) publishSources(ctx context.Context) {
	l := &s.loop
	configured, problems := map[string]bool{}, map[problemKey]bool{}
	for _, source := range l.state.Sources {
		configured[source.Name] = true
		message := &configv1.Source{
			Name: source.Name, Complete: source.Heard, Error: source.Err, PodsRevision: s.readAt(source),
		}
		for _, p := range source.Ignored {
			key := problemKey{p.Origin, p.Field, p.Message}
			problems[key] = true
			if !l.problems[key] {
				s.log.Warn("manifest is used in part", "origin", p.Origin, "field", p.Field, "message", p.Message)
				s.report.warn(ctx, nil, "ManifestUsedInPart", p.Origin+": "+p.Message)
			}
		}
		for _, p := range source.Problems {
			message.Problems = append(message.Problems, &configv1.Problem{Origin: p.Origin, Field: p.Field, Message: p.Message})
			key := problemKey{p.Origin, p.Field, p.Message}
			problems[key] = true
			if !l.problems[key] {
				s.log.Error("manifest refused", "origin", p.Origin, "field", p.Field, service.KeyError, p.Message)
				s.report.warn(ctx, p.Pod, "FailedValidation", p.Origin+": "+p.Message)
			}
		}
		if _, err := s.feeds.sources.Set(ctx, source.Name, message); err != nil {
			s.log.Error("source not published", "source", source.Name, service.KeyError, err.Error())
		}
	}
	for _, name := range s.feeds.sources.Keys() {
		if !configured[name] {
			s.feeds.sources.Delete(ctx, name)
		}
	}
	l.problems = problems
}

// readAt is the revision of config.pods that lacks what a source of manifests
// does not have, and has what the API server listed first; nil while the source was
// not heard. It moves on only when a pod of a manifest went, so that the feed stays
// quiet otherwise.
func (s *Service) readAt(source merge.Source) *feedv1.Revision {
	l := &s.loop
	if !source.Heard {
		delete(l.readAt, source.Name)
		return nil
	}
	if l.readAt[source.Name] == nil {
		revision, _, _ := s.feeds.pods.State()
		l.readAt[source.Name] = revision.Proto()
	}
	return l.readAt[source.Name]
}

// publishObject is called by the manager, one at a time.
func (s *Service) publishObject(ref refs.Ref, message *configv1.Object) {
	ctx := context.Background()
	owner := s.feeds.objects
	if ref.Kind == refs.Secret {
		owner = s.feeds.secrets
	}
	key := ref.Key()
	switch {
	case s.restoring:
	case message.GetAbsent():
		s.keeper.Objects.Delete(key)
	case message.GetError() == "" && len(message.GetObject()) > 0:
		s.keeper.Objects.Put(key, message)
	}
	if _, err := owner.Set(ctx, key, message); err != nil {
		s.log.Error("object not published", "object", key, service.KeyError, err.Error())
	}
}

// withdrawObject is called by the manager, one at a time.
func (s *Service) withdrawObject(ref refs.Ref) {
	ctx := context.Background()
	key := ref.Key()
	if isSecret(key) {
		s.feeds.secrets.Delete(ctx, key)
	} else {
		s.feeds.objects.Delete(ctx, key)
	}
	s.keeper.Objects.Delete(key)
}

// desired is the wire form of an accepted pod.
func desired(p *merge.Pod) (*configv1.DesiredPod, error) {
	data, err := p.Pod.Marshal()
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.String(p.Pod), err)
	}
	message := &configv1.DesiredPod{Pod: data, Source: p.Source, Origin: p.Origin, SeenAt: timestamppb.New(p.Seen), BegunAt: wire.Time(p.Begun), StatusApart: p.Source == pod.SourceAPI}
	if p.Mirror != nil {
		if message.Mirror, err = p.Mirror.Marshal(); err != nil {
			return nil, fmt.Errorf("mirror of pod %s: %w", pod.String(p.Pod), err)
		}
	}
	return message, nil
}

// podObject is the wire form of a pod at the API server.
func podObject(m *v1.Pod) (*configv1.Object, error) {
	data, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.String(m), err)
	}
	return &configv1.Object{Kind: "Pod", Namespace: m.Namespace, Name: m.Name, Object: data}, nil
}

func isSecret(key string) bool { return strings.HasPrefix(key, refs.Secret+"/") }
