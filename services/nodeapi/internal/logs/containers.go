// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/nodelog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// Server serves logs. It is safe for concurrent use.
type Server struct {
	conf    func() *kubeletconfig.Config
	worker  podworkerv1.PodWorkerServiceClient
	node    *nodelog.Server
	callers *callerlog.Log
	log     *slog.Logger
}

// containerLog streams a log, and flushes each part.
func (s *Server) containerLog(w http.ResponseWriter, r *http.Request) error {
	conf := s.conf()
	req, err := request(r.URL.Query(), conf != nil && conf.Gate("PodLogsQuerySplitStreams"))
	if err != nil {
		return err
	}
	req.Namespace, req.Pod, req.Container = r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	log := &reader{worker: s.worker, req: req, asked: time.Now()}
	part, err := log.first(r.Context())
	if err != nil && !errors.Is(err, io.EOF) {
		return reply.Errorf(httpStatus(err), "%s", err)
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Transfer-Encoding", "chunked")
	flusher := http.NewResponseController(w)
	for err == nil {
		if _, err := w.Write(part); err != nil {
			return nil //nolint:nilerr // the caller has left
		}
		if err := flusher.Flush(); err != nil {
			return nil //nolint:nilerr // the same
		}
		part, err = log.next(r.Context())
	}
	if !errors.Is(err, io.EOF) && r.Context().Err() == nil {
		s.callers.Log(r.Context(), slog.LevelWarn, r.RemoteAddr, "log broken off", "pod", req.GetNamespace()+"/"+req.GetPod(), service.KeyError, err.Error())
		panic(http.ErrAbortHandler) // the caller must not take this for the end
	}
	return nil
}

func httpStatus(err error) int {
	switch rpc.KindOf(err) {
	case rpc.Invalid, rpc.Conflict: // a container that has no log yet
		return http.StatusBadRequest
	case rpc.NotFound:
		return http.StatusNotFound
	case rpc.Denied:
		return http.StatusForbidden
	case rpc.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// How long a log that was interrupted (podworker restarts) is opened again, and how often.
const (
	resumeLimit = time.Minute
	resumeRetry = 100 * time.Millisecond
)

// reader reads one log from podworker, over as many streams as it takes.
type reader struct {
	worker podworkerv1.PodWorkerServiceClient
	// req is what is left to read.
	req *podworkerv1.ContainerLogsRequest
	// asked is when the caller came.
	asked  time.Time
	stream grpc.ServerStreamingClient[podworkerv1.ContainerLogsResponse]
}

// first returns the first part of the log.
func (l *reader) first(ctx context.Context) ([]byte, error) {
	part, err := l.open(ctx)
	return l.resumed(ctx, part, err)
}

// open starts a stream and returns its first part.
func (l *reader) open(ctx context.Context) (part []byte, err error) {
	if l.stream, err = l.worker.ContainerLogs(ctx, l.req); err != nil {
		return nil, err
	}
	return l.receive()
}

func (l *reader) receive() ([]byte, error) {
	resp, err := l.stream.Recv()
	if err != nil {
		return nil, err
	}
	if cursor := resp.GetCursor(); len(cursor) > 0 {
		l.req.After = cursor
	}
	if l.req.LimitBytes != nil {
		l.req.LimitBytes = new(l.req.GetLimitBytes() - int64(len(resp.GetData())))
	}
	return resp.GetData(), nil
}

// next returns the next part; io.EOF ends the log.
func (l *reader) next(ctx context.Context) ([]byte, error) {
	if l.req.LimitBytes != nil && l.req.GetLimitBytes() <= 0 {
		return nil, io.EOF
	}
	part, err := l.receive()
	return l.resumed(ctx, part, err)
}

// resumed opens a log again that was interrupted, behind what has come of it. One of which
// nothing has come is opened again if it is followed: it may have been silent for days.
func (l *reader) resumed(ctx context.Context, part []byte, err error) ([]byte, error) {
	for began := time.Now(); rpc.Is(err, rpc.Unavailable) && (len(l.req.GetAfter()) > 0 || l.req.GetFollow()) && time.Since(began) < resumeLimit; {
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(resumeRetry):
		}
		if len(l.req.GetAfter()) == 0 {
			l.fromWhenAsked()
		}
		part, err = l.open(ctx)
	}
	return part, err
}

// fromWhenAsked has what a caller wanted as of now begin as of when it was asked for.
func (l *reader) fromWhenAsked() {
	switch {
	case l.req.TailLines != nil && l.req.GetTailLines() == 0:
		l.req.TailLines, l.req.SinceSeconds, l.req.SinceTime = nil, nil, timestamppb.New(l.asked)
	case l.req.SinceSeconds != nil:
		l.req.SinceSeconds, l.req.SinceTime = nil, timestamppb.New(l.asked.Add(-pod.Seconds(l.req.GetSinceSeconds())))
	}
}
