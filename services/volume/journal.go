// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// restore takes up the journal and what is on disk beside it.
func (k *maker) restore() error {
	all, err := k.journal.All()
	if err != nil {
		return err
	}
	for uid, i := range all {
		w, err := k.restored(types.UID(uid), i)
		if err != nil {
			k.log.Error("intent skipped", "uid", uid, "error", err.Error())
			continue
		}
		k.pods.all[w.uid] = w
	}
	found, err := k.host.Found()
	if err != nil {
		return fmt.Errorf("volumes on disk: %w", err)
	}
	for uid, names := range found {
		k.metrics.reconstructed.Add(float64(len(names)))
		if w := k.pods.all[uid]; w == nil || w.pod == nil {
			k.metrics.reconstructErrors.Add(float64(len(names)))
		}
		switch w := k.pods.all[uid]; {
		case w == nil:
			k.pods.all[uid] = newWork(uid)
			k.pods.all[uid].found = names
		case w.pod == nil:
			w.found = names // its removal was under way
		}
	}
	return nil
}

func (k *maker) restored(uid types.UID, i intent) (*podWork, error) {
	w := newWork(uid)
	w.withdrawing, w.asked = i.Withdrawing, k.in.now()
	if len(i.Pod) > 0 {
		p := &v1.Pod{}
		if err := p.Unmarshal(i.Pod); err != nil {
			return nil, err
		}
		p.Spec.Volumes = pod.UsedVolumes(p) // version 0.1 kept all
		w.declared(p)
		w.volumes = k.standing(p)
	}
	w.touch()
	return w, nil
}

// save writes a pod's intent; when it returns nil, the intent is on disk.
// Callers hold the pod's turn, and not mu: writers at the same time share a
// flush.
func (k *maker) save(uid types.UID, p *v1.Pod, withdrawing bool) error {
	i := intent{Withdrawing: withdrawing}
	if p != nil {
		data, err := p.Marshal()
		if err != nil {
			return err
		}
		i.Pod = data
	}
	return k.journal.Put(string(uid), i)
}
