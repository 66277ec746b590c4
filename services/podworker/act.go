package podworker

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// Bounds of calls to neighbours. An admission may wait for device plugins.
const (
	commandTimeout = 10 * time.Second
	admitTimeout   = 2 * time.Minute
)

// flight is an action under way.
type flight struct {
	action    step.Action
	since     time.Time
	cancel    context.CancelFunc
	cancelled bool
	queued    bool // it waits for its turn
}

// outcome is the result of an action and the revision a command answered with.
type outcome struct {
	step.Result
	revision feed.Revision
}

// begin starts an action beside the work; one under the same key is replaced.
func (w *worker) begin(ctx context.Context, a step.Action) {
	// A stop with less grace shortens the one under way, and both end together.
	key := a.Key()
	actx, cancel := context.WithCancel(ctx)
	f := &flight{action: a, since: w.l.clock.Now(), cancel: cancel}
	w.flights[key] = f
	actx = queue.Tell(actx, func(waiting bool) { w.post(func() { f.queued = waiting }) })
	act := w.prepare(a)
	before := w.mirrored(a.Kind)
	w.l.metrics.actions.WithLabelValues(string(a.Kind)).Inc()
	w.l.log.Debug("action begins", "action", a.String(), service.KeyUID, string(w.uid))
	go func() {
		defer cancel()
		point := "podworker." + string(a.Kind)
		err := fault.Hit(actx, point)
		var out outcome
		if err == nil {
			out, err = act(actx)
		}
		if err == nil {
			err = fault.Hit(actx, point+".done")
		}
		w.post(func() {
			if ctx.Err() != nil || w.flights[key] != f {
				return // the process stops, or a shorter call took its place
			}
			delete(w.flights, key)
			w.land(ctx, f, out, err, before)
		})
	}()
}

// land folds the end of an action into the facts.
func (w *worker) land(ctx context.Context, f *flight, out outcome, err error, before feed.Revision) {
	a := f.action
	w.l.log.Debug("action ended", "action", a.String(), service.KeyUID, string(w.uid), "took", w.l.clock.Now().Sub(f.since).String())
	if err != nil {
		out.Failed = w.failed(a, err)
		out.Cancelled = f.cancelled
	}
	if err == nil && out.revision != (feed.Revision{}) {
		w.asked[a.Kind] = newMark(out.revision, before)
		switch a.Kind {
		case step.Declare, step.Withdraw:
			w.l.in.Volumes.LookFor(out.revision)
		case step.Admit, step.Resize, step.Settle, step.Release:
			w.l.in.Allocations.LookFor(out.revision)
		}
	}
	if a.Kind == step.Update {
		w.l.metrics.resizes.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(w.l.clock.Since(f.since).Milliseconds()))
	}
	var events []step.Event
	w.facts, events = step.Apply(w.facts, w.uid, a, out.Result, w.l.clock.Now())
	for _, e := range events {
		w.emit(ctx, e)
	}
	if a.Kind.Changes() {
		w.acts++
		if a.Kind.Creates() {
			w.creates++
		}
		w.refresh(ctx)
	}
}

// failed words an error as a status does.
func (w *worker) failed(a step.Action, err error) *step.Failed {
	reason, message := actuate.ReasonOf(err)
	if reason == "" {
		reason = map[step.Kind]actuate.Reason{
			step.Pull: actuate.ErrImagePull, step.Start: actuate.RunContainerError,
			step.RunSandbox: actuate.CreatePodSandboxError, step.Stop: actuate.KillContainerError,
		}[a.Kind]
	}
	w.l.metrics.failures.WithLabelValues(string(a.Kind)).Inc()
	if !errors.Is(err, context.Canceled) {
		w.l.log.Info("action failed", "action", a.String(), service.KeyUID, string(w.uid), "reason", string(reason), service.KeyError, message)
	}
	return &step.Failed{Reason: string(reason), Message: message, Away: away(err)}
}

// away tells whether an error says that nobody answered at the other end of a
// socket. A runtime that answers may say Unavailable too, of a registry; what
// gRPC itself says of a connection is worded by it alone.
func away(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	text := s.Message()
	return strings.Contains(text, "connection error: ") || strings.Contains(text, "error reading from server: ")
}

// mirrored is where the mirror stands that will show what a command does.
func (w *worker) mirrored(kind step.Kind) feed.Revision {
	var revision feed.Revision
	switch kind {
	case step.Declare, step.Withdraw:
		revision, _, _, _ = w.l.in.Volumes.State()
	case step.Admit, step.Resize, step.Settle, step.Release:
		revision, _, _, _ = w.l.in.Allocations.State()
	}
	return revision
}

