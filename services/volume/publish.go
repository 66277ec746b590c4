package volume

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// publish writes a pod's item, unless the pod is gone by now.
func (s *Service) publish(ctx context.Context, w *podWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[w.uid] != w {
		return
	}
	if _, err := s.owned.Set(ctx, string(w.uid), w.item()); err != nil {
		s.kit.Log.Error("publish", "uid", string(w.uid), "error", err.Error())
	}
}

func (w *podWork) item() *volumev1.PodVolumes {
	item := &volumev1.PodVolumes{Uid: string(w.uid), Withdrawing: w.withdrawing, Ready: w.pod != nil && !w.withdrawing}
	for _, name := range w.found {
		item.Volumes = append(item.Volumes, &volumev1.Volume{Name: name, State: volumev1.VolumeState_VOLUME_STATE_MOUNTED, Step: "found on disk"})
	}
	if w.withdrawing {
		if w.stuck != nil {
			item.Volumes = append(item.Volumes, w.stuck.wire("", ""))
		}
		return item
	}
	if w.pod == nil {
		return item
	}
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		state := w.volumes[v.Name]
		if state == nil {
			state = &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_PENDING, step: "not begun"}
		}
		item.Ready = item.Ready && state.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED
		item.Volumes = append(item.Volumes, state.wire(v.Name, content.Plugin(v)))
	}
	return item
}

func (w *volumeWork) wire(name, plugin string) *volumev1.Volume {
	v := &volumev1.Volume{Name: name, Plugin: plugin, State: w.state, HostPath: w.path, Step: w.step, Relabel: w.relabel}
	if w.err != nil {
		v.Error = w.err.Error()
	}
	if !w.since.IsZero() {
		v.Since = timestamppb.New(w.since)
	}
	if !w.retry.IsZero() {
		v.RetryAt = timestamppb.New(w.retry)
	}
	return v
}
