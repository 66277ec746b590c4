package nodeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// A log that is interrupted (podworker was restarted) goes on where it was, if
// that comes within resumeLimit.
const (
	resumeLimit = time.Minute
	resumeRetry = 100 * time.Millisecond
)

// containerLogs streams a container's log, flushed as it comes.
func (s *Service) containerLogs(w http.ResponseWriter, r *http.Request) {
	conf := s.current()
	options, err := logOptions(r.URL.Query())
	if err != nil {
		refuse(w, err)
		return
	}
	req := logRequest(options)
	if req.Stream, err = streamOf(options, conf != nil && conf.Gate("PodLogsQuerySplitStreams")); err != nil {
		refuse(w, err)
		return
	}
	req.Namespace, req.Pod, req.Container = r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	log := &logReader{worker: s.worker, req: req}
	part, err := log.open(r.Context())
	if err != nil && !errors.Is(err, io.EOF) {
		answer(w, httpStatus(err), err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Transfer-Encoding", "chunked")
	flusher := http.NewResponseController(w)
	for err == nil {
		if _, err := w.Write(part); err != nil {
			return // the caller went away
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		part, err = log.next(r.Context())
	}
	if !errors.Is(err, io.EOF) && r.Context().Err() == nil {
		s.kit.Log.Warn("log broken off", "pod", req.GetNamespace()+"/"+req.GetPod(), "error", err.Error())
		panic(http.ErrAbortHandler) // the caller must not take this for the end
	}
}

// logReader reads one log from podworker, over as many streams as it takes.
type logReader struct {
	worker podworkerv1.PodWorkerServiceClient
	req    *podworkerv1.ContainerLogsRequest
	stream grpc.ServerStreamingClient[podworkerv1.ContainerLogsResponse]
}

// open starts a stream and returns its first part.
func (l *logReader) open(ctx context.Context) (part []byte, err error) {
	if l.stream, err = l.worker.ContainerLogs(ctx, l.req); err != nil {
		return nil, err
	}
	return l.receive()
}

func (l *logReader) receive() ([]byte, error) {
	resp, err := l.stream.Recv()
	if err != nil {
		return nil, err
	}
	if cursor := resp.GetCursor(); len(cursor) > 0 {
		l.req.After = cursor
	}
	if l.req.LimitBytes != nil {
		left := l.req.GetLimitBytes() - int64(len(resp.GetData()))
		l.req.LimitBytes = &left
	}
	return resp.GetData(), nil
}

// next returns the next part; io.EOF ends the log.
func (l *logReader) next(ctx context.Context) ([]byte, error) {
	if l.req.LimitBytes != nil && l.req.GetLimitBytes() <= 0 {
		return nil, io.EOF
	}
	part, err := l.receive()
	for began := time.Now(); rpc.Is(err, rpc.Unavailable) && len(l.req.GetAfter()) > 0 && time.Since(began) < resumeLimit; {
		again := time.NewTimer(resumeRetry)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, err
		case <-again.C:
		}
		part, err = l.open(ctx)
	}
	return part, err
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
