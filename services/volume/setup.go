package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// volumeWork is one volume's state.
type volumeWork struct {
	state  volumev1.VolumeState
	path   string
	step   string
	err    error
	said   string // the error an event was made for
	since  time.Time
	retry  time.Time
	failed int
}

// dependsOnObjects tells whether a pod has volumes made of API objects or of
// the node's resources.
func dependsOnObjects(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if content.HasFiles(content.Plugin(&p.Spec.Volumes[i])) {
			return true
		}
	}
	return false
}

// setUp makes sure of every volume of a pod, and returns when to look again.
func (s *Service) setUp(ctx context.Context, w *podWork, p *v1.Pod) (due time.Time) {
	next := map[string]*volumeWork{}
	soonest := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		s.mu.Lock()
		had := w.volumes[v.Name]
		s.mu.Unlock()
		began := s.now()
		path, refresh, err := s.one(ctx, w, p, v)
		s.metrics.observe(content.Plugin(v), err, s.now().Sub(began))
		now := s.judge(ctx, p, v, had, path, err)
		next[v.Name] = now
		soonest(now.retry)
		soonest(refresh)
		if err == nil && !w.finished[v.Name] {
			s.finish(w, v.Name)
		}
	}
	s.mu.Lock()
	w.volumes = next
	s.mu.Unlock()
	return due
}

// finish journals that a volume was completed once.
func (s *Service) finish(w *podWork, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := map[string]bool{name: true}
	for done := range w.finished {
		finished[done] = true
	}
	w.finished = finished
	if w.withdrawing {
		return // the journal has the later intent
	}
	if err := s.save(w); err != nil {
		s.kit.Log.Error("journal", "uid", string(w.uid), "error", err.Error())
	}
}

// one makes sure of one volume.
func (s *Service) one(ctx context.Context, w *podWork, p *v1.Pod, v *v1.Volume) (path string, refresh time.Time, err error) {
	if err := fault.Hit(ctx, "volume.setup"); err != nil {
		return "", time.Time{}, err
	}
	switch plugin := content.Plugin(v); {
	case plugin == content.EmptyDir:
		memory, err := s.memoryBound(ctx, p, v)
		if err != nil {
			return "", time.Time{}, err
		}
		path, err = s.host.EmptyDir(p, v, memory, w.finished[v.Name])
		return path, time.Time{}, err
	case plugin == content.HostPath:
		path, err = s.host.HostPath(v)
		return path, time.Time{}, err
	case plugin == content.Image:
		return "", time.Time{}, nil // the runtime mounts it with the container
	case content.HasFiles(plugin):
		set, err := content.Files(p, v, lookups{ctx, s})
		if err != nil {
			return "", time.Time{}, err
		}
		path, err = s.host.Files(p, v, set, s.now())
		return path, set.Refresh, err
	default:
		return "", time.Time{}, fmt.Errorf("%s: %w", plugin, errUnsupported)
	}
}

// memoryBound is the size of a Memory medium: the smallest of the volume's
// limit, the pod's memory limit and the node's allocatable memory (KEP-1967).
func (s *Service) memoryBound(ctx context.Context, p *v1.Pod, v *v1.Volume) (int64, error) {
	if v.EmptyDir.Medium != v1.StorageMediumMemory {
		return 0, nil
	}
	var bound int64
	smaller := func(n int64) {
		if n > 0 && (bound == 0 || n < bound) {
			bound = n
		}
	}
	if v.EmptyDir.SizeLimit != nil {
		smaller(v.EmptyDir.SizeLimit.Value())
	}
	limits := pod.Limits(p)
	smaller(limits.Memory().Value())
	allocatable, err := lookups{ctx, s}.Allocatable()
	if err != nil && bound == 0 {
		return 0, fmt.Errorf("node allocatable: %w", err)
	}
	smaller(allocatable.Memory().Value())
	return bound, nil
}

// judge turns a step's outcome into the volume's state, and says a new failure
// as the kubelet's event FailedMount.
func (s *Service) judge(ctx context.Context, p *v1.Pod, v *v1.Volume, had *volumeWork, path string, err error) *volumeWork {
	now := s.now()
	w := &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_MOUNTED, path: path, since: now}
	if had != nil && had.state == w.state && err == nil {
		w.since = had.since
	}
	if err == nil {
		return w
	}
	w.state, w.err, w.step = volumev1.VolumeState_VOLUME_STATE_PENDING, err, "set up "+content.Plugin(v)
	if had != nil {
		w.failed, w.said = had.failed, had.said
		if had.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED {
			// What is mounted stays; containers go on with what they have.
			w.state, w.path, w.since = had.state, had.path, had.since
		} else {
			w.since = had.since
		}
	}
	w.failed++
	w.retry = now.Add(backoff(w.failed))
	if errors.Is(err, content.ErrWait) {
		w.step = "wait for config"
		return w // its change wakes us; no event, as it may come at once
	}
	if text := err.Error(); text != w.said {
		w.said = text
		s.emit(ctx, p, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, text))
	}
	return w
}

func (s *Service) emit(ctx context.Context, p *v1.Pod, message string) {
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)},
		Type:   v1.EventTypeWarning, Reason: "FailedMount", Message: message, Time: timestamppb.New(s.now()),
	})
	if err != nil {
		s.kit.Log.Error("event", "uid", string(p.UID), "error", err.Error())
	}
}

// publish writes a pod's item, unless the pod is gone by now.
func (s *Service) publish(ctx context.Context, w *podWork) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[w.uid] != w {
		return nil
	}
	_, err := s.owned.Set(ctx, string(w.uid), w.item())
	return err
}

func (w *podWork) item() *volumev1.PodVolumes {
	item := &volumev1.PodVolumes{Uid: string(w.uid), Withdrawing: w.withdrawing, Ready: w.pod != nil && !w.withdrawing}
	for _, name := range w.found {
		item.Volumes = append(item.Volumes, &volumev1.Volume{Name: name, State: volumev1.VolumeState_VOLUME_STATE_MOUNTED, Step: "found on disk"})
	}
	if w.withdrawing {
		if failure := w.volumes[""]; failure != nil {
			item.Volumes = append(item.Volumes, failure.wire("", ""))
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
	v := &volumev1.Volume{Name: name, Plugin: plugin, State: w.state, HostPath: w.path, Step: w.step}
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
