// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// Deps are what pleg runs on.
type Deps struct {
	Kit *service.Kit
	// Runtime is the CRI; nil dials podworker's broker. Any runtime will do in a
	// test.
	Runtime grpc.ClientConnInterface
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Service is pleg.
type Service struct {
	plegv1.UnimplementedPlegServiceServer
	pods *podReader
}

// New wires pleg into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	cfg = cfg.withDefaults()
	kit, now, conn := deps.Kit, deps.Now, deps.Runtime
	if now == nil {
		now = time.Now
	}
	if conn == nil {
		broker, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Broker(), Timeout: time.Minute})
		if err != nil {
			return nil, fmt.Errorf("dial broker: %w", err)
		}
		conn = broker
	}
	runtime, metrics := runtimeapi.NewRuntimeServiceClient(conn), newMetrics(kit.Metrics)
	life, end := context.WithCancel(context.Background())
	kit.Go("readings", func(ctx context.Context) error { <-ctx.Done(); end(); return nil })
	flow, wake := &eventFlow{}, signal.New()
	pods := &podReader{
		readers: newReaders(), runtime: runtime, records: service.Owner(kit, house.PlegPods), metrics: metrics, now: now, life: life, call: cfg.Call,
		second: cfg.SecondLook, relist: wake, places: make(places, 4*cfg.Parallel),
	}
	list := &relister{
		cfg: cfg, runtime: runtime, pods: pods, flow: flow, wake: wake, kit: kit, metrics: metrics, now: now, beat: kit.Heart("relist", 3*time.Minute),
	}
	events := &listener{runtime: runtime, pods: pods, flow: flow, relist: wake, settle: cfg.Settle, metrics: metrics, now: now, log: kit.Log}
	state := &observer{
		cfg: cfg, runtime: runtime, state: service.Owner(kit, house.PlegRuntime), flow: flow, relist: wake, kit: kit, metrics: metrics, now: now,
	}
	s := &Service{pods: pods}
	plegv1.RegisterPlegServiceServer(kit.Server, s)
	kit.Go("relist", list.run)
	kit.Go("events", events.run)
	kit.Go("runtime status", state.run)
	kit.Waiting("container runtime")
	return s, nil
}
