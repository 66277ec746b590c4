// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Call is one call the runtime was asked.
type Call struct {
	Method string // "StopContainer"
	// ID is the sandbox or container the request names, or the one it made.
	ID string
	// Name is what the call is about: the container's name, else the pod's,
	// else the image reference. Pod is the pod's name where there is one.
	Name, Pod string
	// At is when it arrived and Ended when it was answered, on Config.Clock
	// with no JumpClock.
	At, Ended time.Time
	Request   proto.Message
	Response  proto.Message // nil if it failed, or is a stream
	Err       error         // as answered
}

// calls is the record; Runtime.mu guards it.
type calls struct {
	ended    []Call // in the order of their answers
	inFlight int
}

// Calls returns the matching calls that have been answered, oldest answer first.
func (r *Runtime) Calls(m Match) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.ended), func(c Call) bool { return !m.matches(&c) })
}

// Count is len(Calls(m)).
func (r *Runtime) Count(m Match) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for i := range r.ended {
		if m.matches(&r.ended[i]) {
			n++
		}
	}
	return n
}

// InFlight is how many calls, streams included, have no answer yet.
func (r *Runtime) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight
}

// ResetCalls forgets the calls answered so far.
func (r *Runtime) ResetCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = nil
}

// WaitCall waits until n matching calls have been answered.
func (r *Runtime) WaitCall(ctx context.Context, m Match, n int) error {
	return r.WaitFor(ctx, func() bool { return r.Count(m) >= n })
}

// begin opens the record of a call and takes the rules that act on it.
func (r *Runtime) begin(fullMethod string, req any) (*Call, orders) {
	c := &Call{Method: path.Base(fullMethod), At: r.cfg.Clock.Now()}
	c.Request, _ = req.(proto.Message)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
	r.describe(c)
	return c, r.apply(c)
}

func (r *Runtime) finish(c *Call, resp any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Ended, c.Err = r.cfg.Clock.Now(), err
	if m, ok := resp.(proto.Message); ok && err == nil {
		c.Response = m
		switch m := m.(type) {
		case *runtimeapi.RunPodSandboxResponse:
			c.ID = m.GetPodSandboxId()
		case *runtimeapi.CreateContainerResponse:
			c.ID = m.GetContainerId()
		}
	}
	r.inFlight--
	r.ended = append(r.ended, *c)
	r.notify()
}

// describe fills in what the request is about.
func (r *Runtime) describe(c *Call) {
	switch q := c.Request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		c.Pod = q.GetConfig().GetMetadata().GetName()
	case *runtimeapi.CreateContainerRequest:
		c.ID, c.Name = q.GetPodSandboxId(), q.GetConfig().GetMetadata().GetName()
		if sb, ok := byID(r.sandboxes, c.ID); ok {
			c.Pod = sb.config.GetMetadata().GetName()
		}
	case interface{ GetContainerId() string }:
		c.ID = q.GetContainerId()
		if ct, ok := byID(r.containers, c.ID); ok {
			c.ID, c.Name, c.Pod = ct.id, ct.config.GetMetadata().GetName(), ct.sandbox.config.GetMetadata().GetName()
		}
	case interface{ GetPodSandboxId() string }:
		c.ID = q.GetPodSandboxId()
		if sb, ok := byID(r.sandboxes, c.ID); ok {
			c.ID, c.Pod = sb.id, sb.config.GetMetadata().GetName()
		}
	case interface{ GetImage() *runtimeapi.ImageSpec }:
		c.Name = q.GetImage().GetImage()
	}
	if c.Name == "" {
		c.Name = c.Pod
	}
}

// creates are the calls that can be caught in their middle (Linger).
var creates = map[string]bool{"RunPodSandbox": true, "CreateContainer": true, "StartContainer": true}

// unary is the way of every unary call: gates, failures, the work, lies.
func (r *Runtime) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	call, o := r.begin(info.FullMethod, req)
	defer func() { r.finish(call, resp, err) }()
	if d := r.cfg.Delay; d > 0 {
		if err := r.sleep(ctx, d); err != nil {
			return nil, err
		}
	}
	if ctx, err = pass(ctx, o.gates, creates[call.Method]); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if o.fail != nil {
		return nil, o.fail
	}
	resp, err = handler(ctx, req)
	if err != nil {
		return nil, err
	}
	if o.after != nil {
		return nil, o.after
	}
	if len(o.lies) > 0 {
		m := proto.Clone(resp.(proto.Message))
		for _, lie := range o.lies {
			lie(call.Request, m)
		}
		resp = m
	}
	return resp, nil
}

// stream is the same for streams. Their request is read by the handler, so a
// stream is matched by its method alone.
func (r *Runtime) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	call, o := r.begin(info.FullMethod, nil)
	defer func() { r.finish(call, nil, err) }()
	if _, err := pass(ss.Context(), o.gates, false); err != nil {
		return status.FromContextError(err).Err()
	}
	if o.fail != nil {
		return o.fail
	}
	if len(o.lies) > 0 {
		ss = &lyingStream{ServerStream: ss, lies: o.lies}
	}
	if err := handler(srv, ss); err != nil {
		return err
	}
	return o.after
}

type lyingStream struct {
	grpc.ServerStream
	lies []func(req, resp proto.Message)
}

func (s *lyingStream) SendMsg(m any) error {
	msg := proto.Clone(m.(proto.Message))
	for _, lie := range s.lies {
		lie(nil, msg)
	}
	return s.ServerStream.SendMsg(msg)
}

// sleep lets d pass on the clock, or ends with the context's status.
func (r *Runtime) sleep(ctx context.Context, d time.Duration) error {
	t := r.cfg.Clock.NewTimer(d)
	defer t.Stop()
	r.poke()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// poke has every WaitFor look again, for what is not this state (a timer set).
func (r *Runtime) poke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify()
}
