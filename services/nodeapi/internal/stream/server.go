// SPDX-License-Identifier: Apache-2.0

// Package stream serves the requests that enter a pod: exec, attach, portForward, run and
// checkpoint.
//
// It owns the open sessions, and logs who had each, of which container, and how long. It
// promises the kubelet's answers, WebSockets as well as SPDY; that a session ends when its
// caller has left or when nothing was sent for streamingConnectionIdleTimeout; and that a
// session, once it is open, needs only this process and the runtime's streaming server.
// Sessions end with the process.
package stream

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// Deps are what a Server uses. Runtime and Worker are for calls that take long.
type Deps struct {
	// Conf is the configuration, nil while it is not known.
	Conf     func() *kubeletconfig.Config
	Pods     *view.Pods
	Runtime  runtimeapi.RuntimeServiceClient
	Worker   podworkerv1.PodWorkerServiceClient
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// New makes a server.
func New(d Deps) *Server {
	sessions := &sessions{conf: d.Conf, pods: d.Pods, metrics: newMetrics(d.Registry), log: d.Log}
	return &Server{sessions: sessions, runtime: d.Runtime, worker: d.Worker}
}

// Routes adds the paths.
func (s *Server) Routes(mux *http.ServeMux) {
	const container, withUID = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
	for path, handler := range map[string]reply.Handler{
		"/exec" + container: s.exec, "/exec" + withUID: s.exec,
		"/attach" + container: s.attach, "/attach" + withUID: s.attach,
		"/portForward/{namespace}/{pod}": s.portForward, "/portForward/{namespace}/{pod}/{uid}": s.portForward,
	} {
		mux.Handle("GET "+path, handler)
		mux.Handle("POST "+path, handler)
	}
	mux.Handle("POST /run"+container, reply.Handler(s.run))
	mux.Handle("POST /run"+withUID, reply.Handler(s.run))
	mux.Handle("POST /checkpoint"+container, reply.Handler(s.checkpoint))
}
