// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	// DefaultTimeout. Pulls and streams are not bounded by it; stops have their grace beside it,
	// and others' commands the time they ask for.
	Timeout func() time.Duration
	// Starts bounds how many of podworker's calls have the runtime start something
	// (DefaultStarts).
	Starts queue.Rules
	// Stops bounds how many of them have it stop a container (DefaultStops).
	Stops queue.Rules
	// Removals bounds how many of them have it remove something (DefaultRemovals).
	Removals queue.Rules
	// Finish is how long one that starts something goes on after its caller has given it up
	// (DefaultFinish).
	Finish time.Duration
}

// DefaultFinish lets a call end that is about to. A runtime that is interrupted in the
// middle of making something may finish it all the same, with an answer that no caller
// gets, or leave behind what no list shows (containerd/containerd#14056). A call that
// hangs holds the end of its pod up for no longer than this.
const DefaultFinish = 10 * time.Second

// DefaultStarts is what the processors can do beside each other: more calls only
// take them from one another, and all come late (docs/measurements.md). One that
// hangs holds the next up for no more than the patience.
var DefaultStarts = queue.Rules{Limit: 3 * runtime.NumCPU(), Patience: 300 * time.Millisecond}

// DefaultStops keeps a runtime that has to see to the ends of many hundred containers at once
// from coming to none of them in time: containerd 2.4 gives an end ten seconds, and tries
// again after a pause of up to five minutes (docs/measurements.md). Fewer would cost the
// agent more: it does at once what comes at once. A container that takes its time keeps
// nobody else waiting: while there are processors to spare fifty stops begin each second, and
// so they do when the machine is to end soon (Deps.Spare).
var DefaultStops = queue.Rules{Limit: 32 * runtime.NumCPU(), Patience: 300 * time.Millisecond, Spare: 20 * time.Millisecond}

// DefaultRemovals keeps most of the runtime for others: nobody waits for a removal, and a
// hundred at once, when as many pods have ended, have the next start wait three seconds
// behind them (containerd 2.4 writes to its database one at a time).
var DefaultRemovals = queue.Rules{Limit: 4, Patience: 300 * time.Millisecond}

// Deps is what a broker works with.
type Deps struct {
	Identities house.Identities
	Log        *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
	// Reaper may be nil: then the runtime alone ends commands whose time is over.
	Reaper Reaper
	// MayProbe reports whether prober may run a command in a container: nil if it is an
	// exec probe of that container, else the error that prober gets, Unavailable
	// while that is not known. When MayProbe is nil prober may run none.
	MayProbe func(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, containerID string, command []string) error
	// Spare reports whether stops have the patience Config.Stops.Spare; nil: never.
	Spare func() bool
}

// turn is a queue and its rules.
type turn struct {
	queue *queue.Queue
	rules queue.Rules
}

// Broker holds the connection to the runtime and serves it.
type Broker struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	reaper  Reaper
	// turns are the queues of what waits for its turn, by kind.
	turns map[kind]turn
	// answers has a place for each answer of a command that is being received.
	answers  chan struct{}
	mayProbe func(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, containerID string, command []string) error
	server   *rpc.Server
	// The same connection unless the image service lives elsewhere.
	runtime, images *grpc.ClientConn
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

// Reaper ends commands in containers with all that came of them. A runtime kills
// the one process it has started.
type Reaper interface {
	// EndExec ends the command that was started at began or later
	// (CLOCK_BOOTTIME). It has when err is nil.
	EndExec(ctx context.Context, containerID string, command []string, began time.Duration) error
	// There reports whether there is anybody to do it.
	There() bool
}
