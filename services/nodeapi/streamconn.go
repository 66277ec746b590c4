package nodeapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// takeover is a response whose connection becomes a stream. Once it has, the
// stream ends when nothing moves in either direction for idle, and done is
// called as soon as the caller is gone: a command that says nothing would
// otherwise hold its end of the stream for as long as it runs.
type takeover struct {
	http.ResponseWriter
	idle time.Duration
	done context.CancelFunc
	// taken is set once the connection is the stream's.
	taken atomic.Bool
}

// Hijack implements http.Hijacker.
func (t *takeover) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.taken.Store(true)
	s := &streamConn{Conn: conn, early: buffered.Reader, idle: t.idle, done: t.done}
	s.timer = time.AfterFunc(t.idle, func() { _ = conn.Close() })
	return s, bufio.NewReadWriter(bufio.NewReader(s), bufio.NewWriter(s)), nil
}

// Unwrap lets an http.ResponseController through.
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

func (s *streamConn) Read(p []byte) (int, error) {
	if early := s.early.Buffered(); early > 0 {
		return s.early.Read(p[:min(len(p), early)])
	}
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.timer.Reset(s.idle)
	}
	if err != nil {
		s.done()
	}
	return n, err
}

func (s *streamConn) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if n > 0 {
		s.timer.Reset(s.idle)
	}
	if err != nil {
		s.done()
	}
	return n, err
}

// Close is also how a library that speaks with the caller gives up on them.
func (s *streamConn) Close() error {
	s.timer.Stop()
	s.done()
	return s.Conn.Close()
}
