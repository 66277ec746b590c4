package nodeapi

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// crowded serves with a crowd of its own.
func crowded(t *testing.T, most int, handler http.HandlerFunc) (c *crowd, address string, dropped *atomic.Int32) {
	t.Helper()
	dropped = &atomic.Int32{}
	c = newCrowd(most, func() { dropped.Add(1) })
	server := httptest.NewUnstartedServer(c.served(handler))
	server.Config.ConnContext, server.Config.ConnState = c.arrive, c.changed
	server.Start()
	t.Cleanup(server.Close)
	return c, server.Listener.Addr().String(), dropped
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestTheLongestWaitingGoes: and never one that is served.
func TestTheLongestWaitingGoes(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	_, address, dropped := crowded(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			in <- struct{}{}
			<-out
		}
		_, _ = io.WriteString(w, "served")
	})
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
	for _, conn := range idle[:2] { // cut off
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("it was answered")
		}
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

// TestNobodyIsCountedTwice: the queue is empty when everybody has gone, however
// they went.
func TestNobodyIsCountedTwice(t *testing.T) {
	c, address, _ := crowded(t, 5, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	})
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
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.visitors), c.waiting.Len()
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
		c, address, _ := crowded(t, 5, func(_ http.ResponseWriter, r *http.Request) {
			var err error
			if reads {
				_, err = io.ReadAll(r.Body)
			}
			ended <- err
		})
		c.body = 50 * time.Millisecond
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
