// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
)

// minStopTimeout is the least time the runtime gives a container after its
// signal, whatever the grace, so that none is killed needlessly.
const minStopTimeout = 2 * time.Second

// stop is a container being stopped. Guarded by Actuator.mu.
type stop struct {
	// deadline only ever comes nearer; changed is closed, and replaced, when it
	// does.
	deadline time.Time
	changed  chan struct{}
	// callers wait for done; when the last has left, the stop is abandoned.
	callers   int
	abandoned bool
	cancel    context.CancelFunc
	done      chan struct{}
	err       error
}

// PreStop emits Killing and runs the preStop hook of a container until the hook or
// ctx ends, at the latest when a stop at the end of the grace has killed the
// container. A hook that fails or runs out of time is reported by an event and does
// not keep the container from being stopped: the only errors are that of ctx, and one
// of a runtime that is away, by which nothing was run.
func (a *stopper) PreStop(ctx context.Context, spec KillSpec) error {
	hookCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := a.deps.Clock.AfterFunc(spec.Grace+minStopTimeout, cancel)
	defer timer.Stop()
	if !spec.Told {
		a.killing(ctx, spec)
	}
	err := a.runPreStop(hookCtx, spec)
	if ctx.Err() == nil && Away(err) {
		return err
	}
	a.preStopFailed(ctx, spec, err)
	return ctx.Err()
}

// ErrEnded is the cause to cancel a PreStop with whose container has ended before its
// hook: the hook ran out of time. Cancelled without it, the hook has not failed.
var ErrEnded = errors.New("the container has ended")

// StopContainer stops a container: the event Killing and the hook if
// spec.RunPreStop, then the stop itself, all within spec.Grace, though never with
// less than minStopTimeout between the signal and the kill. It blocks until the
// container has stopped; one that is gone already is success. A call with
// less grace while another is under way shortens that one, and both return
// together. When every caller's context has ended the stop is given up, which
// leaves the container with its signal. Reason: KillContainerError.
func (a *stopper) StopContainer(ctx context.Context, spec KillSpec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline := a.deps.Clock.Now().Add(spec.Grace)
	a.mu.Lock()
	s := a.stops[spec.ContainerID]
	switch {
	case s == nil || s.abandoned:
		run, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s = &stop{deadline: deadline, changed: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
		a.stops[spec.ContainerID] = s
		go a.finishStop(run, s, spec)
	case deadline.Before(s.deadline):
		s.deadline = deadline
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.callers++
	a.mu.Unlock()

	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.callers--; s.callers == 0 {
		s.abandoned = true
		s.cancel()
	}
	return ctx.Err()
}

func (a *stopper) finishStop(ctx context.Context, s *stop, spec KillSpec) {
	defer s.cancel()
	err := a.stop(ctx, s, spec)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stops[spec.ContainerID] == s {
		delete(a.stops, spec.ContainerID)
	}
	s.err = err
	close(s.done)
}

func (a *stopper) stop(ctx context.Context, s *stop, spec KillSpec) error {
	if spec.RunPreStop {
		a.killing(ctx, spec)
		defer a.beginHook(ctx, s, spec)()
	}
	err := fault.Hit(ctx, "podworker.stop")
	if err == nil {
		err = a.stopInRuntime(ctx, s, spec.ContainerID)
	}
	if err != nil {
		return &Error{reason.KillContainerError, fmt.Sprintf("stop container %q of pod %q: %v", spec.Container, pod.String(spec.Pod), plain(err)), err}
	}
	return nil
}

// beginHook runs the hook and returns when it is over or its time is. One that is
// not over goes on beside the stop, until end is called.
func (a *stopper) beginHook(ctx context.Context, s *stop, spec KillSpec) (end func()) {
	hookCtx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.preStopFailed(ctx, spec, a.runPreStop(hookCtx, spec))
	}()
	grace, enough := a.untilDeadline(ctx, s)
	defer enough()
	select {
	case <-over:
	case <-grace.Done():
	}
	return func() {
		cancel()
		<-over
	}
}

// when is the deadline of a stop, and the channel that signals a nearer one.
func (a *stopper) when(s *stop) (time.Time, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return s.deadline, s.changed
}

// untilDeadline ends the context when the stop's deadline has come.
func (a *stopper) untilDeadline(ctx context.Context, s *stop) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for {
			deadline, changed := a.when(s)
			left := deadline.Sub(a.deps.Clock.Now())
			if left <= 0 {
				return
			}
			timer := a.deps.Clock.NewTimer(left)
			select {
			case <-timer.C():
			case <-changed:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			timer.Stop()
		}
	}()
	return ctx, cancel
}

// stopInRuntime asks the runtime to stop a container and, each time the deadline
// comes nearer, asks again beside the call under way: the runtime obeys the
// shorter. The connection to the runtime ends a call that hangs.
func (a *stopper) stopInRuntime(ctx context.Context, s *stop, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error)
	ask := func(deadline time.Time) {
		timeout := max(minStopTimeout, deadline.Sub(a.deps.Clock.Now()))
		go func() {
			_, err := a.deps.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
				ContainerId: id, Timeout: int64(math.Ceil(timeout.Seconds())),
			})
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		}()
	}
	deadline, changed := a.when(s)
	ask(deadline)
	for asked := 1; ; {
		select {
		case err := <-answers:
			asked--
			if err == nil || status.Code(err) == codes.NotFound {
				return nil
			}
			if asked == 0 {
				return err
			}
		case <-changed:
			deadline, changed = a.when(s)
			ask(deadline)
			asked++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *stopper) killing(ctx context.Context, spec KillSpec) {
	a.event(ctx, spec.Pod, spec.Container, v1.EventTypeNormal, "Killing", cmp.Or(spec.Message, "Stopping container "+spec.Container))
}

// runPreStop runs the hook until ctx ends, unless there is none or no grace.
func (a *stopper) runPreStop(ctx context.Context, spec KillSpec) error {
	c := killed(spec)
	if spec.Grace <= 0 || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	return a.runHook(ctx, hook{pod: spec.Pod, container: c, id: spec.ContainerID, ips: spec.PodIPs, handler: c.Lifecycle.PreStop})
}

// preStopFailed tells of a hook that failed; nil is none. What it answered is not told in the
// event: it may hold secrets.
func (a *stopper) preStopFailed(ctx context.Context, spec KillSpec, err error) {
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	a.log.WarnContext(ctx, "preStop hook failed", "pod", pod.FullName(spec.Pod), "container", spec.Container, "error", err.Error())
	a.event(context.WithoutCancel(ctx), spec.Pod, spec.Container, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
}

// killed is the container as specified or, when the specification is gone, as
// its annotations remember it.
func killed(spec KillSpec) *v1.Container {
	if c, _ := pod.FindContainer(spec.Pod, spec.Container); c != nil {
		return c
	}
	c := &v1.Container{Name: spec.Container}
	info, err := pod.ParseContainer(pod.ContainerLabels(spec.Pod, c), spec.Annotations)
	if err != nil && info.PreStop == nil {
		return c
	}
	c.Ports = info.Ports
	if info.PreStop != nil {
		c.Lifecycle = &v1.Lifecycle{PreStop: info.PreStop}
	}
	return c
}
