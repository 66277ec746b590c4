// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
)

// serveDebug answers /metrics and /debug/pprof on the process's debug socket, for root,
// and for nodeapi, which merges the metrics of all services.
func (k *Kit) serveDebug(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", k.withStarted(promhttp.HandlerFor(k, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	path := k.Paths.DebugSocket(k.Service)
	listener, err := rpc.Listen(path)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: nil}
	stop := context.AfterFunc(ctx, func() {
		if err := server.Close(); err != nil {
			k.Log.Debug("debug socket", KeyError, err.Error())
		}
	})
	defer stop()
	admitted := rpc.Admit(listener, k.Identities, func(s house.Service) bool {
		return s == house.Operator || s == house.NodeAPI || s == k.Service
	})
	if err := server.Serve(admitted); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("debug socket %s: %w", path, err)
	}
	return nil
}
