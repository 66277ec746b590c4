// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// New makes a broker. It neither connects nor listens before Run or the first
// call.
func New(cfg Config, deps Deps) (*Broker, error) {
	if cfg.Timeout == nil {
		cfg.Timeout = func() time.Duration { return DefaultTimeout }
	}
	cfg.Starts = cmp.Or(cfg.Starts, DefaultStarts)
	cfg.Stops = cmp.Or(cfg.Stops, DefaultStops)
	cfg.Removals = cmp.Or(cfg.Removals, DefaultRemovals)
	cfg.Finish = cmp.Or(cfg.Finish, DefaultFinish)
	runtimeSocket, err := endpoint("container-runtime-endpoint", cfg.RuntimeEndpoint)
	if err != nil {
		return nil, err
	}
	imageSocket := runtimeSocket
	if cfg.ImageEndpoint != "" {
		if imageSocket, err = endpoint("image-service-endpoint", cfg.ImageEndpoint); err != nil {
			return nil, err
		}
	}
	b := &Broker{
		cfg: cfg, log: deps.Log, reaper: deps.Reaper,
		turns: map[kind]turn{
			starting: {queue.New(clock.RealClock{}), cfg.Starts},
			stopping: {queue.NewSparing(clock.RealClock{}, deps.Spare), cfg.Stops},
			removing: {queue.New(clock.RealClock{}), cfg.Removals},
		},
		answers: make(chan struct{}, answersAtOnce), mayProbe: deps.MayProbe,
	}
	if b.mayProbe == nil {
		b.mayProbe = func(context.Context, runtimeapi.RuntimeServiceClient, string, []string) error {
			return rpc.Denied.Errorf("prober may run no command")
		}
	}
	b.metrics = newMetrics(deps.Metrics)
	if b.runtime, err = dial(runtimeSocket, b.inProcess); err != nil {
		return nil, fmt.Errorf("container-runtime-endpoint: %w", err)
	}
	b.images = b.runtime
	if imageSocket != runtimeSocket {
		if b.images, err = dial(imageSocket, b.inProcess); err != nil {
			return nil, fmt.Errorf("image-service-endpoint: %w", err)
		}
	}
	b.server, err = rpc.NewServer(rpc.ServerConfig{
		Socket: cfg.Socket, Identities: deps.Identities, Log: deps.Log, Metrics: deps.Metrics,
		Options: []grpc.ServerOption{
			grpc.ForceServerCodecV2(rawCodec{}),
			grpc.UnknownServiceHandler(b.forward),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return b, nil
}
