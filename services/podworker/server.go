package podworker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
	"github.com/sextant-node/sextant/services/podworker/internal/logs"
)

// config is the effective configuration; nil until it is known.
func (s *Service) config() *kubeconf.Config {
	if s.loop == nil {
		return nil
	}
	return s.loop.Config()
}

// configSource gives actuators the configuration.
type configSource func() *kubeconf.Config

// Config implements actuate.Configuration.
func (f configSource) Config() *kubeconf.Config { return f() }

// logPods finds pods for readers of logs.
type logPods struct{ l *loop }

// Pod implements logs.Pods. Of two pods of one name the one that config lists is
// meant; a static pod also answers to its mirror's name, which is its own.
func (p logPods) Pod(namespace, name string) (logs.Pod, bool) {
	l := p.l
	uid, spec := "", (*v1.Pod)(nil)
	for key, d := range l.in.Pods.Items() {
		if d.Pod.Namespace == namespace && d.Pod.Name == name {
			uid, spec = key, d.Pod
			break
		}
	}
	for _, key := range l.states.Keys() {
		if uid != "" {
			break
		}
		state, ok := l.states.Get(key)
		if !ok || state.GetNamespace() != namespace || state.GetName() != name || len(state.GetPod()) == 0 {
			continue
		}
		kept := &v1.Pod{}
		if err := kept.Unmarshal(state.GetPod()); err == nil {
			uid, spec = key, kept
		}
	}
	if uid == "" {
		return logs.Pod{}, false
	}
	found := logs.Pod{Spec: spec, Waiting: map[string]string{}}
	if record, ok := l.in.Records.Get(uid); ok {
		for _, c := range record.Containers {
			found.Statuses = append(found.Statuses, record.Statuses[c.ID])
		}
	}
	if state, ok := l.states.Get(uid); ok {
		found.Refused = state.GetLifecycle() == podworkerv1.Lifecycle_LIFECYCLE_REJECTED
		for _, wait := range state.GetWaits() {
			found.Waiting[wait.GetContainer()] = wait.GetReason()
		}
	}
	return found, true
}

// usedImages are those that containers were made from, or will be; not known
// until both feeds are complete.
func (s *Service) usedImages() (images.Used, bool) {
	if !s.in.Records.Complete() || !s.in.Pods.Complete() {
		return nil, false
	}
	used := images.Used{}
	for _, r := range s.in.Records.Items() {
		if r.Error != "" {
			return nil, false
		}
		for _, status := range r.Statuses {
			used[status.GetImageRef()], used[status.GetImageId()], used[status.GetImage().GetImage()] = true, true, true
			for _, m := range status.GetMounts() {
				if image := m.GetImage().GetImage(); image != "" {
					used[image] = true
				}
			}
		}
	}
	for _, d := range s.in.Pods.Items() {
		for _, c := range pod.Containers(d.Pod) {
			used[c.Image] = true
		}
		for i := range d.Pod.Spec.Volumes {
			if image := d.Pod.Spec.Volumes[i].Image; image != nil {
				used[image.Reference] = true
			}
		}
	}
	delete(used, "")
	return used, true
}
