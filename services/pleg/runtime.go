// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/wire"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// runtimeKey is the one item of pleg.runtime.
const runtimeKey = "runtime"

// observer asks the runtime how it is and publishes what changed.
type observer struct {
	cfg     Config
	runtime runtimeapi.RuntimeServiceClient
	state   *feed.Owner[*plegv1.RuntimeState]
	flow    *eventFlow
	relist  signal.Signal
	kit     *service.Kit
	metrics *metrics
	now     func() time.Time
}

// run asks until ctx ends.
func (o *observer) run(ctx context.Context) error {
	current := &plegv1.RuntimeState{}
	for {
		next := o.ask(ctx, current)
		select {
		case <-ctx.Done():
			return nil // what was read may be the end's own failure
		default:
		}
		if next.GetResponding() != current.GetResponding() || current.GetSince() == nil {
			next.Since = timestamppb.New(o.now())
			if next.GetResponding() {
				o.relist.Send()
			}
		} else {
			next.Since = current.GetSince()
		}
		current = next
		if _, err := o.state.Set(ctx, runtimeKey, current); err != nil {
			return err
		}
		o.state.SetComplete(ctx, true)
		period := o.cfg.Status
		if !current.GetResponding() {
			o.kit.Waiting("container runtime: " + current.GetError())
			period = min(period, time.Second)
		}
		timer := time.NewTimer(period)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (o *observer) ask(ctx context.Context, last *plegv1.RuntimeState) *plegv1.RuntimeState {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Call)
	defer cancel()
	next := proto.CloneOf(last)
	next.Events = o.flow.flowing()
	failed := func(step string, err error) *plegv1.RuntimeState {
		next.Responding, next.Error = false, fmt.Sprintf("%s: %v", step, err)
		return next
	}
	resp, err := o.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return failed("status", err)
	}
	resp.Info = nil
	if next.Status, err = wire.Marshal(resp); err != nil {
		return failed("status", err)
	}
	if !last.GetResponding() { // a runtime that came back may be another one
		version, err := o.runtime.Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil {
			return failed("version", err)
		}
		next.Name, next.Version, next.ApiVersion = version.GetRuntimeName(), version.GetRuntimeVersion(), version.GetRuntimeApiVersion()
		next.CgroupDriver = ""
		// KEP-4033; runtimes before it leave the choice to the configuration.
		config, err := o.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		o.metrics.runtimeConfig(grpcstatus.Code(err) != codes.Unimplemented)
		if err == nil && config.GetLinux() != nil {
			next.CgroupDriver = map[runtimeapi.CgroupDriver]string{
				runtimeapi.CgroupDriver_SYSTEMD: "systemd", runtimeapi.CgroupDriver_CGROUPFS: "cgroupfs",
			}[config.GetLinux().GetCgroupDriver()]
		}
	}
	next.Responding, next.Error = true, ""
	return next
}
