// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/store"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Reasons of events about volumes (the kubelet's).
const (
	reasonNoMount  = "FailedMount"
	reasonNotGrown = "VolumeResizeFailed"
)

// mostWait is the longest that something not known yet is not asked for again.
const mostWait = 5 * time.Second

// reportWait is how long a volume is waited for before an event says so (the kubelet's).
const reportWait = 2*time.Minute + 3*time.Second

// maker makes and removes the volumes of pods, one at a time in each lane of a pod.
type maker struct {
	in      *inputs
	host    Host
	plugins plugin.Registry
	pods    *pods
	node    *nodeItem
	left    *reaper
	journal *store.Table[intent]
	metrics *metrics
	limits  *limits
	log     *slog.Logger
}

// standing are the volumes of a pod that an earlier process of this service or another
// agent made: containers go on with them, and new ones may start, before they have been
// made sure of again.
func (k *maker) standing(p *v1.Pod) map[string]*volumeWork {
	all, now := map[string]*volumeWork{}, k.in.now()
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if m, ok := k.plugins.Standing(p, v); ok {
			all[v.Name] = &volumeWork{state: mounted, made: m, since: now}
		}
	}
	return all
}

// setUp makes sure of these volumes of a pod, and returns when to look again.
func (k *maker) setUp(ctx context.Context, w *podWork, p *v1.Pod, volumes []string) (due time.Time) {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; slices.Contains(volumes, v.Name) {
			due = earlier(due, k.ensure(ctx, w, p, v))
		}
	}
	return due
}

// ensure makes sure of one volume of a pod, notes how it is, and returns when to look again.
func (k *maker) ensure(ctx context.Context, w *podWork, p *v1.Pod, v *v1.Volume) (due time.Time) {
	plugin := volumetype.Of(v).Plugin
	had := k.begin(w, v)
	began, needs := k.in.now(), map[string]bool{}
	m, err := k.one(lookups{inputs: k.in, ctx: ctx, note: func(key string) {
		k.pods.mu.Lock()
		defer k.pods.mu.Unlock()
		needs[key] = true
		w.need(v.Name, key)
	}}, w, p, v)
	if !errors.Is(err, content.ErrWait) {
		k.metrics.mounted(plugin, err, k.in.now().Sub(began))
	}
	now := k.judge(ctx, p, v, had, m, err)
	k.pods.mu.Lock()
	w.volumes[v.Name], w.needs[v.Name] = now, needs
	asked := w.asked
	k.pods.mu.Unlock()
	if now.state == mounted && (had == nil || had.state != mounted) {
		k.metrics.whole.WithLabelValues(plugin, "overall_volume_mount").Observe(now.since.Sub(asked).Seconds())
	}
	return earlier(now.retry, m.Refresh)
}

// earlier is the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// begin publishes what is being done, should it take long, and returns how the volume was.
func (k *maker) begin(w *podWork, v *v1.Volume) *volumeWork {
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	had := w.volumes[v.Name]
	doing := ptr.Deref(had, volumeWork{state: pending, since: k.in.now()})
	doing.step = "set up " + volumetype.Of(v).Plugin
	w.volumes[v.Name] = &doing
	return had
}

// one makes sure of one volume.
func (k *maker) one(l lookups, w *podWork, p *v1.Pod, v *v1.Volume) (m plugin.Made, err error) {
	if err := fault.Hit(l.ctx, "volume.setup"); err != nil {
		return m, err
	}
	r := &plugin.Request{Pod: p, Volume: v, Objects: l, Report: volumeReport{k.node, w, v.Name}, Leaving: w.leaving}
	if volumetype.Indirect(p, v) {
		if r.Source, err = claim.Resolve(p, v, l); err != nil {
			return m, err
		}
	}
	of, err := k.plugins.For(r)
	if err != nil {
		return m, err
	}
	if m, err = of.Make(l.ctx, r); r.Type().Tools {
		err = toolError(err)
	}
	if errors.Is(err, context.Canceled) && w.leaving.Err() != nil {
		err = fmt.Errorf("%w: %w", content.ErrWait, err) // the pod is withdrawn: no failure
	}
	return m, err
}

