// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Weather is how the API server is to be reached through a Gate.
type Weather string

// Fair lets everything through at once.
const (
	Fair Weather = "answers"
	// Slow holds each piece of data up for slowBy, both ways.
	Slow Weather = "slow"
	// Silent lets nothing through; connections stay, and what was sent arrives
	// afterwards.
	Silent Weather = "silent"
	// Refusing ends every connection, and each new one at once.
	Refusing Weather = "refuses"
)

// slowBy is what a slow way takes in one direction.
const slowBy = 150 * time.Millisecond

// Gate is a way of a node's own to the API server, to make worse as one likes.
// The test and other nodes go past it. TLS goes through it, so the API server sees
// the node's certificate.
type Gate struct {
	// Server is the URL of the API server by this way.
	Server string

	to       string
	listener net.Listener

	mu      sync.Mutex
	weather Weather
	changed chan struct{} // closed at the next change
	conns   map[net.Conn]bool
	ended   bool
	all     sync.WaitGroup
}

// Gate opens a way to the API server until the test ends. It outlives Stop and
// Resume.
func (c *ControlPlane) Gate(t testing.TB) *Gate {
	t.Helper()
	server, err := url.Parse(c.Server)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{to: server.Host, weather: Fair, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	if g.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	g.Server = fmt.Sprintf("https://%s", g.listener.Addr())
	g.all.Go(g.accept)
	t.Cleanup(g.end)
	return g
}

// Set changes how the API server is to be reached.
func (g *Gate) Set(w Weather) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.weather = w
	close(g.changed)
	g.changed = make(chan struct{})
	if w == Refusing {
		g.cut()
	}
}

// cut ends all connections; g.mu is held.
func (g *Gate) cut() {
	for c := range g.conns {
		_ = c.Close() // what ends here is what is tested
	}
}

func (g *Gate) end() {
	g.mu.Lock()
	g.ended = true
	close(g.changed)
	g.changed = make(chan struct{})
	g.cut()
	g.mu.Unlock()
	_ = g.listener.Close()
	g.all.Wait()
}

func (g *Gate) accept() {
	for {
		c, err := g.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		g.all.Go(func() { g.serve(c) })
	}
}

// keep notes a connection, unless there is to be none.
func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.weather == Refusing {
		return false
	}
	g.conns[c] = true
	return true
}

func (g *Gate) drop(c net.Conn) {
	_ = c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

func (g *Gate) serve(c net.Conn) {
	defer g.drop(c)
	if !g.keep(c) || !g.pass() {
		return
	}
	server, err := net.Dial("tcp", g.to)
	if err != nil {
		return // it is away: the node hears as much
	}
	defer g.drop(server)
	if !g.keep(server) {
		return
	}
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{c: server, server: c} {
		both.Go(func() {
			defer c.Close()      //nolint:errcheck // either end is the end of both
			defer server.Close() //nolint:errcheck // as above
			_, _ = io.Copy(to, reader{g, from})
		})
	}
	both.Wait()
}

// reader is one direction of a connection through the gate.
type reader struct {
	g    *Gate
	from net.Conn
}

func (r reader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if n > 0 && !r.g.pass() {
		return 0, io.EOF
	}
	return n, err
}

// pass waits as long as the weather has it, and reports whether to go on.
func (g *Gate) pass() bool {
	for held := false; ; {
		g.mu.Lock()
		w, ended, changed := g.weather, g.ended, g.changed
		g.mu.Unlock()
		switch {
		case ended || w == Refusing:
			return false
		case w == Fair || w == Slow && held:
			return true
		case w == Slow:
			held = true
			select {
			case <-time.After(slowBy):
			case <-changed:
			}
		default:
			<-changed
		}
	}
}
