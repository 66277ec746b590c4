package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
)

// mostWait is the longest that something not known yet is not asked for again.
const mostWait = 5 * time.Second

// tellWait is how long a volume is waited for before an event says so (the
// kubelet's).
const tellWait = 2*time.Minute + 3*time.Second

// volumeWork is one volume's state. It is replaced, never changed.
type volumeWork struct {
	state   volumev1.VolumeState
	path    string
	relabel bool
	step    string
	err     error
	said    string // the error an event was made for, and when
	saidAt  time.Time
	since   time.Time
	retry   time.Time
	failed  int
}

// standing are the volumes of a pod that were made in an earlier life of this
// service, or by another agent: containers go on with them, and new ones may
// start, before they have been made sure of again.
func (s *Service) standing(p *v1.Pod) map[string]*volumeWork {
	all := map[string]*volumeWork{}
	now := s.now()
	for i := range p.Spec.Volumes {
		path, ok := s.host.Standing(p, &p.Spec.Volumes[i])
		if !ok {
			path, ok = s.csi.Standing(p.UID, p.Spec.Volumes[i].Name)
		}
		if !ok {
			path, ok = s.disks.Device(p.UID, p.Spec.Volumes[i].Name)
		}
		if ok {
			all[p.Spec.Volumes[i].Name] = &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_MOUNTED, path: path, relabel: relabels(&p.Spec.Volumes[i]), since: now}
		}
	}
	return all
}

// setUp makes sure of every volume of a pod, and returns when to look again.
func (s *Service) setUp(ctx context.Context, w *podWork, p *v1.Pod) (due time.Time) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		had := s.begin(w, v)
		began := s.now()
		l := lookups{ctx: ctx, s: s, needs: map[string]bool{}}
		m, err := s.one(l, w, p, v)
		if !errors.Is(err, content.ErrWait) {
			s.metrics.mounted(content.Plugin(v), err, s.now().Sub(began))
		}
		now := s.judge(ctx, p, v, had, m, err)
		s.mu.Lock()
		w.volumes[v.Name] = now
		w.needs[v.Name] = l.needs
		asked := w.asked
		s.mu.Unlock()
		const mounted = volumev1.VolumeState_VOLUME_STATE_MOUNTED
		if now.state == mounted && (had == nil || had.state != mounted) {
			s.metrics.whole.WithLabelValues(content.Plugin(v), "overall_volume_mount").Observe(now.since.Sub(asked).Seconds())
		}
		for _, t := range []time.Time{now.retry, m.refresh} {
			if !t.IsZero() && (due.IsZero() || t.Before(due)) {
				due = t
			}
		}
	}
	return due
}

// begin says what is being done, should it take long, and returns how the
// volume was.
func (s *Service) begin(w *podWork, v *v1.Volume) *volumeWork {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.volumes == nil {
		w.volumes = map[string]*volumeWork{}
	}
	if w.needs == nil {
		w.needs = map[string]map[string]bool{}
	}
	had := w.volumes[v.Name]
	doing := volumeWork{state: volumev1.VolumeState_VOLUME_STATE_PENDING, since: s.now()}
	if had != nil {
		doing = *had
	}
	doing.step = "set up " + content.Plugin(v)
	w.volumes[v.Name] = &doing
	return had
}

// made is a volume that was made sure of.
type made struct {
	path string
	// relabel: on a node with SELinux the runtime labels its files.
	relabel bool
	// refresh is when to look again; zero for never.
	refresh time.Time
}

// relabels tells whether the runtime labels a volume's files, as far as the pod says: not
// those of the host or of a server. Those of a claim depend on what it leads to.
func relabels(v *v1.Volume) bool {
	plugin := content.Plugin(v)
	return plugin == content.EmptyDir || content.HasFiles(plugin)
}

// one makes sure of one volume.
func (s *Service) one(l lookups, w *podWork, p *v1.Pod, v *v1.Volume) (m made, err error) {
	if err := fault.Hit(l.ctx, "volume.setup"); err != nil {
		return m, err
	}
	m.relabel = relabels(v)
	switch plugin := content.Plugin(v); {
	case plugin == content.EmptyDir:
		memory := int64(0)
		if v.EmptyDir.Medium == v1.StorageMediumMemory {
			if memory, err = memoryBound(l, p, v.EmptyDir.SizeLimit); err != nil {
				return m, err
			}
		}
		m.path, err = s.host.EmptyDir(p, v, memory)
		return m, err
	case plugin == content.HostPath:
		m.path, err = s.host.HostPath(v)
		return m, err
	case plugin == content.Image:
		return m, nil // the runtime mounts it with the container
	case content.HasFiles(plugin):
		set, err := content.Files(p, v, l)
		if err != nil {
			return m, err
		}
		if content.InMemory(v) {
			if set.Memory, err = memoryBound(l, p, nil); err != nil && !errors.Is(err, content.ErrWait) { // they are small: no need to wait
				return m, err
			}
		}
		m.refresh = set.Refresh
		m.path, err = s.host.Files(p, v, set, s.now())
		return m, err
	case plugin == content.Claim:
		return s.claimed(l, w, p, v)
	case plugin == content.NFS:
		m.path, err = s.nfs(l.ctx, w, p, v, nfsVolume{Name: v.Name, Source: v.NFS, ReadOnly: v.NFS.ReadOnly})
		return m, err
	case plugin == content.ISCSI, plugin == content.FC:
		asked, err := inlineDisk(p, v)
		if err != nil {
			return m, err
		}
		m.relabel = !asked.ReadOnly
		m.path, err = s.disk(l, w, p, v, plugin, v.Name, asked)
		return m, err
	case plugin == content.CSI:
		return s.driven(l, w, p, v, nil)
	default:
		return m, content.Unsupported(v)
	}
}

