package nodeapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// containerLogs streams a container's log, flushed as it comes.
func (s *Service) containerLogs(w http.ResponseWriter, r *http.Request) {
	req, err := logRequest(r.URL.Query())
	if err != nil {
		http.Error(w, fmt.Sprintf(`{"message": %q}`, err.Error()), http.StatusBadRequest)
		return
	}
	req.Namespace, req.Pod, req.Container = r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	stream, err := s.worker.ContainerLogs(r.Context(), req)
	if err == nil {
		var first *podworkerv1.ContainerLogsResponse
		if first, err = stream.Recv(); err == nil || errors.Is(err, io.EOF) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Transfer-Encoding", "chunked")
			s.copyLog(w, stream, first, err)
			return
		}
	}
	http.Error(w, err.Error(), httpStatus(err))
}

type logStream interface {
	Recv() (*podworkerv1.ContainerLogsResponse, error)
}

func (s *Service) copyLog(w http.ResponseWriter, stream logStream, part *podworkerv1.ContainerLogsResponse, err error) {
	flusher := http.NewResponseController(w)
	for err == nil {
		if _, err := w.Write(part.GetData()); err != nil {
			return // the caller went away
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		part, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		s.kit.Log.Debug("log stream ended", "error", err.Error())
	}
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
// the kubelet does.
func logRequest(q url.Values) (*podworkerv1.ContainerLogsRequest, error) {
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
	switch stream := q.Get("stream"); stream {
	case "", "All":
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
