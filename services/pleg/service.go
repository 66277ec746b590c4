// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// Config is how eagerly to look. Zero values take the defaults.
type Config struct {
	// Relist is the period of the safety net while the runtime sends no events
	// (kubelet: generic PLEG, 1 s).
	Relist time.Duration
	// RelistWithEvents is the same while it does (kubelet: evented PLEG, 300 s;
	// ours is shorter, for a missed event otherwise lasts as long).
	RelistWithEvents time.Duration
	// Status is the period of the runtime's own status (kubelet: 5 s).
	Status time.Duration
	// Call bounds one question to the runtime about one pod.
	Call time.Duration
	// Settle is how long a reading may wait after an event of something made or
	// removed. That is podworker's doing, which asks by itself, and one reading is
	// enough. What has stopped is read at once.
	Settle time.Duration
	// Parallel bounds how many pods are read at once.
	Parallel int
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&c.Relist, time.Second)
	or(&c.RelistWithEvents, time.Minute)
	or(&c.Status, 5*time.Second)
	or(&c.Call, 30*time.Second)
	or(&c.Settle, 50*time.Millisecond)
	if c.Parallel == 0 {
		c.Parallel = 8
	}
	return c
}

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
	cfg     Config
	kit     *service.Kit
	runtime runtimeapi.RuntimeServiceClient
	now     func() time.Time
	metrics *metrics
	beat    func()

	pods  *feed.Owner[*plegv1.PodRecord]
	state *feed.Owner[*plegv1.RuntimeState]

	// life ends with the process; readings are bounded by it and not by who asked.
	life    context.Context
	readers *readers
	relist  signal.Signal // relist soon
	events  eventsState
}

// New wires pleg into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	conn := deps.Runtime
	if conn == nil {
		broker, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Broker(), Timeout: time.Minute})
		if err != nil {
			return nil, fmt.Errorf("dial broker: %w", err)
		}
		conn = broker
	}
	s := &Service{
		cfg: cfg.withDefaults(), kit: kit, now: deps.Now,
		runtime: runtimeapi.NewRuntimeServiceClient(conn),
		metrics: newMetrics(kit.Metrics),
		pods:    service.Owner(kit, house.PlegPods),
		state:   service.Owner(kit, house.PlegRuntime),
		readers: newReaders(),
		relist:  signal.New(),
	}
	if s.now == nil {
		s.now = time.Now
	}
	var end context.CancelFunc
	s.life, end = context.WithCancel(context.Background())
	kit.Go("readings", func(ctx context.Context) error { <-ctx.Done(); end(); return nil })
	s.beat = kit.Heart("relist", 3*time.Minute)
	plegv1.RegisterPlegServiceServer(kit.Server, s)
	kit.Go("relist", s.relistLoop)
	kit.Go("events", s.eventLoop)
	kit.Go("runtime status", s.statusLoop)
	kit.Waiting("container runtime")
	return s, nil
}

func (s *Service) relistSoon() {
	s.relist.Send()
}

// sleep waits for d, a call for a relist, or the end; false means the end.
func (s *Service) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-s.relist:
	}
	return true
}
