// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"context"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/services/nodeapi/internal/fair"
)

// Timeouts of the kubelet's own servers.
const (
	// StreamTimeout bounds a request, and how long its answer takes.
	StreamTimeout = 4 * time.Hour
	idleTimeout   = 90 * time.Second
	headerTimeout = 32 * time.Second
)

// bodyTimeout bounds how long a caller sends a body: no request has a long one.
const bodyTimeout = 30 * time.Second

// limits bound what the callers of one class make the process hold. Sizes are in bytes.
type limits struct {
	// Waiting is how many connections are open without a request being served, and Sent
	// how much was received on those since one was: small headers take thirty times that.
	Waiting int
	Sent    int64
	// Header bounds the headers of a request.
	Header int
	// Unauthorized bounds what requests hold before their callers are authorized, and
	// UnauthorizedOne those from one address.
	Unauthorized, UnauthorizedOne int64
	// Write bounds how long an answer takes.
	Write time.Duration
	// HTTP2 is nil for the values of net/http.
	HTTP2 *http.HTTP2Config
}

// On the HTTPS port, callers with a certificate of the cluster's authority (above all the
// API server) have the limits of a kubelet, and all others smaller ones of their own. With
// HTTP/2 these have the smallest frames and windows there are; streams use HTTP/1.1.
var (
	certifiedLimits = limits{Waiting: 250, Sent: 4 << 20, Header: 1 << 20, Unauthorized: 64 << 20, UnauthorizedOne: 64 << 20, Write: StreamTimeout}
	strangerLimits  = limits{
		Waiting: 1000, Sent: 4 << 20, Header: 64 << 10, Unauthorized: 16 << 20, UnauthorizedOne: 4 << 20, Write: StreamTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 32, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10,
		},
	}
	// About 30 requests at a time, with answers of megabytes.
	plainLimits = limits{Waiting: 250, Sent: 1 << 20, Header: 16 << 10, Unauthorized: 512 << 10, UnauthorizedOne: 256 << 10, Write: time.Minute}
)

// fitting leaves half of the process's file descriptors to requests.
func (l limits) fitting() limits {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		l.Waiting = int(min(uint64(l.Waiting), files.Cur/2))
	}
	return l
}

// requests bounds what the requests of one class hold before their callers are
// authorized. Its limiter counts the connections that they come on.
type requests struct {
	limiter *limiter
	// unauthorized is shared by the requests whose callers are not authorized yet, in
	// bytes.
	unauthorized *fair.Share
	refused      func()        // called for each request for which there was no share
	body         time.Duration // for the body of a request; streams have none
}

type (
	connKey  struct{}
	shareKey struct{}
)

// context is http.Server.ConnContext.
func (q *requests) context(ctx context.Context, served net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(served))
}

// changed is http.Server.ConnState: a stream is no longer counted.
func (q *requests) changed(served net.Conn, state http.ConnState) {
	if c := connOf(served); c != nil && state == http.StateHijacked {
		c.leave()
	}
}

// bounded takes a connection out of the waiting ones while a request is served, and
// bounds the request. For want of a share it closes the connection: to write an answer
// could block.
func (q *requests) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, _ := r.Context().Value(connKey{}).(*conn); c != nil {
			q.count(c, (*queue).begin)
			defer q.count(c, (*queue).end)
		}
		giveBack, ok := q.unauthorized.Take(fair.Origin(r.RemoteAddr), weight(r))
		if !ok {
			q.refused()
			panic(http.ErrAbortHandler)
		}
		defer giveBack()
		if r.ContentLength != 0 && r.Header.Get("Upgrade") == "" {
			// A writer without deadlines has the server's.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(q.body))
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shareKey{}, giveBack)))
	})
}

func (q *requests) count(c *conn, change func(*queue, *entry)) {
	q.limiter.mu.Lock()
	defer q.limiter.mu.Unlock()
	change(&q.limiter.queue, c.entry)
}

// Authorized returns the share of a request whose caller has been authorized.
func Authorized(r *http.Request) {
	if giveBack, ok := r.Context().Value(shareKey{}).(func()); ok {
		giveBack()
	}
}

// weight estimates, from above, what a request holds, in bytes: its headers are kept
// several times, beside stacks and buffers.
func weight(r *http.Request) int64 {
	text := len(r.RequestURI)
	for name, values := range r.Header {
		text += len(name) + 64
		for _, value := range values {
			text += len(value) + 32
		}
	}
	return 16<<10 + 4*int64(text)
}
