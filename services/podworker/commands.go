// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// act carries an action out.
type act func(ctx context.Context) (outcome, error)

// simply is an act that answers with nothing.
func simply(do func(context.Context) error) act {
	return func(ctx context.Context) (outcome, error) { return outcome{}, do(ctx) }
}

// prepare takes what an action needs out of the worker, and returns the act.
func (w *worker) prepare(a step.Action) act {
	l, s := w.l, w.specs()
	desired, _ := l.in.desired(w.uid, w.spec.source)
	switch a.Kind {
	case step.Admit:
		return l.admit(s.pod, a.Running)
	case step.Declare:
		return declare(l.volume, s.pod, s.print)
	case step.Withdraw:
		return func(ctx context.Context) (outcome, error) {
			resp, err := l.volume.Withdraw(ctx, &volumev1.WithdrawRequest{Uid: string(w.uid)})
			return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
		}
	case step.Release:
		return func(ctx context.Context) (outcome, error) {
			resp, err := l.resource.Release(ctx, &resourcev1.ReleaseRequest{Uid: string(w.uid)})
			return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
		}
	case step.Resize:
		return resize(l.resource, desired)
	case step.Settle:
		return settle(l.resource, w.uid, uint64(a.Attempt))
	case step.Update:
		spec := s.resize(a)
		return simply(func(ctx context.Context) error { return l.containers.Resize(ctx, spec) })
	case step.Pin:
		return simply(func(ctx context.Context) error { return l.containers.Pin(ctx, a.ID, a.CPUs) })
	case step.RunSandbox:
		spec := s.sandbox(uint32(a.Attempt))
		return func(ctx context.Context) (outcome, error) {
			id, err := l.sandboxes.RunSandbox(ctx, spec)
			return outcome{Result: step.Result{ID: id}}, err
		}
	case step.Pull:
		spec := s.image(a)
		return func(ctx context.Context) (outcome, error) {
			ref, err := l.containers.EnsureImage(ctx, spec)
			return outcome{Result: step.Result{Ref: ref}}, err
		}
	case step.Look:
		spec := s.image(a)
		return func(ctx context.Context) (outcome, error) {
			ref, err := l.containers.FindImage(ctx, spec)
			return outcome{Result: step.Result{Ref: ref}}, err
		}
	case step.Start:
		spec := s.container(a)
		return func(ctx context.Context) (outcome, error) {
			id, err := l.containers.StartContainer(ctx, spec)
			return outcome{Result: step.Result{ID: id, CPUs: spec.Allocation.CPUSet}}, err
		}
	case step.PreStop:
		spec := s.kill(a)
		return simply(func(ctx context.Context) error { return l.containers.PreStop(ctx, spec) })
	case step.Stop:
		spec := s.kill(a)
		return simply(func(ctx context.Context) error { return l.containers.StopContainer(ctx, spec) })
	case step.Remove:
		if a.KeepLogs {
			return simply(func(ctx context.Context) error { return l.containers.RemoveContainerKeepLogs(ctx, s.pod, a.ID) })
		}
		return simply(func(ctx context.Context) error { return l.containers.RemoveContainer(ctx, s.pod, a.ID) })
	case step.StopSandbox:
		return simply(func(ctx context.Context) error { return l.sandboxes.StopSandbox(ctx, s.pod, a.ID) })
	case step.RemoveSandbox:
		return simply(func(ctx context.Context) error {
			if err := l.sandboxes.StopSandbox(ctx, s.pod, a.ID); err != nil {
				return err
			}
			return l.sandboxes.RemoveSandbox(ctx, s.pod, a.ID)
		})
	case step.Clean:
		return simply(func(ctx context.Context) error { return l.sandboxes.CleanPodDirs(ctx, s.pod) })
	}
	return simply(func(context.Context) error { return errors.New("no such action: " + string(a.Kind)) })
}

var decisions = map[resourcev1.Decision]step.Decision{
	resourcev1.Decision_DECISION_ADMITTED: step.Admitted,
	resourcev1.Decision_DECISION_REJECTED: step.Refused,
	resourcev1.Decision_DECISION_NOT_YET:  step.Deferred,
}

func (l *ledger) admit(p *v1.Pod, running bool) act {
	return func(ctx context.Context) (outcome, error) {
		raw, err := p.Marshal()
		if err != nil {
			return outcome{}, err
		}
		resp, err := l.resource.Admit(ctx, &resourcev1.AdmitRequest{Pod: raw, Running: running, Inactive: l.allInactive()})
		if err != nil {
			return outcome{}, err
		}
		decision, ok := decisions[resp.GetDecision()]
		if !ok {
			decision = step.Deferred // a later version's word: not a refusal
		}
		return outcome{revision: feed.RevisionFrom(resp.GetRevision()), Result: step.Result{Admission: &step.Answer{
			Decision: decision, Reason: resp.GetReason(), Message: resp.GetMessage(), CgroupParent: resp.GetCgroupParent(),
		}}}, nil
	}
}

func declare(v volumes, p *v1.Pod, print uint64) act {
	return func(ctx context.Context) (outcome, error) {
		raw, err := p.Marshal()
		if err != nil {
			return outcome{}, err
		}
		resp, err := v.Declare(ctx, &volumev1.DeclareRequest{Pod: raw})
		return outcome{revision: feed.RevisionFrom(resp.GetRevision()), Result: step.Result{Fingerprint: print}}, err
	}
}

// resize tells resource what the pod asks for.
func resize(r resources, desired *step.Desired) act {
	return func(ctx context.Context) (outcome, error) {
		if desired == nil {
			return outcome{}, errors.New("config does not list the pod any more")
		}
		raw, err := desired.Pod.Marshal()
		if err != nil {
			return outcome{}, err
		}
		resp, err := r.Resize(ctx, &resourcev1.ResizeRequest{Pod: raw})
		return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
	}
}

func settle(r resources, uid types.UID, allocation uint64) act {
	return func(ctx context.Context) (outcome, error) {
		resp, err := r.Settle(ctx, &resourcev1.SettleRequest{Uid: string(uid), Allocation: allocation})
		return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
	}
}
