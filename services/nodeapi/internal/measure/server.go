// SPDX-License-Identifier: Apache-2.0

// Package measure serves what the services of the node measure: the stats summary, the
// metrics of cgroups, the merged metrics of all services, and profiles.
//
// It owns the sums of counters that several processes count, which do not fall while this
// process lives. It promises that a service that is away costs its own part of an answer.
package measure

import (
	"errors"
	"iter"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	dto "github.com/prometheus/client_model/go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/service"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// Deps are what a Server uses.
type Deps struct {
	Kit      *service.Kit
	NodeName string
	// Conf is the configuration, nil while it is not known.
	Conf    func() *kubeletconfig.Config
	Pods    *view.Pods
	Runtime runtimeapi.RuntimeServiceClient
	Callers *callerlog.Log
	// Started is when the process was.
	Started time.Time
}

// Server is safe for concurrent use.
type Server struct {
	readings *readings
	scrapes  *scrapes
	profiles *profiles
}

// New connects to the services that measure.
func New(d Deps) (*Server, error) {
	resource, resourceErr := d.Kit.Dial(house.Resource)
	volume, volumeErr := d.Kit.Dial(house.Volume)
	provider := metric.In(d.Kit.Metrics).Gauges("kubelet_metrics_provider", "[ALPHA] Where /metrics/cadvisor comes from; cadvisor stands for cgroups.", "provider")
	provider.WithLabelValues("cadvisor").Set(1)
	return &Server{
		readings: &readings{
			node: d.NodeName, pods: d.Pods, runtime: d.Runtime, callers: d.Callers,
			resource: resourcev1.NewResourceServiceClient(resource), volume: volumev1.NewVolumeServiceClient(volume),
		},
		scrapes:  &scrapes{kit: d.Kit, totals: metrics.NewTotals(d.Started), booted: d.Started.Add(-service.SinceBoot())},
		profiles: &profiles{conf: d.Conf, kit: d.Kit},
	}, errors.Join(resourceErr, volumeErr)
}

// Routes adds the paths of the summary and of metrics.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("POST /stats/summary", s.summary)
	mux.Handle("/metrics/resource", s.measured(stats.Resource))
	mux.Handle("/metrics/cadvisor", s.measured(stats.CAdvisor))
	mux.HandleFunc("/metrics", s.merged(func(name string) bool { return !strings.HasPrefix(name, "prober_") }, house.Services()...))
	mux.HandleFunc("/metrics/probes", s.merged(func(name string) bool {
		return strings.HasPrefix(name, "prober_") || name == "process_start_time_seconds"
	}, house.Prober, house.NodeAPI))
}

// Profiles adds the paths below /debug/pprof/.
func (s *Server) Profiles(mux *http.ServeMux) {
	for name, own := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+name, s.profiles.of(own))
	}
}

func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		reply.Text(w, http.StatusBadRequest, "parse form failed: "+err.Error())
		return
	}
	short := r.Form.Get("only_cpu_and_memory") == "true"
	in, _ := s.readings.gather(r.Context(), !short)
	reply.JSON(w, stats.Summary(in, short))
}

// measured answers with families that are made of readings.
func (s *Server) measured(families func(*stats.Input, bool) iter.Seq[*dto.MetricFamily]) http.Handler {
	return compressed(func(w http.ResponseWriter, r *http.Request) {
		write(w, r, families(s.readings.gather(r.Context(), false)))
	})
}

// merged answers with those families of these services that belong to the path.
func (s *Server) merged(belongs func(string) bool, all ...house.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		families := slices.DeleteFunc(s.scrapes.merge(r.Context(), all), func(f *dto.MetricFamily) bool { return !belongs(f.GetName()) })
		write(w, r, slices.Values(families))
	}
}

// compressed compresses an answer if the caller accepts that: a full node has 20 MB, much
// of it the same.
var compressed = func() func(http.HandlerFunc) http.Handler {
	wrapper, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		panic(err) // the options are constants
	}
	return func(handler http.HandlerFunc) http.Handler { return wrapper(handler) }
}()
