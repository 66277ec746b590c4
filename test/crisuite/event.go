// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
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

// statusIn is what an event says of a container, nil for nothing.
func statusIn(ev *runtimeapi.ContainerEventResponse, id string) *runtimeapi.ContainerStatus {
	for _, st := range ev.GetContainersStatuses() {
		if st.GetId() == id {
			return st
		}
	}
	return nil
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
				// An event carries the state of its pod: also the last one, of a sandbox that is gone.
				sb := ev.GetPodSandboxStatus()
				if sb == nil && id == p.id && ev.GetContainerEventType() == deleted && !e.target.Features.WholeEvents {
					continue
				}
				if sb.GetId() != p.id || !proto.Equal(sb.GetMetadata(), p.config.GetMetadata()) {
					e.Errorf("%s event %v with sandbox %v", what, ev.GetContainerEventType(), sb)
				}
			}
		}
		for _, ev := range rec.of(c.id) {
			st := statusIn(ev, c.id)
			switch ev.GetContainerEventType() {
			case stopped: // carries the exit
				if st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 3 || st.GetReason() != "Error" {
					e.Errorf("stopped event with %v", st)
				}
			case deleted:
				if st != nil {
					e.Errorf("deleted event with %v", st)
				}
			}
		}
		last := rec.of(p.id)
		if st := last[len(last)-1].GetPodSandboxStatus().GetState(); e.target.Features.WholeEvents && st != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			e.Errorf("last event of the sandbox: %v", st)
		}
	}},
	{"of a start that failed there need be none", func(e *env) {
		if !e.target.Features.WholeEvents {
			return
		}
		rec := e.record()
		p := e.pod()
		c := p.create(p.commandConfig("/no/such/program"))
		e.refused("StartContainer", c.start())
		e.ok("RemoveContainer", c.remove())
		e.until("no event of the removal", func() bool { return slices.Contains(types(rec.of(c.id)), deleted) })
		got := slices.DeleteFunc(types(rec.of(c.id)), func(t runtimeapi.ContainerEventType) bool { return t == stopped })
		if !slices.Equal(got, []runtimeapi.ContainerEventType{created, deleted}) {
			e.Errorf("events %v", got)
		}
	}},
	{"go to every listener", func(e *env) {
		if !e.target.Features.Events {
			return // the test above says so
		}
		a, b := e.record(), e.record()
		p := e.pod()
		if !e.target.Features.EveryListener {
			e.until("no listener hears", func() bool { return len(a.of(p.id))+len(b.of(p.id)) >= 2 })
			return
		}
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
