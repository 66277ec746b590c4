// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/fair"
)

// Deps are what all ports share.
type Deps struct {
	// Sockets are listening sockets that the process was started with.
	Sockets []*os.File
	// Verified reports whether a connection has a client certificate that identifies
	// its caller.
	Verified func(*tls.ConnectionState) bool
	Metrics  Metrics
	Callers  *callerlog.Log
	Log      *slog.Logger
}

// Metrics count the connections and requests that are refused because there are too many.
type Metrics struct{ Dropped, Refused prometheus.Counter }

// NewMetrics makes the metrics.
func NewMetrics(registry prometheus.Registerer) Metrics {
	to := metric.In(registry)
	return Metrics{
		Dropped: to.Counter("sextant_nodeapi_connections_dropped_total", "Connections without a request that were closed because there were too many."),
		Refused: to.Counter("sextant_nodeapi_requests_refused_total", "Requests that were refused unreviewed because too many others waited for a review."),
	}
}

// class serves the connections of one class within its limits. It is the listener of its
// server.
type class struct {
	limiter *limiter
	server  *http.Server
	accept  chan net.Conn
	close   func()
	closed  chan struct{}
	addr    net.Addr
}

func newClass(limits limits, handler http.Handler, d Deps, addr net.Addr) *class {
	limits = limits.fitting()
	limiter := newLimiter(limits.Waiting, limits.Sent, d.Metrics.Dropped.Inc)
	requests := &requests{
		limiter: limiter, unauthorized: fair.New(limits.Unauthorized, limits.UnauthorizedOne), refused: d.Metrics.Refused.Inc, body: bodyTimeout,
	}
	closed := make(chan struct{})
	return &class{
		limiter: limiter, accept: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) }), addr: addr,
		server: &http.Server{
			Handler: requests.bounded(handler), ConnContext: requests.context, ConnState: requests.changed,
			IdleTimeout: idleTimeout, ReadTimeout: StreamTimeout, WriteTimeout: limits.Write,
			ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: limits.Header, HTTP2: limits.HTTP2,
			ErrorLog: log.New(d.Callers, "", 0),
		},
	}
}

// Accept implements net.Listener.
func (c *class) Accept() (net.Conn, error) {
	select {
	case accepted := <-c.accept:
		return accepted, nil
	case <-c.closed:
		return nil, http.ErrServerClosed
	}
}

// Close implements net.Listener.
func (c *class) Close() error {
	c.close()
	return nil
}

// Addr implements net.Listener.
func (c *class) Addr() net.Addr { return c.addr }

// serve hands a connection to the server.
func (c *class) serve(accepted net.Conn) {
	select {
	case c.accept <- accepted:
	case <-c.closed:
		_ = connOf(accepted).Close()
	}
}

// shut ends the server and closes its connections.
func (c *class) shut() {
	_ = c.server.Close() // callers are cut off without an answer
	c.limiter.close()
}
