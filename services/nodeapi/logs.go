package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	req, err := logRequest(r.URL.Query(), conf != nil && conf.Gate("PodLogsQuerySplitStreams"))
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"message": %q}`, err.Error()), http.StatusBadRequest)
		return
	}
	req.Namespace, req.Pod, req.Container = r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	log := &logReader{worker: s.worker, req: req}
	part, err := log.open(r.Context())
	if err != nil && !errors.Is(err, io.EOF) {
		http.Error(w, err.Error(), httpStatus(err))
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
	case rpc.Invalid:
		return http.StatusUnprocessableEntity
	case rpc.NotFound:
		return http.StatusNotFound
	case rpc.Denied:
		return http.StatusForbidden
	case rpc.Conflict:
		return http.StatusBadRequest
	case rpc.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// logRequest reads v1.PodLogOptions from a query. Unknown keys are ignored, as
// the kubelet does. split allows for a choice of stream.
func logRequest(q url.Values, split bool) (*podworkerv1.ContainerLogsRequest, error) {
	p := &logParser{q: q}
	req := &podworkerv1.ContainerLogsRequest{
		Follow: p.bool("follow"), Previous: p.bool("previous"), Timestamps: p.bool("timestamps"),
		SinceSeconds: p.int("sinceSeconds"), TailLines: p.int("tailLines"), LimitBytes: p.int("limitBytes"),
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		p.check("sinceTime", err)
		req.SinceTime = timestamppb.New(t)
	}
	// The old name; "all" is the default.
	if text := q.Get("tail"); text != "" && text != "all" && req.TailLines == nil {
		req.TailLines = p.int("tail")
	}
	switch stream := q.Get("stream"); {
	case stream == "" || stream == "All":
	case split:
		req.Stream = stream
	default:
		p.check("stream", fmt.Errorf("%q needs the feature gate PodLogsQuerySplitStreams", stream))
	}
	return req, p.err
}

type logParser struct {
	q   url.Values
	err error
}

func (p *logParser) check(field string, err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (p *logParser) bool(field string) bool {
	text := p.q.Get(field)
	if text == "" {
		return false
	}
	b, err := strconv.ParseBool(text)
	p.check(field, err)
	return b
}

func (p *logParser) int(field string) *int64 {
	text := p.q.Get(field)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	p.check(field, err)
	return &n
}
