// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// A request that client-go put on a connection that was closed already is put on the next
// one: so often, with this pause before each. It takes a moment until the pool of
// connections has noticed that one is closed.
const (
	requeues     = 5
	requeuePause = 20 * time.Millisecond
)

// reconnecting is the transport of one client. It closes the client's connections when
// the second request in a row is not answered: what was swallowed on the way (by a
// firewall that drops packets, by a load balancer that has lost its state) goes over a
// new connection then. HTTP/2's own health check takes 45 s, longer than a Lease lasts.
// A kubelet does the same at the second failure of a heartbeat.
type reconnecting struct {
	http.RoundTripper
	close func()

	mu         sync.Mutex
	unanswered int
	generation int // how often the connections were closed
}

// RoundTrip implements http.RoundTripper.
func (r *reconnecting) RoundTrip(request *http.Request) (*http.Response, error) {
	began := r.connection()
	response, err := r.RoundTripper.RoundTrip(request)
	for range requeues {
		// One that was on its way when its connection was closed may have been carried out.
		if !errors.Is(err, net.ErrClosed) || began != r.connection() {
			break
		}
		next := requeued(request)
		if next == nil {
			break
		}
		response, err = r.RoundTripper.RoundTrip(next)
	}
	if r.repeated(began, err) {
		r.close()
	}
	return response, err
}

// connection counts how often the connections were closed.
func (r *reconnecting) connection() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation
}

// requeued is the request once more, after a pause; nil when it ended meanwhile or its body
// cannot be had again.
func requeued(request *http.Request) *http.Request {
	next := request.WithContext(request.Context()) // a RoundTripper leaves requests as they are
	if request.Body != nil && request.Body != http.NoBody {
		if request.GetBody == nil {
			return nil
		}
		body, err := request.GetBody()
		if err != nil {
			return nil
		}
		next.Body = body
	}
	timer := time.NewTimer(requeuePause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return next
	case <-request.Context().Done():
		return nil
	}
}

// repeated takes in how a request ended, and reports whether to close the connections.
// Requests that were begun on connections closed since do not count.
func (r *reconnecting) repeated(began int, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began != r.generation {
		return false
	}
	if err == nil {
		r.unanswered = 0
		return false
	}
	r.unanswered++
	if r.unanswered < 2 {
		return false
	}
	r.unanswered = 0
	r.generation++
	return true
}
