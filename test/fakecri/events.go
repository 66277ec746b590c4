// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// broker hands container events to the streams; Runtime.mu guards it.
type broker struct {
	off       bool
	drop, dup int
	holds     int
	held      []*runtimeapi.ContainerEventResponse
	streams   map[*eventStream]struct{}
}

// eventStream is what one GetContainerEvents call still has to send.
type eventStream struct {
	queue []*runtimeapi.ContainerEventResponse
	wake  chan struct{} // holds one token when queue or ended changed
	ended bool
}

func (s *eventStream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// emit publishes an event about a container, or about a sandbox under its own
// ID. The caller holds mu; the snapshot is taken now.
func (r *Runtime) emit(id string, typ runtimeapi.ContainerEventType, sb *sandbox) {
	if r.broker.off {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: typ,
		CreatedAt:          r.now().UnixNano(),
	}
	ev.PodSandboxStatus = r.sandboxStatus(sb, true) // its last one, if it is gone
	for _, c := range r.containersOf(sb.id) {
		ev.ContainersStatuses = append(ev.ContainersStatuses, r.containerStatus(c, true))
	}
	if r.broker.drop > 0 {
		r.broker.drop--
		return
	}
	r.publish(ev)
	if r.broker.dup > 0 {
		r.broker.dup--
		r.publish(proto.CloneOf(ev))
	}
}

func (r *Runtime) publish(ev *runtimeapi.ContainerEventResponse) {
	if r.broker.holds > 0 {
		r.broker.held = append(r.broker.held, ev)
		return
	}
	for s := range r.broker.streams {
		s.queue = append(s.queue, ev)
		s.poke()
	}
}

// SetEvents switches container events off and on. When they are off,
// GetContainerEvents is Unimplemented and running streams end that way.
func (r *Runtime) SetEvents(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broker.off = !on
	if !on {
		for s := range r.broker.streams {
			s.ended = true
			s.poke()
		}
	}
	r.notify()
}

// DropEvents loses the next n events.
func (r *Runtime) DropEvents(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broker.drop += n
}

// DuplicateEvents sends each of the next n events twice.
func (r *Runtime) DuplicateEvents(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broker.dup += n
}

// HoldEvents keeps events back; Undo sends them, in order and as they were.
func (r *Runtime) HoldEvents() *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broker.holds++
	return &Fault{r: r, undo: func() {
		r.broker.holds--
		if r.broker.holds > 0 {
			return
		}
		held := r.broker.held
		r.broker.held = nil
		for _, ev := range held {
			r.publish(ev)
		}
	}}
}

// EventStreams is how many clients listen to container events now.
func (r *Runtime) EventStreams() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.broker.streams)
}

func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, srv runtimeapi.RuntimeService_GetContainerEventsServer) error {
	r := s.r
	es := &eventStream{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	if r.broker.off {
		r.mu.Unlock()
		return unimplemented("GetContainerEvents")
	}
	if r.broker.streams == nil {
		r.broker.streams = map[*eventStream]struct{}{}
	}
	r.broker.streams[es] = struct{}{}
	r.notify()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.broker.streams, es)
		r.notify()
		r.mu.Unlock()
	}()
	for {
		r.mu.Lock()
		queue, ended := es.queue, es.ended
		es.queue = nil
		r.mu.Unlock()
		for _, ev := range queue {
			if err := srv.Send(ev); err != nil {
				return err
			}
		}
		if ended {
			return unimplemented("GetContainerEvents")
		}
		select {
		case <-es.wake:
		case <-srv.Context().Done():
			return status.FromContextError(srv.Context().Err()).Err()
		}
	}
}

func unimplemented(method string) error {
	return status.Errorf(codes.Unimplemented, "method %s not implemented", method)
}
