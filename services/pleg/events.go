// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/signal"
)

// eventFlow is whether events of the runtime arrive, by the stream that is open now.
type eventFlow struct {
	mu     sync.Mutex
	stream int
	on     bool
}

func (e *eventFlow) flowing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.on
}

// open counts a new stream, of which nothing is known yet.
func (e *eventFlow) open() (stream int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream++
	return e.stream
}

// believe notes that a stream delivers, unless it has ended meanwhile.
func (e *eventFlow) believe(stream int) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news = stream == e.stream && !e.on
	e.on = e.on || news
	return news
}

// end reports whether the stream that ended had delivered.
func (e *eventFlow) end() (delivered bool) {
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

// listener follows the runtime's container events (CRI GetContainerEvents). An event only
// marks its pod for reading.
type listener struct {
	runtime runtimeapi.RuntimeServiceClient
	pods    *podReader
	flow    *eventFlow
	relist  signal.Signal
	settle  time.Duration
	metrics *metrics
	now     func() time.Time
	log     *slog.Logger
}

// run follows them until ctx ends.
func (l *listener) run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait := eventRetry
		err := l.follow(ctx)
		if l.flow.end() && ctx.Err() == nil {
			l.metrics.eventErrors.Inc()
			l.relist.Send() // whatever was missed while the stream broke
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

func (l *listener) follow(ctx context.Context) error {
	// The stream must end with this call, or the runtime would go on sending.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	// A runtime without events refuses at once; one that has them is silent until
	// something happens. A stream that is still open after a while is believed.
	current := l.flow.open()
	believe := func() {
		if l.flow.believe(current) {
			l.metrics.eventConnects.Inc()
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
			l.metrics.eventLatency.Observe(l.now().Sub(time.Unix(0, at)).Seconds())
		}
		uid := cmp.Or(event.GetPodSandboxStatus().GetMetadata().GetUid(), event.GetPodSandboxStatus().GetLabels()[pod.PodUIDLabel])
		if uid == "" {
			l.metrics.discarded.Inc()
			l.relist.Send()
			continue
		}
		switch event.GetContainerEventType() {
		case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
			go l.readFor(ctx, uid, noticed(event))
			continue
		case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
			continue // its start follows, and podworker asks for a refresh if that fails
		}
		left := l.pods.readers.note(uid, noticed(event))
		time.AfterFunc(l.settle, func() {
			if !l.pods.readers.taken(left) {
				l.readFor(ctx, uid, noticed(event))
			}
		})
	}
}

// readFor reads a pod because of an event.
func (l *listener) readFor(ctx context.Context, uid string, q question) {
	if ctx.Err() != nil {
		return // the stream has broken, and all is listed again
	}
	if _, _, err := l.pods.read(ctx, uid, q); err != nil && ctx.Err() == nil {
		l.log.Warn("pod not read", "uid", uid, "error", err.Error())
	}
}
