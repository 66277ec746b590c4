// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"container/list"
	"net"
)

// entry is what a queue knows of a connection.
type entry struct {
	conn  net.Conn
	place *list.Element // nil while a request is served
	busy  int           // requests being served; HTTP/2 has several at a time
	sent  int64         // bytes received since a request was last served
	kept  int64         // bytes of the handshake: the certificate stays in memory
	shake int64         // bytes that the handshake may have; 0 once it is complete
}

// queue holds the connections of one class. Those on which no request is served
// (handshaking, sending headers, idle) wait in order of arrival. It is not safe for
// concurrent use.
type queue struct {
	maxWaiting int
	maxSent    int64 // bytes, by those that wait
	waiting    list.List
	sent       int64
	members    map[*entry]bool
}

// join adds a connection and returns those that have to be closed for it: the ones that
// have waited longest.
func (q *queue) join(e *entry) (drop []*entry) {
	q.members[e] = true
	q.wait(e)
	for q.waiting.Len() > q.maxWaiting {
		drop = append(drop, q.remove(q.waiting.Front().Value.(*entry)))
	}
	return drop
}

// received counts bytes of a connection. It returns those that have to be closed
// because all that wait sent too much (the ones that sent most), and whether the
// connection's handshake is too long.
func (q *queue) received(e *entry, bytes int64) (drop []*entry, tooLong bool) {
	if e.place == nil {
		return nil, false
	}
	e.sent += bytes
	q.sent += bytes
	for q.sent > q.maxSent {
		most := q.waiting.Front().Value.(*entry)
		for at := q.waiting.Front(); at != nil; at = at.Next() {
			if other := at.Value.(*entry); other.sent > most.sent {
				most = other
			}
		}
		drop = append(drop, q.remove(most))
	}
	return drop, e.shake > 0 && e.sent > e.shake
}

// begin takes a connection out of the waiting ones while a request is served.
func (q *queue) begin(e *entry) {
	e.busy++
	q.serve(e)
}

// end returns it to them. It closes nothing: the next join does.
func (q *queue) end(e *entry) {
	if e.busy--; e.busy == 0 && q.members[e] {
		q.wait(e)
	}
}

func (q *queue) wait(e *entry) {
	e.place, e.sent = q.waiting.PushBack(e), e.kept
	q.sent += e.sent
}

func (q *queue) serve(e *entry) {
	if e.place != nil {
		q.waiting.Remove(e.place)
		e.place = nil
		q.sent -= e.sent
	}
}

func (q *queue) remove(e *entry) *entry {
	delete(q.members, e)
	q.serve(e)
	return e
}
