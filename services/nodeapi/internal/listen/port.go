// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
)

// Port is a port to listen on.
type Port struct {
	// Name is for the log and for errors; Address is host:port.
	Name, Address string
	// TLS is nil for plain HTTP.
	TLS     *tls.Config
	Handler http.Handler
}

// key is equal for ports that need not be opened again when one replaces the other.
func (p Port) key() string {
	if p.TLS == nil {
		return p.Name + "=" + p.Address
	}
	return fmt.Sprint(p.Name, "=", p.Address, p.TLS.MinVersion, p.TLS.CipherSuites, p.TLS.CurvePreferences)
}

// openPort accepts the connections of a port, makes the TLS handshake, and hands each
// connection to the class it belongs to.
type openPort struct {
	key       string
	listener  net.Listener
	tls       *tls.Config // nil for plain HTTP
	verified  func(*tls.ConnectionState) bool
	callers   *callerlog.Log
	strangers *class
	certified *class // the same as strangers for plain HTTP
}

func newOpenPort(p Port, listener net.Listener, d Deps) *openPort {
	o := &openPort{key: p.key(), listener: listener, tls: p.TLS, verified: d.Verified, callers: d.Callers}
	if p.TLS == nil {
		o.strangers = newClass(plainLimits, p.Handler, d, listener.Addr())
		o.certified = o.strangers
	} else {
		o.strangers, o.certified = newClass(strangerLimits, p.Handler, d, listener.Addr()), newClass(certifiedLimits, p.Handler, d, listener.Addr())
	}
	return o
}

// acceptWaits are the waits after connections that could not be accepted (net/http's).
var acceptWaits = backoff.Doubling{Least: 5 * time.Millisecond, Most: time.Second}

// serve accepts connections until the port is closed.
func (o *openPort) serve() {
	go func() { _ = o.strangers.server.Serve(o.strangers) }() // until it is shut
	if o.certified != o.strangers {
		go func() { _ = o.certified.server.Serve(o.certified) }()
	}
	for failures := 0; ; {
		accepted, err := o.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many files are open, or the caller has left already
			failures++
			o.callers.Log(context.Background(), slog.LevelWarn, "", "connection not accepted", service.KeyError, err.Error())
			select {
			case <-o.strangers.closed:
				return
			case <-time.After(acceptWaits.After(failures)):
			}
			continue
		}
		failures = 0
		if o.tls == nil {
			o.strangers.serve(o.strangers.limiter.admit(accepted, 0))
			continue
		}
		go o.handshake(o.strangers.limiter.admit(accepted, maxHandshake))
	}
}

// handshake makes the TLS handshake, within the time that headers have too.
func (o *openPort) handshake(c *conn) {
	secure := tls.Server(c, o.tls)
	err := c.SetDeadline(time.Now().Add(headerTimeout))
	if err == nil {
		err = secure.Handshake()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		o.failed(c, err)
		return
	}
	o.strangers.limiter.shaken(c)
	if state := secure.ConnectionState(); o.verified(&state) {
		c.leave()
		o.certified.limiter.take(c)
		o.certified.serve(secure)
		return
	}
	o.strangers.serve(secure)
}

// failed ends a connection whose handshake failed. A caller that speaks plain HTTP gets
// the answer of net/http.
func (o *openPort) failed(c *conn, err error) {
	var record tls.RecordHeaderError
	plain := []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}
	if errors.As(err, &record) && record.Conn != nil && slices.Contains(plain, string(record.RecordHeader[:])) {
		_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n") // the caller may have left
	}
	_ = c.Close() // there is no session to end
	o.callers.Log(context.Background(), slog.LevelDebug, c.RemoteAddr().String(), "handshake failed", service.KeyError, err.Error())
}

// close closes the port and all connections that are served on it.
func (o *openPort) close() {
	_ = o.listener.Close() // callers in its queue are cut off
	o.strangers.shut()
	o.certified.shut() // a second time does nothing
}
