package podworker

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// allocated is the pod with the resources it is allocated: as resource says, or
// while resource does not say it, those of the specification accepted last. A pod
// that was not admitted has what it asks for.
func (w *worker) allocated(p *v1.Pod) *v1.Pod {
	item, _ := w.l.in.Allocations.Get(string(w.uid))
	sizes := item.GetSizes()
	if len(sizes) == 0 {
		if w.facts.Admitted == nil || w.accepted == nil {
			return p
		}
		return pod.WithSizes(p, pod.Sizes(w.accepted))
	}
	d := &w.dressed
	if d.from == p && d.sizes == string(sizes) {
		return d.pod
	}
	spec := &v1.PodSpec{}
	if err := spec.Unmarshal(sizes); err != nil {
		w.l.log.Error("allocation is of no use", service.KeyUID, string(w.uid), service.KeyError, err.Error())
		return p
	}
	d.from, d.sizes, d.pod = p, string(sizes), pod.WithSizes(p, spec)
	return d.pod
}

// resize tells resource what the pod asks for.
func (w *worker) resize() func(ctx context.Context) (outcome, error) {
	l := w.l
	d, _ := l.in.desired(w.uid, w.source)
	return func(ctx context.Context) (outcome, error) {
		if d == nil {
			return outcome{}, errors.New("config does not list the pod any more")
		}
		raw, err := d.Pod.Marshal()
		if err != nil {
			return outcome{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		resp, err := l.resource.Resize(ctx, &resourcev1.ResizeRequest{Pod: raw})
		return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
	}
}

func (w *worker) resizeSpec(a step.Action) actuate.ResizeSpec {
	spec := actuate.ResizeSpec{SandboxID: a.Sandbox}
	if record, _ := w.current(); record != nil {
		for _, s := range record.Sandboxes {
			if s.ID == a.Sandbox {
				spec.Sandbox = w.sandboxSpec(s.Attempt)
			}
		}
	}
	if spec.Sandbox.Pod == nil {
		spec.Sandbox = w.sandboxSpec(0)
	}
	item, _ := w.l.in.Allocations.Get(string(w.uid))
	spec.MemoryLimit = item.GetMemoryLimit()
	for _, c := range a.Changes {
		spec.Changes = append(spec.Changes, actuate.SizeChange{Container: c.Container, ID: c.ID, From: c.From, To: c.To})
	}
	return spec
}

// resizeState is how far a change of the pod's resources is; nil when there is
// none.
func (w *worker) resizeState(f *step.Facts) *podworkerv1.Resize {
	item, ok := w.l.in.Allocations.Get(string(w.uid))
	if !ok || f.State != step.Syncing || item.GetPending() == nil && item.GetAllocation() == item.GetSettled() {
		return nil
	}
	state := &podworkerv1.Resize{
		PendingReason: item.GetPending().GetReason(), PendingMessage: item.GetPending().GetMessage(),
		PendingGeneration: item.GetPending().GetGeneration(),
		InProgress:        item.GetAllocation() != item.GetSettled(), Generation: item.GetGeneration(),
	}
	if !state.InProgress {
		return state
	}
	state.Error = item.GetBlocked()
	for _, kind := range []step.Kind{step.Update, step.Settle} {
		if failed, ok := f.Failures[step.Action{Kind: kind}.Key()]; ok && !failed.Away {
			state.Error = failed.Message
		}
	}
	return state
}

// sizeOf is what a container was given, as it is published.
func sizeOf(size *pod.Size) *podworkerv1.ContainerSize {
	if size == nil {
		return nil
	}
	return &podworkerv1.ContainerSize{
		CpuRequest: size.CPURequest, CpuLimit: size.CPULimit, MemoryRequest: size.MemoryRequest, MemoryLimit: size.MemoryLimit,
	}
}
