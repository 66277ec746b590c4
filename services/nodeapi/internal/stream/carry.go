// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

const (
	// defaultIdle is the default of streamingConnectionIdleTimeout.
	defaultIdle = 4 * time.Hour
	// prepareTimeout bounds how long the runtime takes to name a URL, a restart of
	// podworker included.
	prepareTimeout = 15 * time.Second
)

// errUpgrade is the answer of the kubelet's proxy.
var errUpgrade = reply.Errorf(http.StatusInternalServerError, "Upgrade request required")

// carry has the runtime prepare a stream and proxies it until it ends; translated serves
// a WebSocket that is not passed on as it is.
func (s *sessions) carry(w http.ResponseWriter, r *http.Request, n *session, prepare func(ctx context.Context, id string) (string, error), translated func(*url.URL) http.Handler) error {
	location, err := s.locate(r, n, prepare)
	if err == errUpgrade { //nolint:errorlint // it is not wrapped
		http.Error(w, errUpgrade.Text, errUpgrade.Status)
		return nil
	}
	if err != nil {
		return err
	}
	handler := upgrade(location)
	if n.webSocket {
		handler = translated(location)
		s.metrics.webSockets.WithLabelValues(n.kind).Inc()
	}
	s.metrics.open.WithLabelValues(n.kind).Inc()
	defer s.metrics.open.WithLabelValues(n.kind).Dec()
	ended := s.begin(r, n)

	ctx, done := context.WithCancel(r.Context())
	defer done()
	// The library logs the end of each connection.
	on := r.Clone(klog.NewContext(ctx, logr.Discard()))
	on.Header.Del("Authorization") // the caller's credentials do not concern the runtime
	on.Header.Del("Cookie")
	taken := &takeover{ResponseWriter: w, idle: defaultIdle, done: done}
	if conf := s.conf(); conf != nil && conf.Kubelet.StreamingConnectionIdleTimeout.Duration > 0 {
		taken.idle = conf.Kubelet.StreamingConnectionIdleTimeout.Duration
	}
	defer func() { ended(taken.taken.Load()) }()
	handler.ServeHTTP(taken, on)
	return nil
}

// locate asks the runtime for the URL of a stream, unless the request cannot become one.
func (s *sessions) locate(r *http.Request, n *session, prepare func(ctx context.Context, id string) (string, error)) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(r.Context(), prepareTimeout)
	defer cancel()
	var raw string
	err := s.pods.Do(ctx, n.Target, func(id string) (err error) {
		if !httpstream.IsUpgradeRequest(r) {
			return errUpgrade
		}
		raw, err = prepare(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return url.Parse(raw)
}

// webSockets reports whether this process serves WebSockets, and not the runtime.
func (s *sessions) webSockets() bool {
	conf := s.conf()
	return conf == nil || conf.Gate("ExtendWebSocketsToKubelet")
}

// upgrade proxies a connection to the runtime's streaming server.
func upgrade(location *url.URL) http.Handler {
	return proxy.NewUpgradeAwareHandler(location, nil, false, true, failed{})
}

// failed answers when the runtime's streaming server does not.
type failed struct{}

// Error implements proxy.ErrorResponder.
func (failed) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// takeover is a response whose connection becomes a stream. The stream ends when nothing
// was sent in either direction for idle. done is called as soon as the caller has left: a
// silent command would otherwise hold its end of the stream for as long as it runs.
type takeover struct {
	http.ResponseWriter
	idle time.Duration
	done context.CancelFunc
	// taken is set once the connection is a stream.
	taken atomic.Bool
}

// Hijack implements http.Hijacker.
func (t *takeover) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.taken.Store(true)
	s := &streamConn{
		Conn: conn, early: buffered.Reader, idle: t.idle, done: t.done,
		timer: time.AfterFunc(t.idle, func() { _ = conn.Close() }),
	}
	return s, bufio.NewReadWriter(bufio.NewReader(s), bufio.NewWriter(s)), nil
}

// Unwrap is for http.ResponseController.
func (t *takeover) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// streamConn is a caller's connection that has become a stream.
type streamConn struct {
	net.Conn
	// early holds what the caller sent together with its request.
	early *bufio.Reader
	idle  time.Duration
	timer *time.Timer
	done  context.CancelFunc
}

// Read implements net.Conn.
func (s *streamConn) Read(p []byte) (int, error) {
	if early := s.early.Buffered(); early > 0 {
		return s.early.Read(p[:min(len(p), early)])
	}
	return s.moved(s.Conn.Read(p))
}

// Write implements net.Conn.
func (s *streamConn) Write(p []byte) (int, error) { return s.moved(s.Conn.Write(p)) }

func (s *streamConn) moved(n int, err error) (int, error) {
	if n > 0 {
		s.timer.Reset(s.idle)
	}
	if err != nil {
		s.done()
	}
	return n, err
}

// Close implements net.Conn. A library that speaks with the caller calls it to give up.
func (s *streamConn) Close() error {
	s.timer.Stop()
	s.done()
	return s.Conn.Close()
}
