package nodeapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// streaming is the part of the API that reaches into pods.
func (s *Service) streaming(mux *http.ServeMux) {
	for path, handle := range map[string]http.HandlerFunc{
		"/exec/{namespace}/{pod}/{container}":         s.exec,
		"/exec/{namespace}/{pod}/{uid}/{container}":   s.exec,
		"/attach/{namespace}/{pod}/{container}":       s.attach,
		"/attach/{namespace}/{pod}/{uid}/{container}": s.attach,
		"/portForward/{namespace}/{pod}":              s.portForward,
		"/portForward/{namespace}/{pod}/{uid}":        s.portForward,
	} {
		mux.HandleFunc("GET "+path, handle)
		mux.HandleFunc("POST "+path, handle)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.run)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", s.run)
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	mux.HandleFunc("GET /runningpods", s.runningPods)
	mux.HandleFunc("GET /runningpods/{$}", s.runningPods)
}

// streamMetrics count sessions.
type streamMetrics struct {
	webSockets *prometheus.CounterVec
	open       *prometheus.GaugeVec
}

func newStreamMetrics(registry prometheus.Registerer) (*streamMetrics, error) {
	m := &streamMetrics{
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total",
			Help: "Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
		}, []string{"subresource"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sextant_nodeapi_sessions",
			Help: "Sessions into pods that are open, by kind.",
		}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{m.webSockets, m.open} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("stream metrics: %w", err)
		}
	}
	return m, nil
}

type callerKey struct{}

// withCaller keeps who sent a request, for those who write it down.
func withCaller(ctx context.Context, user auth.User) context.Context {
	return context.WithValue(ctx, callerKey{}, user)
}

func callerOf(ctx context.Context) auth.User {
	user, _ := ctx.Value(callerKey{}).(auth.User)
	return user
}