// prepare takes what an action needs out of the worker, and returns the act.
func (w *worker) prepare(a step.Action) func(ctx context.Context) (outcome, error) {
	l, p := w.l, w.subject()
	simply := func(act func(context.Context) error) func(context.Context) (outcome, error) {
		return func(ctx context.Context) (outcome, error) { return outcome{}, act(ctx) }
	}
	switch a.Kind {
	case step.Admit:
		return w.admit(a)
	case step.Declare:
		return w.declare()
	case step.Withdraw:
		return func(ctx context.Context) (outcome, error) {
			ctx, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			resp, err := l.volume.Withdraw(ctx, &volumev1.WithdrawRequest{Uid: string(w.uid)})
			return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
		}
	case step.Release:
		return func(ctx context.Context) (outcome, error) {
			ctx, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			resp, err := l.resource.Release(ctx, &resourcev1.ReleaseRequest{Uid: string(w.uid)})
			return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
		}
	case step.Resize:
		return w.resize()
	case step.Settle:
		return func(ctx context.Context) (outcome, error) {
			ctx, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			resp, err := l.resource.Settle(ctx, &resourcev1.SettleRequest{Uid: string(w.uid), Allocation: uint64(a.Attempt)})
			return outcome{revision: feed.RevisionFrom(resp.GetRevision())}, err
		}
	case step.Update:
		spec := w.resizeSpec(a)
		return simply(func(ctx context.Context) error { return l.containers.Resize(ctx, spec) })
	case step.RunSandbox:
		spec := w.sandboxSpec(uint32(a.Attempt))
		return func(ctx context.Context) (outcome, error) {
			id, err := l.sandboxes.RunSandbox(ctx, spec)
			return outcome{Result: step.Result{ID: id}}, err
		}
	case step.Pull:
		spec := w.imageSpec(a)
		return func(ctx context.Context) (outcome, error) {
			ref, err := l.containers.EnsureImage(ctx, spec)
			return outcome{Result: step.Result{Ref: ref}}, err
		}
	case step.Look:
		spec := w.imageSpec(a)
		return func(ctx context.Context) (outcome, error) {
			ref, err := l.containers.FindImage(ctx, spec)
			return outcome{Result: step.Result{Ref: ref}}, err
		}
	case step.Start:
		spec := w.containerSpec(a)
		return func(ctx context.Context) (outcome, error) {
			id, err := l.containers.StartContainer(ctx, spec)
			return outcome{Result: step.Result{ID: id}}, err
		}
	case step.PreStop:
		spec := w.killSpec(a)
		return simply(func(ctx context.Context) error { return l.containers.PreStop(ctx, spec) })
	case step.Stop:
		spec := w.killSpec(a)
		return simply(func(ctx context.Context) error { return l.containers.StopContainer(ctx, spec) })
	case step.Remove:
		if a.KeepLogs {
			return simply(func(ctx context.Context) error { return l.containers.RemoveContainerKeepLogs(ctx, p, a.ID) })
		}
		return simply(func(ctx context.Context) error { return l.containers.RemoveContainer(ctx, p, a.ID) })
	case step.StopSandbox:
		return simply(func(ctx context.Context) error { return l.sandboxes.StopSandbox(ctx, p, a.ID) })
	case step.RemoveSandbox:
		return simply(func(ctx context.Context) error {
			if err := l.sandboxes.StopSandbox(ctx, p, a.ID); err != nil {
				return err
			}
			return l.sandboxes.RemoveSandbox(ctx, p, a.ID)
		})
	case step.Clean:
		return simply(func(ctx context.Context) error { return l.sandboxes.CleanPodDirs(ctx, p) })
	}
	return simply(func(context.Context) error { return errors.New("no such action: " + string(a.Kind)) })
}

// subject is the pod as far as it is known.
func (w *worker) subject() *v1.Pod {
	if d, _ := w.l.in.desired(w.uid, w.source); d != nil {
		return w.allocated(d.Pod)
	}
	if w.accepted != nil {
		return w.accepted
	}
	if w.identity != nil {
		return w.identity
	}
	p := &v1.Pod{}
	p.UID = w.uid
	return p
}

var decisions = map[resourcev1.Decision]step.Decision{
	resourcev1.Decision_DECISION_ADMITTED: step.Admitted,
	resourcev1.Decision_DECISION_REJECTED: step.Refused,
	resourcev1.Decision_DECISION_NOT_YET:  step.Deferred,
}

