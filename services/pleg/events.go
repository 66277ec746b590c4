// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// eventsState is whether runtime events arrive, by the stream that is open now.
type eventsState struct {
	mu     sync.Mutex
	stream int
	on     bool
}

func (e *eventsState) flowing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.on
}

// open counts a new stream, of which nothing is known yet.
func (e *eventsState) open() (stream int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream++
	return e.stream
}

// believe notes that a stream delivers, unless it has ended meanwhile.
func (e *eventsState) believe(stream int) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news = stream == e.stream && !e.on
	e.on = e.on || news
	return news
}

// end reports whether the stream that ended had delivered.
func (e *eventsState) end() (delivered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream++
	delivered, e.on = e.on, false
	return delivered
}

// eventRetry is how soon a broken stream is opened again; eventAbsent how soon
// a runtime without container events is asked again (it may be upgraded);
// eventBelief how long a silent stream must stay open to count as working.
const (
	eventRetry  = 500 * time.Millisecond
	eventAbsent = time.Minute
	eventBelief = 2 * time.Second
)

// eventLoop follows the runtime's container events (CRI GetContainerEvents). An event
// only marks its pod for reading.
func (s *Service) eventLoop(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := eventRetry
		err := s.follow(ctx)
		if s.events.end() && ctx.Err() == nil {
			s.metrics.eventErrors.Inc()
			s.relistSoon() // whatever was missed while the stream broke
		}
		if status.Code(err) == codes.Unimplemented {
			wait = eventAbsent
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

func (s *Service) follow(ctx context.Context) error {
	// The stream must end with this call, or the runtime would go on sending.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	// A runtime without events refuses at once; one that has them is silent until
	// something happens. A stream that is still open after a while is believed.
	current := s.events.open()
	believe := func() {
		if s.events.believe(current) {
			s.metrics.eventConnects.Inc()
		}
	}
	silent := time.AfterFunc(eventBelief, believe)
	defer silent.Stop()
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		believe()
		if at := event.GetCreatedAt(); at > 0 {
			s.metrics.eventLatency.Observe(s.now().Sub(time.Unix(0, at)).Seconds())
		}
		uid := event.GetPodSandboxStatus().GetMetadata().GetUid()
		if uid == "" {
			uid = event.GetPodSandboxStatus().GetLabels()[pod.PodUIDLabel]
		}
		if uid == "" {
			s.metrics.discarded.Inc()
			s.relistSoon()
			continue
		}
		switch event.GetContainerEventType() {
		case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
			go s.readFor(ctx, uid, noticed(event))
			continue
		case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
			continue // its start follows, and podworker asks for a refresh if that fails
		}
		begun := s.readers.begun(uid)
		time.AfterFunc(s.cfg.Settle, func() {
			if s.readers.begun(uid) <= begun { // less: it was forgotten meanwhile
				s.readFor(ctx, uid, noticed(event))
			}
		})
	}
}

// readFor reads a pod because of an event.
func (s *Service) readFor(ctx context.Context, uid string, q question) {
	if ctx.Err() != nil {
		return // the stream has broken, and all is listed again
	}
	if _, _, err := s.read(ctx, uid, q); err != nil && ctx.Err() == nil {
		s.kit.Log.Warn("pod not read", "uid", uid, "error", err.Error())
		s.relistSoon()
	}
}
