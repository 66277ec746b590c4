package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// DefaultTimeout is runtimeRequestTimeout until the configuration is known.
const DefaultTimeout = 2 * time.Minute

// Config is where the runtime is and where the broker serves.
type Config struct {
	// RuntimeEndpoint is unix:///path of the runtime's socket.
	RuntimeEndpoint string
	// ImageEndpoint is that of its image service; empty for the same.
	ImageEndpoint string
	// Socket is the path the broker serves on (house.Paths.Broker).
	Socket string
	// Timeout is asked at each call for runtimeRequestTimeout; nil for
	// DefaultTimeout. Pulls, commands, stops and streams are not bounded by it.
	Timeout func() time.Duration
	// Starts bounds how many of podworker's calls have the runtime start something
	// (DefaultStarts).
	Starts queue.Rules
}

// DefaultStarts is what the processors can do beside each other: more calls only
// take them from one another, and all come late (docs/measurements.md). One that
// hangs holds the next up for no more than the patience.
var DefaultStarts = queue.Rules{Limit: 3 * runtime.NumCPU(), Patience: 300 * time.Millisecond}

// Deps is what a broker works with.
type Deps struct {
	Identities house.Identities
	Log        *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
	// Reaper may be nil: then the runtime alone ends commands whose time is over.
	Reaper Reaper
}

// Broker holds the connection to the runtime and serves it.
type Broker struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	reaper  Reaper
	starts  *queue.Queue
	server  *rpc.Server
	// The same connection unless the image service lives elsewhere.
	runtime, images *grpc.ClientConn
}

// New makes a broker. It neither connects nor listens before Run or the first
// call.
func New(cfg Config, deps Deps) (*Broker, error) {
	if cfg.Timeout == nil {
		cfg.Timeout = func() time.Duration { return DefaultTimeout }
	}
	if cfg.Starts == (queue.Rules{}) {
		cfg.Starts = DefaultStarts
	}
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
	b := &Broker{cfg: cfg, log: deps.Log, reaper: deps.Reaper, starts: queue.New(clock.RealClock{})}
	if b.metrics, err = newMetrics(deps.Metrics); err != nil {
		return nil, fmt.Errorf("broker metrics: %w", err)
	}
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

// Runtime is the runtime for podworker's own calls.
func (b *Broker) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(b.runtime)
}

// Images is the image service for podworker's own calls.
func (b *Broker) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(b.images)
}

// Run serves and stays connected until ctx ends. Only a socket that cannot be
// made is an error.
func (b *Broker) Run(ctx context.Context) error {
	var connecting sync.WaitGroup
	for _, conn := range b.conns() {
		connecting.Go(func() { keepConnected(ctx, conn, b.log) })
	}
	err := b.server.Run(ctx)
	if err == nil {
		connecting.Wait()
	}
	for _, conn := range b.conns() {
		err = errors.Join(err, conn.Close())
	}
	return err
}

func (b *Broker) conns() []*grpc.ClientConn {
	if b.images == b.runtime {
		return []*grpc.ClientConn{b.runtime}
	}
	return []*grpc.ClientConn{b.runtime, b.images}
}
