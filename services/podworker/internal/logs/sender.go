// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"sync"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// maxPending is how much may wait for a slow reader, in bytes.
const maxPending = 256 << 10

// sender sends what it is given as soon as the reader takes it, in answers as
// large as what has come in meanwhile: one line at a time when a log is
// followed, large pieces when it is read whole.
type sender struct {
	send func(*podworkerv1.ContainerLogsResponse) error

	mu      sync.Mutex
	changed sync.Cond
	pending bytes.Buffer
	at      cursor
	closed  bool
	err     error
	ended   chan struct{}
}

func newSender(send func(*podworkerv1.ContainerLogsResponse) error) *sender {
	s := &sender{send: send, ended: make(chan struct{})}
	s.changed.L = &s.mu
	go s.run()
	return s
}

func (s *sender) run() {
	defer close(s.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for s.pending.Len() == 0 && !s.closed {
			s.changed.Wait()
		}
		if s.pending.Len() == 0 {
			return
		}
		answer := &podworkerv1.ContainerLogsResponse{Data: bytes.Clone(s.pending.Bytes()), Cursor: s.at.bytes()}
		s.pending.Reset()
		s.changed.Broadcast()
		s.mu.Unlock()
		err := s.send(answer)
		s.mu.Lock()
		if err != nil {
			s.err = err
			s.changed.Broadcast()
			return
		}
	}
}

// add queues data that ends at a position; it waits while the reader is slow.
func (s *sender) add(data []byte, at cursor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.pending.Len() > maxPending && s.err == nil {
		s.changed.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.pending.Write(data)
	s.at = at
	s.changed.Broadcast()
	return nil
}

// close sends what is left and returns the first error.
func (s *sender) close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.ended
	return s.err
}
