// SPDX-License-Identifier: Apache-2.0

// Package logs serves the logs of containers, which podworker reads, and those of the
// node, which nodelog reads.
//
// It owns nothing. It promises the kubelet's options and answers, and that a container log
// goes on where it was after a restart of podworker, or breaks off visibly: a part of a log
// is never taken for the whole.
package logs

import (
	"net/http"

	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/nodelog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// New makes a server; dir is the folder of the node's logs. conf is the configuration, nil
// while it is not known.
func New(kit *service.Kit, conf func() *kubeletconfig.Config, dir string, callers *callerlog.Log) (*Server, error) {
	worker, err := kit.Dial(house.PodWorker)
	if err != nil {
		return nil, err
	}
	return &Server{conf: conf, worker: podworkerv1.NewPodWorkerServiceClient(worker), node: nodelog.New(dir), callers: callers, log: kit.Log}, nil
}

// Routes adds the paths.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", reply.Handler(s.containerLog))
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(s.nodeLogs)))
}

// nodeLogs serves the node's log folder and, where it is switched on, the node log query.
func (s *Server) nodeLogs(w http.ResponseWriter, r *http.Request) {
	conf := s.conf()
	if conf == nil || !ptr.Deref(conf.Kubelet.EnableSystemLogHandler, true) {
		reply.Disabled("logs endpoint is disabled.")(w, r)
		return
	}
	s.log.InfoContext(r.Context(), "node logs read", "user", auth.UserOf(r.Context()).Name, "path", callerlog.Cut(r.URL.Path), "query", callerlog.Cut(r.URL.RawQuery))
	if ptr.Deref(conf.Kubelet.EnableSystemLogQuery, false) {
		s.node.Query(w, r)
		return
	}
	s.node.Files(w, r)
}
