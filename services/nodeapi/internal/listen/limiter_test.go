// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/nodeapi/internal/fair"
)

// limited serves with limits of its own.
func limited(t *testing.T, waiting int, sent int64, handler http.HandlerFunc, edit func(*requests)) (l *limiter, address string, dropped *atomic.Int32) {
	t.Helper()
	dropped = &atomic.Int32{}
	l = newLimiter(waiting, sent, func() { dropped.Add(1) })
	q := &requests{limiter: l, unauthorized: fair.New(wide, wide), refused: func() {}, body: bodyTimeout}
	edit(q)
	server := httptest.NewUnstartedServer(q.bounded(handler))
	server.Listener = arrivals{server.Listener, l}
	server.Config.ConnContext, server.Config.ConnState = q.context, q.changed
	server.Start()
	t.Cleanup(server.Close)
	return l, server.Listener.Addr().String(), dropped
}

// wide is more than any test sends.
const wide = 1 << 30

func asTheyAre(*requests) {}

// arrivals has a limiter count every connection.
type arrivals struct {
	net.Listener
	limiter *limiter
}

func (a arrivals) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return a.limiter.admit(conn, 0), nil
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// cutOff fails when a connection is answered, or stays open.
func cutOff(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s was not cut off: read %d bytes, %v", what, n, err)
	}
}

// TestTheLongestWaitingGoes: and never one that is served.
func TestTheLongestWaitingGoes(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	_, address, dropped := limited(t, 2, wide, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			in <- struct{}{}
			<-out
		}
		_, _ = io.WriteString(w, "served")
	}, asTheyAre)
	request := func(conn net.Conn, path string) {
		t.Helper()
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	served := dial(t, address)
	request(served, "/slow")
	<-in
	idle := []net.Conn{dial(t, address), dial(t, address), dial(t, address), dial(t, address)}
	for _, conn := range idle[:2] {
		cutOff(t, "one that waited longest", conn)
	}
	if got := dropped.Load(); got != 2 {
		t.Errorf("%d dropped, want 2", got)
	}
	close(out)
	for _, conn := range []net.Conn{idle[2], idle[3]} {
		request(conn, "/")
	}
	for i, conn := range []net.Conn{served, idle[2], idle[3]} {
		buffer := make([]byte, 15)
		if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != "HTTP/1.1 200 OK" {
			t.Errorf("connection %d: %q, %v", i, buffer, err)
		}
	}
}

// TestTheOneThatSentMostGoes, once those who wait have sent too much in all: that is
// nobody who sent little, or who is served.
func TestTheOneThatSentMostGoes(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	l, address, dropped := limited(t, 100, 10_000, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			in <- struct{}{}
			<-out
		}
	}, asTheyAre)
	send := func(size int) net.Conn {
		t.Helper()
		conn := dial(t, address)
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	served := dial(t, address)
	if _, err := io.WriteString(served, "GET /slow HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 9000)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-in
	few, many := []net.Conn{send(100), send(200)}, send(6000)
	few = append(few, send(3000))
	fewer := send(4000) // with all the others too much, but not the most
	cutOff(t, "the one that sent most", many)
	if got := dropped.Load(); got != 1 {
		t.Errorf("%d dropped, want 1", got)
	}
	close(out)
	for i, conn := range append(few, fewer, served) {
		if conn != served {
			if _, err := io.WriteString(conn, "\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		buffer := make([]byte, 15)
		if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != "HTTP/1.1 200 OK" {
			t.Errorf("connection %d: %q, %v", i, buffer, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.sent != 0 {
		t.Errorf("%d bytes are counted of callers who were answered", l.queue.sent)
	}
}

// TestNoRoomOutside: requests that are not let in have only so much room, which is
// given back when they are.
func TestNoRoomOutside(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	refused := make(chan struct{}, 1)
	_, address, _ := limited(t, 100, wide, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/in" {
			Authorized(r)
		}
		in <- struct{}{}
		<-out
	}, func(q *requests) {
		q.refused = func() { refused <- struct{}{} }
		q.unauthorized = fair.New(40<<10, 40<<10) // for two
	})
	request := func(path string) net.Conn {
		t.Helper()
		conn := dial(t, address)
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var all []net.Conn
	for _, path := range []string{"/in", "/in", "/in", "/", "/"} {
		all = append(all, request(path))
		<-in
	}
	surplus := request("/in")
	<-refused
	cutOff(t, "one too many", surplus)
	close(out)
	for _, conn := range all {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
	request("/")
	<-in
}

// TestNobodyIsCountedTwice: the queue is empty when everybody has gone, however
// they went.
func TestNobodyIsCountedTwice(t *testing.T) {
	l, address, _ := limited(t, 5, wide, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	}, asTheyAre)
	var all []net.Conn
	for i := range 20 {
		conn := dial(t, address)
		all = append(all, conn)
		text := []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HT", "garbage\r\n\r\n"}[i%5]
		_, _ = io.WriteString(conn, text) // it may be cut off already
	}
	for _, conn := range all {
		_ = conn.Close()
	}
	empty := func() (all, waiting int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue.members), l.queue.waiting.Len()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for a, w := empty(); a+w > 0; a, w = empty() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%d connections, %d waiting", a, w)
		}
	}
}

// TestABodyThatNeverEnds: the connection is given up when its time is over, by
// a handler that reads and by one that does not.
func TestABodyThatNeverEnds(t *testing.T) {
	for _, reads := range []bool{true, false} {
		ended := make(chan error, 1)
		_, address, _ := limited(t, 5, wide, func(_ http.ResponseWriter, r *http.Request) {
			var err error
			if reads {
				_, err = io.ReadAll(r.Body)
			}
			ended <- err
		}, func(q *requests) { q.body = 50 * time.Millisecond })
		conn := dial(t, address)
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npart"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; reads != (err != nil && strings.Contains(err.Error(), "timeout")) {
			t.Errorf("the handler's reading ended with %v", err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("the connection was not closed: %v", err)
		}
	}
}
