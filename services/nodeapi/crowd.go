package nodeapi

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mostWaiting is how many connections of a port may be open without a request
	// being served on them. More memory than that takes (some 40 MiB) is not spent
	// on those who only wait.
	mostWaiting = 1000
	// bodyTimeout bounds how long a caller may take to send a body: nobody has
	// much to send. Streams are not bodies.
	bodyTimeout = 30 * time.Second
)

// crowd are the connections of one port. Those on which nothing is served
// (handshaking, sending their headers, idle) wait in a queue; when it is too
// long, the one that has waited longest is closed. So whoever opens connections
// and does nothing with them, or next to nothing, closes their own: a caller who
// sends a request at once is served.
type crowd struct {
	most    int
	body    time.Duration
	dropped func() // is told of each that was closed

	mu       sync.Mutex
	waiting  list.List // of *visitor, longest first
	visitors map[net.Conn]*visitor
}

// visitor is one connection.
type visitor struct {
	conn  net.Conn
	place *list.Element // nil while it is served
	busy  int           // requests being served: with HTTP/2 there may be many
}

func newCrowd(most int, dropped func()) *crowd {
	return &crowd{most: most, body: bodyTimeout, dropped: dropped, visitors: map[net.Conn]*visitor{}}
}

// waitingLimit leaves half of the process's descriptors to requests.
func waitingLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return mostWaiting
	}
	return int(min(mostWaiting, limit.Cur/2))
}

type visitorKey struct{}

// arrive is http.Server.ConnContext.
func (c *crowd) arrive(ctx context.Context, conn net.Conn) context.Context {
	v := &visitor{conn: conn}
	c.mu.Lock()
	c.visitors[conn] = v
	v.place = c.waiting.PushBack(v)
	var oldest *visitor
	if c.waiting.Len() > c.most {
		oldest = c.waiting.Front().Value.(*visitor)
		c.forget(oldest)
	}
	c.mu.Unlock()
	if oldest != nil {
		c.dropped()
		oldest.close()
	}
	return context.WithValue(ctx, visitorKey{}, v)
}

// changed is http.Server.ConnState.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.visitors[conn]; ok {
		c.forget(v)
	}
}

func (c *crowd) forget(v *visitor) {
	delete(c.visitors, v.conn)
	if v.place != nil {
		c.waiting.Remove(v.place)
		v.place = nil
	}
}

// close cuts the connection without a word: a TLS goodbye could block.
func (v *visitor) close() {
	conn := v.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close() // nobody is told
}

// served takes a connection out of the queue for as long as one of its requests
// is served, and bounds the time of the request's body.
func (c *crowd) served(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
			c.enter(v)
			defer c.leave(v)
		}
		if r.ContentLength != 0 && r.Header.Get("Upgrade") == "" {
			// A writer that has no deadlines has the server's.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(c.body))
		}
		next.ServeHTTP(w, r)
	})
}

func (c *crowd) enter(v *visitor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.busy++
	if v.place != nil {
		c.waiting.Remove(v.place)
		v.place = nil
	}
}

func (c *crowd) leave(v *visitor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.busy--; v.busy == 0 && c.visitors[v.conn] == v {
		v.place = c.waiting.PushBack(v)
	}
}
