// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// sessions makes, counts and logs sessions.
type sessions struct {
	conf    func() *kubeletconfig.Config
	pods    *view.Pods
	metrics *metrics
	log     *slog.Logger
}

// session is what a caller does in a pod.
type session struct {
	view.Target
	kind    string
	command []string
	// webSocket: the caller's WebSocket is translated or tunnelled by this process.
	webSocket bool
}

// of makes a session of a request, with the kubelet's texts for a target that does not
// run.
func (s *sessions) of(r *http.Request, kind string) (*session, error) {
	p, err := s.pods.Find(r.Context(), r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	if err != nil {
		return nil, err
	}
	n := &session{kind: kind, Target: view.Target{Pod: p, Container: r.PathValue("container")}}
	n.Missing = fmt.Sprintf("container not found (%q)", n.Container)
	switch kind {
	case "exec":
		n.command = r.URL.Query()["command"]
	case "attach":
		n.Missing = fmt.Sprintf("container %s not found in pod %s", n.Container, pod.FullName(p))
	case "portforward":
		n.Missing = fmt.Sprintf("pod not found (%q)", pod.FullName(p))
	case "run":
		n.command, n.Once = strings.Split(r.FormValue("cmd"), " "), true
	}
	return n, nil
}

// begin logs the begin of a session; ended logs its end.
func (s *sessions) begin(r *http.Request, n *session) (ended func(streamed bool)) {
	user := auth.UserOf(r.Context())
	args := []any{
		"kind", n.kind, "user", user.Name, "groups", user.Groups, "remote", r.RemoteAddr,
		"pod", n.Pod.Namespace + "/" + n.Pod.Name, "uid", string(n.Pod.UID),
	}
	if n.Container != "" {
		args = append(args, "container", n.Container)
	}
	if n.command != nil {
		args = append(args, "command", callerlog.Command(n.command))
	}
	if ports := r.URL.Query()["port"]; len(ports) > 0 && n.kind == "portforward" {
		args = append(args, "ports", callerlog.Cut(strings.Join(ports, ",")))
	}
	if id := r.Header.Get("Audit-ID"); id != "" {
		args = append(args, "audit", callerlog.Cut(id))
	}
	s.log.Info("session begins", args...)
	began := time.Now()
	return func(streamed bool) {
		s.log.Info("session ended", append(args, "streamed", streamed, "took", time.Since(began).String())...)
	}
}

// metrics count sessions by kind.
type metrics struct {
	webSockets *prometheus.CounterVec
	open       *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	to := metric.In(registry)
	return &metrics{
		webSockets: to.Counters("kubelet_websocket_streaming_requests_total",
			"Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.", "subresource"),
		open: to.Gauges("sextant_nodeapi_sessions", "Sessions into pods that are open, by kind.", "kind"),
	}
}