// judge turns a step's outcome into the volume's state, and emits an event about a new
// failure.
func (k *maker) judge(ctx context.Context, p *v1.Pod, v *v1.Volume, had *volumeWork, m plugin.Made, err error) *volumeWork {
	now := k.in.now()
	w := &volumeWork{state: mounted, made: m, since: now}
	if err == nil {
		if had != nil && had.state == w.state {
			w.since = had.since
		}
		return w
	}
	w.state, w.err, w.step = pending, err, "set up "+volumetype.Of(v).Plugin
	if had != nil {
		w.failed, w.said, w.saidAt, w.since = had.failed, had.said, had.saidAt, had.since
		if had.state == mounted { // what is mounted stays; containers go on with what they have
			w.state, w.made = had.state, had.made
		}
	}
	w.failed++
	text := err.Error()
	var wait *demand.Wait
	var full *demand.Exhausted
	if errors.As(err, &full) {
		return k.noRoom(v, w, full)
	}
	if errors.Is(err, content.ErrWait) || errors.As(err, &wait) {
		// A change wakes the pass; a service that comes back does not. No event: it is no
		// failure, and may be over at once.
		w.step, w.retry = "wait for what it is made of", now.Add(min(retries.After(w.failed), mostWait))
		if wait != nil {
			w.step = "wait for being attached"
		}
		if w.state == pending && now.Sub(w.since) >= reportWait && w.reports(text, now) {
			k.pods.emit(ctx, plugin.PodReference(p), v1.EventTypeWarning, reasonNoMount, fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[]: %s", v.Name, text))
		}
		return w
	}
	w.retry = now.Add(retries.After(w.failed))
	if w.reports(text, now) {
		reason := reasonNoMount
		var grows *csi.ExpandError
		switch {
		case errors.As(err, &grows) && w.state == mounted:
			reason = reasonNotGrown
		case !strings.HasPrefix(text, "MountVolume."): // the error names the step
			text = fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, text)
		}
		k.pods.emit(ctx, plugin.PodReference(p), v1.EventTypeWarning, reason, text)
	}
	return w
}

// noRoom is a volume that cannot be attached for want of room on the node. Another pod may
// make room; a pod that has waited long enough is to go where there is some, which the
// scheduler finds by limits that are true.
func (k *maker) noRoom(v *v1.Volume, w *volumeWork, full *demand.Exhausted) *volumeWork {
	now := k.in.now()
	w.step, w.retry = "wait for being attached", now.Add(min(retries.After(w.failed), mostWait))
	if w.state != pending || now.Sub(w.since) < reportWait {
		return w
	}
	k.limits.exhausted(full.Driver)
	w.full = fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]s", v.Name, full.Message)
	return w
}

// toolError names what is missing where root's tools cannot be reached.
func toolError(err error) error {
	if rpc.Is(err, rpc.Unavailable) && strings.Contains(err.Error(), "connect: ") {
		return fmt.Errorf("what runs mount.nfs, iscsiadm and mount for this service (the supervisor, sextant-tools.service) is not there: %w", err)
	}
	return err
}

// remove removes a pod's volumes; the journal forgets it last. What they leave on the node
// is the reaper's.
func (k *maker) remove(ctx context.Context, w *podWork) (due time.Time, gone bool) {
	err := fault.Hit(ctx, "volume.remove")
	if err == nil {
		began := k.in.now()
		w.binding <- struct{}{} // a later call finds that the pod is withdrawing
		defer func() { <-w.binding }()
		if err = k.plugins.Unpublish(ctx, w.uid); err == nil {
			err = k.host.Remove(w.uid)
		}
		if err == nil {
			err = k.plugins.Release(ctx, w.uid)
		}
		k.left.look(ctx, false)
		k.node.publish(ctx)
		k.removed(w, err, began)
	}
	if err == nil {
		err = k.journal.Delete(string(w.uid))
	}
	if err == nil {
		return time.Time{}, true
	}
	k.log.Error("volumes not removed", "uid", string(w.uid), "error", err.Error())
	w.failed++
	now := k.in.now()
	due = now.Add(retries.After(w.failed))
	stuck := &volumeWork{state: volumev1.VolumeState_VOLUME_STATE_UNMOUNTING, step: "remove", err: err, since: now, retry: due}
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	if w.stuck != nil {
		stuck.since = w.stuck.since
	}
	w.stuck = stuck
	return due, false
}

// removed counts an attempt to remove a pod's volumes.
func (k *maker) removed(w *podWork, err error, began time.Time) {
	k.pods.mu.Lock()
	p, found := w.pod, w.found
	k.pods.mu.Unlock()
	if p != nil {
		k.metrics.unmounted(p, err, k.in.now().Sub(began))
		return
	}
	k.metrics.forced.Add(float64(len(found)))
	if err != nil {
		k.metrics.forcedErrors.Add(float64(len(found)))
	}
}

// retries are the kubelet's waits for volume operations.
var retries = backoff.Doubling{Least: 500 * time.Millisecond, Most: 2*time.Minute + 2*time.Second}
