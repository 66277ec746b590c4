// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/service"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// How long an answer waits for its parts: less than the ten seconds after which Prometheus
// and metrics-server give up.
const (
	usageTimeout  = 8 * time.Second
	volumeTimeout = 3 * time.Second
	layerTimeout  = 5 * time.Second
)

// readings asks the services that measure.
type readings struct {
	node     string
	pods     *view.Pods
	resource resourcev1.ResourceServiceClient
	volume   volumev1.VolumeServiceClient
	runtime  runtimeapi.RuntimeServiceClient
	callers  *callerlog.Log
}

// gather asks all of them at once, for disks only if disk is set. A part that is away is
// missing; failed: the cgroups, which all answers need, were not read.
func (g *readings) gather(ctx context.Context, disk bool) (in *stats.Input, failed bool) {
	in = &stats.Input{NodeName: g.node, Pods: g.pods.Measured()}
	var parts sync.WaitGroup
	part := func(name string, limit time.Duration, get func(context.Context) error) {
		parts.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			if err := get(ctx); err != nil {
				g.callers.Log(ctx, slog.LevelWarn, "", "not measured: "+name, service.KeyError, err.Error())
			}
		})
	}
	part("usage", usageTimeout, func(ctx context.Context) (err error) {
		in.Usage, err = g.resource.Usage(ctx, &resourcev1.UsageRequest{Disk: disk})
		return err
	})
	if disk {
		part("volumes", volumeTimeout, func(ctx context.Context) error {
			resp, err := g.volume.Stats(ctx, &volumev1.StatsRequest{})
			in.Volumes = resp.GetVolumes()
			return err
		})
		part("layers", layerTimeout, func(ctx context.Context) (err error) {
			in.Layers, err = g.layers(ctx)
			return err
		})
	}
	parts.Wait()
	for _, text := range in.Usage.GetErrors() {
		g.callers.Log(ctx, slog.LevelWarn, "", "not measured: part of usage", service.KeyError, text)
	}
	return in, in.Usage == nil || in.Usage.GetNode().GetCgroup().GetCpu() == nil
}

// layers asks the runtime for the writable layers of all containers.
func (g *readings) layers(ctx context.Context) (map[string]stats.Layer, error) {
	resp, err := g.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
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
