package nodeapi

import (
	"bufio"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
)

// How long an answer waits for its parts: less than the ten seconds after which
// Prometheus and metrics-server give up.
const (
	usageTimeout  = 8 * time.Second
	volumeTimeout = 3 * time.Second
	layerTimeout  = 5 * time.Second
)

// gauges are the services that measure.
type gauges struct {
	resource resourcev1.ResourceServiceClient
	volume   volumev1.VolumeServiceClient
}

func (s *Service) dialGauges() error {
	resource, err := s.kit.Dial(house.Resource)
	if err != nil {
		return err
	}
	volume, err := s.kit.Dial(house.Volume)
	if err != nil {
		return err
	}
	s.gauges = gauges{resourcev1.NewResourceServiceClient(resource), volumev1.NewVolumeServiceClient(volume)}
	provider := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_metrics_provider", Help: "[ALPHA] Where /metrics/cadvisor comes from; cadvisor stands for cgroups.",
	}, []string{"provider"})
	provider.WithLabelValues("cadvisor").Set(1)
	return s.kit.Metrics.Register(provider)
}

// stats serves the summary and the metrics of cgroups.
func (s *Service) stats(mux *http.ServeMux) {
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.HandleFunc("POST /stats/summary", s.summary)
	mux.Handle("/metrics/resource", compressed(func(w http.ResponseWriter, r *http.Request) {
		in, failed := s.readings(r.Context(), false)
		write(w, r, func(yield func(*dto.MetricFamily) bool) {
			for _, family := range stats.Resource(in, failed) {
				if !yield(family) {
					return
				}
			}
		})
	}))
	mux.Handle("/metrics/cadvisor", compressed(func(w http.ResponseWriter, r *http.Request) {
		in, failed := s.readings(r.Context(), false)
		write(w, r, func(yield func(*dto.MetricFamily) bool) { stats.CAdvisor(in, failed, yield) })
	}))
}

// compressed lets a caller have an answer compressed: that of a full node is 20
// megabytes of much the same.
func compressed(handler http.HandlerFunc) http.Handler { return fastest(handler) }

var fastest = func() func(http.Handler) http.HandlerFunc {
	wrapper, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed))
	if err != nil {
		panic(err) // the options are constants
	}
	return wrapper
}()

func (s *Service) summary(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		answer(w, http.StatusBadRequest, "parse form failed: "+err.Error())
		return
	}
	short := r.Form.Get("only_cpu_and_memory") == "true"
	in, _ := s.readings(r.Context(), !short)
	writeJSON(w, stats.Summary(in, short))
}

// readings gathers what the others measure, all at once. A part that is away is
// missing; failed says that cgroups, which all answers need, were not read whole.
func (s *Service) readings(ctx context.Context, disk bool) (in *stats.Input, failed bool) {
	in = &stats.Input{NodeName: s.cfg.NodeName, Pods: map[string]*stats.Pod{}}
	var parts sync.WaitGroup
	part := func(name string, limit time.Duration, get func(context.Context) error) {
		parts.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			if err := get(ctx); err != nil {
				s.kit.Log.Warn("not measured", "part", name, service.KeyError, err.Error())
			}
		})
	}
	part("usage", usageTimeout, func(ctx context.Context) (err error) {
		in.Usage, err = s.gauges.resource.Usage(ctx, &resourcev1.UsageRequest{Disk: disk})
		return err
	})
	if disk {
		part("volumes", volumeTimeout, func(ctx context.Context) error {
			resp, err := s.gauges.volume.Stats(ctx, &volumev1.StatsRequest{})
			in.Volumes = resp.GetVolumes()
			return err
		})
		part("layers", layerTimeout, func(ctx context.Context) (err error) {
			in.Layers, err = s.layers(ctx)
			return err
		})
	}
	for uid, o := range s.records.Items() {
		if p := o.measurable(); p != nil {
			in.Pods[uid] = p
		}
	}
	parts.Wait()
	for _, text := range in.Usage.GetErrors() {
		s.kit.Log.Warn("not measured", "part", "usage", service.KeyError, text)
	}
	return in, in.Usage == nil || in.Usage.GetNode().GetCgroup().GetCpu() == nil
}

// layers asks the runtime for the writable layers of all containers.
func (s *Service) layers(ctx context.Context) (map[string]stats.Layer, error) {
	resp, err := s.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, err
	}
	all := map[string]stats.Layer{}
	for _, c := range resp.GetStats() {
		l := c.GetWritableLayer()
		if l == nil {
			continue
		}
		layer := stats.Layer{Mountpoint: l.GetFsId().GetMountpoint(), Time: time.Unix(0, l.GetTimestamp())}
		if l.GetUsedBytes() != nil {
			layer.Bytes = &l.UsedBytes.Value
		}
		if l.GetInodesUsed() != nil {
			layer.Inodes = &l.InodesUsed.Value
		}
		all[c.GetAttributes().GetId()] = layer
	}
	return all, nil
}

// measurable is what runs of a pod, nil for nothing.
func (o *observed) measurable() *stats.Pod {
	if !o.alive() {
		return nil
	}
	p := &stats.Pod{UID: o.uid, Namespace: o.namespace, Name: o.name}
	for _, sandbox := range o.sandboxes {
		if sandbox.ready {
			p.Sandboxes = append(p.Sandboxes, sandbox.id)
		}
		if sandbox.created.After(p.Created) {
			p.Created = sandbox.created
		}
	}
	for _, c := range o.containers {
		if c.running {
			p.Containers = append(p.Containers, stats.Container{ID: c.id, Name: c.name, Image: c.image, Created: c.created})
		}
	}
	return p
}

// write encodes families one by one in the form the caller asks for.
func write(w http.ResponseWriter, r *http.Request, families func(func(*dto.MetricFamily) bool)) {
	format := expfmt.Negotiate(r.Header)
	w.Header().Set("Content-Type", string(format))
	buffer := bufio.NewWriterSize(w, 64<<10)
	defer buffer.Flush() //nolint:errcheck // the caller went away
	encoder := expfmt.NewEncoder(buffer, format)
	families(func(family *dto.MetricFamily) bool {
		return encoder.Encode(family) == nil // or the caller went away
	})
	if closer, ok := encoder.(expfmt.Closer); ok {
		_ = closer.Close() // the same
	}
}
