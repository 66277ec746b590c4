// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// restore takes up the journal and what is on disk beside it.
func (s *Service) restore() error {
	all, err := s.maker.journal.All()
	if err != nil {
		return err
	}
	for uid, i := range all {
		w, err := s.restored(types.UID(uid), i)
		if err != nil {
			s.kit.Log.Error("intent skipped", "uid", uid, "error", err.Error())
			continue
		}
		s.pods.all[w.uid] = w
	}
	found, err := s.maker.host.Found()
	if err != nil {
		return fmt.Errorf("volumes on disk: %w", err)
	}
	for uid, names := range found {
		s.maker.metrics.reconstructed.Add(float64(len(names)))
		if w := s.pods.all[uid]; w == nil || w.pod == nil {
			s.maker.metrics.reconstructErrors.Add(float64(len(names)))
		}
		switch w := s.pods.all[uid]; {
		case w == nil:
			s.pods.all[uid] = newWork(uid)
			s.pods.all[uid].found = names
		case w.pod == nil:
			w.found = names // its removal was under way
		}
	}
	return nil
}

func (s *Service) restored(uid types.UID, i intent) (*podWork, error) {
	w := newWork(uid)
	w.withdrawing, w.asked = i.Withdrawing, s.clock.Now()
	w.touch()
	if len(i.Pod) == 0 {
		return w, nil
	}
	w.pod = &v1.Pod{}
	if err := w.pod.Unmarshal(i.Pod); err != nil {
		return nil, err
	}
	w.volumes = s.maker.standing(w.pod)
	return w, nil
}

// save writes a pod's intent; when it returns nil, the intent is on disk.
// Callers hold the pod's turn, and not mu: writers at the same time share a
// flush.
func (s *Service) save(uid types.UID, p *v1.Pod, withdrawing bool) error {
	i := intent{Withdrawing: withdrawing}
	if p != nil {
		data, err := p.Marshal()
		if err != nil {
			return err
		}
		i.Pod = data
	}
	return s.maker.journal.Put(string(uid), i)
}
