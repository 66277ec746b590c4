// SPDX-License-Identifier: Apache-2.0

// Package access decides which requests of a port are served: it authenticates and
// authorizes callers, hides what the configuration switches off, and answers like the
// kubelet's router for what is not there. It counts all requests.
//
// It owns those metrics; who is let in is decided by package auth.
package access

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// Deps are what Access uses.
type Deps struct {
	// Conf is the configuration, nil while it is not known.
	Conf     func() *kubeletconfig.Config
	Gate     *auth.Gate
	Registry prometheus.Registerer
	// Refused counts the requests that are refused because too many wait for a review.
	Refused prometheus.Counter
	Callers *callerlog.Log
	Log     *slog.Logger
}

// Access is safe for concurrent use.
type Access struct {
	conf    func() *kubeletconfig.Config
	guard   *guard
	metrics *metrics
}

// New makes an Access.
func New(d Deps) *Access {
	return &Access{
		conf: d.Conf, metrics: newMetrics(d.Registry),
		guard: &guard{gate: d.Gate, refused: d.Refused, callers: d.Callers, log: d.Log},
	}
}

// HTTPS serves mux to callers who are authorized.
func (a *Access) HTTPS(mux *http.ServeMux) http.Handler {
	return a.metrics.counted("readwrite", a.guard.around(mux, debugging(a.conf, routed(mux))))
}

// ReadOnly serves mux to every caller; it has no debug paths.
func (a *Access) ReadOnly(mux *http.ServeMux) http.Handler {
	for _, path := range debugPaths {
		mux.HandleFunc(path, reply.Disabled(debugOff))
	}
	return a.metrics.counted("readonly", routed(mux))
}
