// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Line is a TCP proxy before a server.
type Line struct {
	listener net.Listener
	to       string

	mu   sync.Mutex
	open []*wire
}

// wire is one connection through the line.
type wire struct {
	near, far net.Conn
	mu        sync.Mutex
	lost      bool
}

// NewLine begins to serve a line to an address; it is closed at the end of the test.
func NewLine(t testing.TB, to string) *Line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{listener: listener, to: to}
	var group sync.WaitGroup
	group.Go(func() { l.serve(&group) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		for _, w := range l.open {
			w.close()
		}
		l.mu.Unlock()
		group.Wait()
	})
	return l
}

// Addr is where the line begins.
func (l *Line) Addr() string { return l.listener.Addr().String() }

// Swallow makes every connection opened so far lose all that is sent, without an end of
// it: a firewall that drops packets, a load balancer that has lost its state.
func (l *Line) Swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.open {
		w.mu.Lock()
		w.lost = true
		w.mu.Unlock()
	}
}

func (l *Line) serve(group *sync.WaitGroup) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		w := &wire{near: near, far: far}
		l.mu.Lock()
		l.open = append(l.open, w)
		l.mu.Unlock()
		group.Go(func() { w.carry(far, near) })
		group.Go(func() { w.carry(near, far) })
	}
}

// carry passes on what comes from one side until that is closed.
func (w *wire) carry(to io.Writer, from io.Reader) {
	defer w.close()
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		if err != nil {
			return
		}
		w.mu.Lock()
		lost := w.lost
		w.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

func (w *wire) close() {
	_ = w.near.Close()
	_ = w.far.Close()
}
