// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// limiter bounds the connections of one class, so that a caller who opens connections
// and sends nothing, or slowly, loses those and costs no other caller an answer.
type limiter struct {
	dropped func() // called for each connection that is closed

	mu    sync.Mutex
	queue queue
}

func newLimiter(waiting int, sent int64, dropped func()) *limiter {
	return &limiter{dropped: dropped, queue: queue{maxWaiting: waiting, maxSent: sent, members: map[*entry]bool{}}}
}

// conn is a connection that a limiter counts.
type conn struct {
	net.Conn
	entry   *entry                  // guarded by the limiter's lock
	limiter atomic.Pointer[limiter] // nil once it is closed, or a stream
}

// maxHandshake bounds what a caller sends before the handshake is complete, in bytes: a
// certificate chain has some thousands.
const maxHandshake = 32 << 10

var errHandshake = errors.New("handshake too long")

// admit counts a connection; shake is how long its handshake may be, 0 for none.
func (l *limiter) admit(accepted net.Conn, shake int64) *conn {
	c := &conn{Conn: accepted, entry: &entry{conn: accepted, shake: shake}}
	l.take(c)
	return c
}

// take counts a connection that no limiter does.
func (l *limiter) take(c *conn) {
	c.limiter.Store(l)
	l.mu.Lock()
	drop := l.queue.join(c.entry)
	l.mu.Unlock()
	l.drop(drop)
}

// shaken says that the handshake of a connection is complete.
func (l *limiter) shaken(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.entry.shake, c.entry.kept = 0, c.entry.sent
}

// drop closes the sockets: to close a TLS connection could block.
func (l *limiter) drop(all []*entry) {
	for _, e := range all {
		l.dropped()
		_ = e.conn.Close()
	}
}

// close closes all connections.
func (l *limiter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.queue.members {
		_ = l.queue.remove(e).conn.Close()
	}
}

// leave ends the counting.
func (c *conn) leave() {
	if l := c.limiter.Swap(nil); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.queue.remove(c.entry)
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	l := c.limiter.Load()
	if l == nil || n <= 0 {
		return n, err
	}
	l.mu.Lock()
	drop, tooLong := l.queue.received(c.entry, int64(n))
	l.mu.Unlock()
	l.drop(drop)
	if tooLong {
		return n, errHandshake
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// connOf finds the counted connection below one that net/http serves.
func connOf(served net.Conn) *conn {
	if secure, ok := served.(*tls.Conn); ok {
		served = secure.NetConn()
	}
	c, _ := served.(*conn)
	return c
}