func (w *worker) admit(a step.Action) func(ctx context.Context) (outcome, error) {
	l, p := w.l, w.subject()
	return func(ctx context.Context) (outcome, error) {
		raw, err := p.Marshal()
		if err != nil {
			return outcome{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, admitTimeout)
		defer cancel()
		resp, err := l.resource.Admit(ctx, &resourcev1.AdmitRequest{Pod: raw, Running: a.Running})
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

func (w *worker) declare() func(ctx context.Context) (outcome, error) {
	l, p := w.l, w.subject()
	print := uint64(1)
	if d, _ := l.in.desired(w.uid, w.source); d != nil {
		print = d.Fingerprint
	}
	return func(ctx context.Context) (outcome, error) {
		raw, err := p.Marshal()
		if err != nil {
			return outcome{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		resp, err := l.volume.Declare(ctx, &volumev1.DeclareRequest{Pod: raw})
		return outcome{revision: feed.RevisionFrom(resp.GetRevision()), Result: step.Result{Fingerprint: print}}, err
	}
}

func (w *worker) sandboxSpec(attempt uint32) actuate.SandboxSpec {
	p := w.subject()
	spec := actuate.SandboxSpec{Pod: p, Attempt: attempt, RuntimeHandler: w.l.lookups.handler(p).Name}
	if w.facts.Admitted != nil {
		spec.CgroupParent = w.facts.Admitted.CgroupParent
	}
	return spec
}

func (w *worker) imageSpec(a step.Action) actuate.ImageSpec {
	p := w.subject()
	spec := actuate.ImageSpec{Pod: p, Container: a.Container, Image: a.Image, RuntimeHandler: w.l.lookups.handler(p).Name}
	if a.Volume != "" {
		spec.Container = ""
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.Name == a.Volume && v.Image != nil {
				spec.Policy = v.Image.PullPolicy
			}
		}
		return spec
	}
	if c, _ := pod.FindContainer(p, a.Container); c != nil {
		spec.Policy = c.ImagePullPolicy
	}
	return spec
}

func (w *worker) containerSpec(a step.Action) actuate.ContainerSpec {
	spec := actuate.ContainerSpec{
		SandboxID: a.Sandbox, Container: a.Container, RestartCount: a.Attempt, ImageRef: a.Ref,
		Volumes: w.mounted(),
	}
	record, _ := w.current()
	attempt := uint32(0)
	var have []step.Instance
	if record != nil {
		for _, s := range record.Sandboxes {
			if s.ID == a.Sandbox {
				attempt, spec.PodIPs = s.Attempt, s.IPs
			}
		}
		have = record.Containers
	}
	spec.Target, spec.TargetID = w.target(a.Container, have)
	spec.Sandbox = w.sandboxSpec(attempt)
	return spec
}

// target names the container whose processes an ephemeral one is to see, and finds
// its instance: the one that runs, else the newest.
func (w *worker) target(name string, have []step.Instance) (target, id string) {
	p := w.subject()
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			target = e.TargetContainerName
		}
	}
	if target == "" {
		return "", ""
	}
	for _, o := range have { // newest first
		switch {
		case o.Name != target || o.State == step.Created:
		case o.State == step.Running:
			return target, o.ID
		case id == "":
			id = o.ID
		}
	}
	return target, id
}

// mounted is what the pod's containers may mount, by volume name.
func (w *worker) mounted() map[string]actuate.Volume {
	volumes := map[string]actuate.Volume{}
	p := w.subject()
	block := map[string]bool{}
	for _, c := range pod.Containers(p) {
		for _, d := range c.VolumeDevices {
			block[d.Name] = true
		}
	}
	readOnly := map[string]bool{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			readOnly[v.Name] = v.PersistentVolumeClaim.ReadOnly
		case v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil:
			readOnly[v.Name] = true // what the API says is not the container's to change
		}
		if v.Image != nil {
			volumes[v.Name] = actuate.Volume{Image: w.facts.Images[step.Action{Kind: step.Pull, Volume: v.Name}.Key()].Ref}
		}
	}
	item, _ := w.l.in.Volumes.Get(string(w.uid))
	for _, v := range item.GetVolumes() {
		if _, image := volumes[v.GetName()]; image || v.GetHostPath() == "" {
			continue
		}
		volumes[v.GetName()] = actuate.Volume{HostPath: v.GetHostPath(), Block: block[v.GetName()], ReadOnly: readOnly[v.GetName()], Relabel: v.GetRelabel()}
	}
	return volumes
}

func (w *worker) killSpec(a step.Action) actuate.KillSpec {
	spec := actuate.KillSpec{
		Pod: w.subject(), Container: a.Container, ContainerID: a.ID, Grace: a.Grace, Message: a.Message, RunPreStop: a.Tell,
	}
	if a.Kind == step.Stop && a.Grace <= minGrace {
		spec.Grace = 0 // no time for a hook; the runtime gets its minimum all the same
	}
	if record, _ := w.current(); record != nil {
		spec.Annotations = record.Statuses[a.ID].GetAnnotations()
		for _, s := range record.Sandboxes {
			if len(s.IPs) > 0 {
				spec.PodIPs = s.IPs
				break
			}
		}
	}
	return spec
}

// minGrace is the least the runtime gets to stop a container.
const minGrace = 2 * time.Second
