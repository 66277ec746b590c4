package crisuite

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// recorder collects the events of one stream.
type recorder struct {
	mu     sync.Mutex
	events []*runtimeapi.ContainerEventResponse
	err    error
}

// record opens a stream. As the CRI has no word for "you are subscribed", an
// event of a trial pod is awaited; those of others come along, too.
func (e *env) record() *recorder {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	stream, err := e.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	e.ok("GetContainerEvents", err)
	r := &recorder{}
	go func() {
		for {
			ev, err := stream.Recv()
			r.mu.Lock()
			if err != nil {
				r.err = err
				r.mu.Unlock()
				return
			}
			r.events = append(r.events, ev)
			r.mu.Unlock()
		}
	}()
	e.until("the stream does not begin", func() bool {
		p := e.pod()
		_, err := e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		e.ok("RemovePodSandbox", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.events) > 0
	})
	return r
}

func (r *recorder) of(id string) []*runtimeapi.ContainerEventResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(ev *runtimeapi.ContainerEventResponse) bool {
		return ev.GetContainerId() != id
	})
}

func types(events []*runtimeapi.ContainerEventResponse) []runtimeapi.ContainerEventType {
	var out []runtimeapi.ContainerEventType
	for _, ev := range events {
		out = append(out, ev.GetContainerEventType())
	}
	return out
}

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

var eventTests = []test{
	{"tell of the life of sandboxes and containers, or are unimplemented", func(e *env) {
		if !e.target.Features.Events {
			stream, err := e.runtime.GetContainerEvents(e.ctx, &runtimeapi.GetEventsRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			e.code("GetContainerEvents", err, codes.Unimplemented)
			return
		}
		rec := e.record()
		p := e.pod()
		c := p.start("exit 3")
		c.exited()
		e.ok("RemoveContainer", c.remove())
		_, err := e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		e.ok("StopPodSandbox", err)
		_, err = e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		e.ok("RemovePodSandbox", err)

		whole := []runtimeapi.ContainerEventType{created, started, stopped, deleted}
		for what, id := range map[string]string{"container": c.id, "sandbox": p.id} {
			e.until("events of the "+what+" do not end", func() bool { return slices.Contains(types(rec.of(id)), deleted) })
			events := rec.of(id)
			if got := types(events); !slices.Equal(slices.Compact(slices.Clone(got)), whole) {
				e.Errorf("events of the %s: %v", what, got)
			}
			for _, ev := range events {
				if ev.GetCreatedAt() == 0 {
					e.Errorf("%s event without a time: %v", what, ev)
				}
				// What a reader finds in an event is the pod's state, never another pod's.
				if sb := ev.GetPodSandboxStatus(); sb != nil && sb.GetId() != p.id {
					e.Errorf("%s event with sandbox %v", what, sb)
				}
			}
		}
		// The event of an exit carries the exit.
		for _, ev := range rec.of(c.id) {
			if ev.GetContainerEventType() != stopped {
				continue
			}
			for _, st := range ev.GetContainersStatuses() {
				if st.GetId() == c.id && (st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 3) {
					e.Errorf("stopped event with %v", st)
				}
			}
		}
	}},
	{"go to every listener", func(e *env) {
		if !e.target.Features.Events {
			return // the test above says so
		}
		a, b := e.record(), e.record()
		p := e.pod()
		for name, rec := range map[string]*recorder{"first": a, "second": b} {
			e.until("the "+name+" listener hears nothing", func() bool { return len(rec.of(p.id)) >= 2 })
		}
	}},
	{"tell of a death at once", func(e *env) {
		if !e.target.Features.Events {
			return
		}
		rec := e.record()
		c := e.pod().server()
		e.ok("StopContainer", c.stop(0))
		e.until("no event of the exit", func() bool { return slices.Contains(types(rec.of(c.id)), stopped) })
	}},
}