// memoryBound is the size of a volume in memory: the smallest of its own limit,
// the memory limit of the pod's cgroup and the node's allocatable memory
// (KEP-1967).
func memoryBound(l lookups, p *v1.Pod, limit *resource.Quantity) (int64, error) {
	var bound int64
	smaller := func(n int64) {
		if n > 0 && (bound == 0 || n < bound) {
			bound = n
		}
	}
	if limit != nil {
		smaller(limit.Value())
	}
	if cgroup := pod.PodCgroupResources(p, true, cpuPeriod).Memory; cgroup != nil {
		smaller(*cgroup)
	}
	allocatable, err := l.Allocatable()
	if err != nil && bound == 0 {
		return 0, fmt.Errorf("node allocatable: %w", err)
	}
	smaller(allocatable.Memory().Value())
	return bound, nil
}

// cpuPeriod is of no account for memory.
const cpuPeriod = 100 * time.Millisecond

// judge turns a step's outcome into the volume's state, and says a new failure
// as the kubelet's event FailedMount.
func (s *Service) judge(ctx context.Context, p *v1.Pod, v *v1.Volume, had *volumeWork, m made, err error) *volumeWork {
	now := s.now()
	w := &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_MOUNTED, path: m.path, relabel: m.relabel, since: now}
	if had != nil && had.state == w.state && err == nil {
		w.since = had.since
	}
	if err == nil {
		return w
	}
	w.state, w.err, w.step = volumev1.VolumeState_VOLUME_STATE_PENDING, err, "set up "+content.Plugin(v)
	if had != nil {
		w.failed, w.said, w.saidAt = had.failed, had.said, had.saidAt
		if had.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED {
			// What is mounted stays; containers go on with what they have.
			w.state, w.path, w.relabel, w.since = had.state, had.path, had.relabel, had.since
		} else {
			w.since = had.since
		}
	}
	w.failed++
	var wait *demand.Wait
	if errors.Is(err, content.ErrWait) || errors.As(err, &wait) {
		// What comes wakes us; a service that comes back does not. No event: it is
		// nobody's fault, and may be over at once.
		w.step, w.retry = "wait for what it is made of", now.Add(min(backoff(w.failed), mostWait))
		if wait != nil {
			w.step = "wait for being attached"
		}
		if w.state == volumev1.VolumeState_VOLUME_STATE_PENDING && now.Sub(w.since) >= tellWait && w.tells(err.Error(), now) {
			s.emit(ctx, podReference(p), v1.EventTypeWarning, reasonNoMount, fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[]: %s", v.Name, w.said))
		}
		return w
	}
	w.retry = now.Add(backoff(w.failed))
	if text := err.Error(); w.tells(text, now) {
		reason := reasonNoMount
		var grows *csi.ExpandError
		switch {
		case errors.As(err, &grows) && w.state == volumev1.VolumeState_VOLUME_STATE_MOUNTED:
			reason = reasonNotGrown
		case !strings.HasPrefix(text, "MountVolume."): // it says which step
			text = fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, text)
		}
		s.emit(ctx, podReference(p), v1.EventTypeWarning, reason, text)
	}
	return w
}

func podReference(p *v1.Pod) *eventv1.ObjectReference {
	return &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
}

func claimReference(c *v1.PersistentVolumeClaim) *eventv1.ObjectReference {
	return &eventv1.ObjectReference{ApiVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}
}

func (s *Service) emit(ctx context.Context, about *eventv1.ObjectReference, kind, reason, message string) {
	err := s.events.Emit(ctx, &eventv1.Event{Object: about, Type: kind, Reason: reason, Message: message, Time: timestamppb.New(s.now())})
	if err != nil {
		s.kit.Log.Error("event", "uid", about.GetUid(), "error", err.Error())
	}
}

// tells tells whether an event is due about an error: a new one, or one that lasts.
func (w *volumeWork) tells(text string, now time.Time) bool {
	if text == w.said && now.Sub(w.saidAt) < pod.EventReminder {
		return false
	}
	w.said, w.saidAt = text, now
	return true
}
