// SPDX-License-Identifier: Apache-2.0

// Package standin is the house around one service under test: a run and a state
// directory, a real bus, and kits for the neighbours the service reads or is
// read by, all in the test's process and on real sockets.
//
// It promises that what a test starts has ended, and is waited for, before the
// test's temporary directories go.
package standin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// LimitVariable names the variable of the environment that is another Limit: a test of a
// broken program may wait for what never comes.
const LimitVariable = "SEXTANT_TEST_LIMIT"

// Limit is how long a test may wait for anything, from New on.
var Limit = limit()

func limit() time.Duration {
	text := os.Getenv(LimitVariable)
	if text == "" {
		return 5 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(LimitVariable + ": " + err.Error())
	}
	return d
}

// House is one node's directories and bus.
type House struct {
	testing.TB
	Paths house.Paths
	// Logger of every process; discarded unless a test sets it before Kit.
	Logger *slog.Logger
	// Bus of every process: empty for the house's own, service.BusOff for none.
	Bus string

	ctx context.Context
}

// New makes a house with a bus.
func New(t testing.TB) *House {
	t.Helper()
	h := NewQuiet(t)
	h.Bus = ""
	ids, err := house.ReadIdentities(h.Paths.Identities(), uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.EnsureKeys(h.Paths.BusKeys(), ids); err != nil {
		t.Fatal(err)
	}
	server := bus.NewServer(bus.ServerConfig{Keys: h.Paths.BusKeys(), AddressFile: h.Paths.BusAddress(), Log: h.Logger})
	ready := make(chan struct{})
	h.Go("bus", func(ctx context.Context) error { return server.Run(ctx, func() { close(ready) }) })
	select {
	case <-ready:
	case <-h.ctx.Done():
		t.Fatal("the bus does not start")
	}
	return h
}

// NewQuiet makes a house without a bus: its replicas poll.
func NewQuiet(t testing.TB) *House {
	t.Helper()
	// Socket paths are bounded: not below a long test name.
	dir, err := os.MkdirTemp("", "house")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left over: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return &House{
		TB: t, Logger: slog.New(slog.DiscardHandler), Bus: service.BusOff, ctx: ctx,
		Paths: house.Paths{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state")},
	}
}

// Context ends when the test has taken too long.
func (h *House) Context() context.Context { return h.ctx }

// Go runs something until stop is called or the test ends, and waits for it.
func (h *House) Go(name string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				h.Errorf("%s: %v", name, err)
			}
		})
	}
	h.Cleanup(stop)
	return stop
}

// Kit makes a process of the house; register on it, then Start it.
func (h *House) Kit(s house.Service) *service.Kit {
	h.Helper()
	kit, err := service.New(service.Options{Service: s, Paths: h.Paths, Bus: h.Bus, Log: h.Logger})
	if err != nil {
		h.Fatal(err)
	}
	return kit
}

// Start runs a process until stop is called or the test ends.
func (h *House) Start(kit *service.Kit) (stop func()) {
	return h.Go(string(kit.Service), kit.Run)
}

// Dial connects to a service of the house; calls wait for it to come.
func (h *House) Dial(s house.Service) *grpc.ClientConn {
	h.Helper()
	return h.dial(rpc.ClientConfig{Socket: h.Paths.Socket(s), Patient: true, Timeout: time.Minute})
}

// DialOnce is Dial for calls that are to fail when nobody is there.
func (h *House) DialOnce(s house.Service) *grpc.ClientConn {
	h.Helper()
	return h.dial(rpc.ClientConfig{Socket: h.Paths.Socket(s)})
}

func (h *House) dial(cfg rpc.ClientConfig) *grpc.ClientConn {
	h.Helper()
	conn, err := rpc.Dial(cfg)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Eventually waits until ok.
func (h *House) Eventually(what string, ok func() bool) {
	h.Helper()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-h.ctx.Done():
			h.Fatalf("never: %s", what)
		case <-again.C:
		}
	}
}

// Set writes an item of a stand-in's feed and makes the feed complete.
func Set[M proto.Message](h *House, o *feed.Owner[M], key string, message M) feed.Revision {
	h.Helper()
	revision, err := o.Set(h.ctx, key, message)
	if err != nil {
		h.Fatal(err)
	}
	o.SetComplete(h.ctx, true)
	return revision
}

// SetKubelet publishes a configuration in config's feed.
func SetKubelet(h *House, o *feed.Owner[*configv1.KubeletConfig], conf *kubeletconfig.Config) {
	h.Helper()
	data, err := conf.Marshal()
	if err != nil {
		h.Fatal(err)
	}
	Set(h, o, "kubelet", &configv1.KubeletConfig{Generation: 1, Config: data})
}

// Read keeps a replica of a feed of the service under test.
func Read[M proto.Message](h *House, f house.FeedOf[M]) *feed.Replica[M] {
	h.Helper()
	m := feed.NewReplica(feed.ReplicaConfig{
		Feed: f.Name, Poll: 5 * time.Millisecond,
		Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(h.Dial(f.Owner))},
	}, feed.Decoder(feed.Whole[M]))
	h.Go("replica "+f.Name, m.Run)
	return m
}

// Answer is the answer to a command that a feed's owner carries out.
type Answer interface{ GetRevision() *feedv1.Revision }

// Commanded sends a command to the owner of a feed, waits until the replica has reached the
// revision of the answer, and returns that. Without the wait, a test that looks for an item to
// be gone finds it absent before the replica has received it.
func Commanded[M proto.Message](h *House, m *feed.Replica[M], command func() (Answer, error)) feed.Revision {
	h.Helper()
	before, _, _, _ := m.State()
	answer, err := command()
	if err != nil {
		h.Fatal(err)
	}
	revision := feed.RevisionFrom(answer.GetRevision())
	barrier := feed.NewBarrier(revision, before)
	h.Eventually("what the command did is told", func() bool {
		now, complete, _, _ := m.State()
		return barrier.Passed(now, complete)
	})
	return revision
}
