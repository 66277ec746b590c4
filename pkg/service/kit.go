// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// Version of the program, set at link time.
var Version = "dev"

// config is asked on behalf of any client of the node's port: the requests in flight of
// its callers are bounded before they are read. All its requests are small.
const (
	configRequest = 256 << 10
	configCalls   = 256
)

// BusOff as Options.Bus runs without a bus.
const BusOff = "off"

// Options are what every process is started with.
type Options struct {
	Service house.Service
	Paths   house.Paths
	// Bus is empty for the node's own, BusOff, or the URL of a user's NATS.
	Bus string
	Log *slog.Logger
	// Level is the level of Log, to change it at run time; nil if it is fixed.
	Level *slog.LevelVar
	// Grace bounds an orderly stop; 5 s when zero.
	Grace time.Duration
}

// Kit is one process of the node.
type Kit struct {
	Options
	// Epoch is new at each start; every feed of the process has it.
	Epoch string
	// Identities of the node's services.
	Identities house.Identities
	// Server is the process's socket; register contracts on it before Run.
	Server *rpc.Server
	// Metrics of the service; Gather has those of the process as well.
	Metrics *prometheus.Registry
	// Bus may be nil: switched off. Its methods allow that.
	Bus *bus.Client

	feeds   *feed.Server
	health  *health.Server
	dialing *grpcprom.ClientMetrics
	started time.Time
	// afterBoot is when it started by the clock of SinceBoot.
	afterBoot time.Duration

	notices *notices
	files   *stateFiles
	hearts  hearts

	mu       sync.Mutex
	state    nodev1.Health
	reason   string
	tasks    []Task
	peers    map[house.Service]*grpc.ClientConn
	replicas []replicaState
}

type replicaState interface {
	Feed() string
	State() (revision feed.Revision, complete bool, items int, err error)
	Counts() feed.Counts
}

// New makes a kit. It connects nowhere and listens nowhere yet.
func New(opts Options) (*Kit, error) {
	opts.Grace = cmp.Or(opts.Grace, 5*time.Second)
	if err := fault.FromEnv(); err != nil {
		return nil, err
	}
	ids, err := house.ReadIdentities(opts.Paths.Identities(), uint32(os.Geteuid()))
	if err != nil {
		return nil, fmt.Errorf("identities: %w", err)
	}
	metrics, notices := prometheus.NewRegistry(), &notices{}
	k := &Kit{
		Options: opts, Epoch: uuid.NewString(), Identities: ids, Metrics: metrics,
		notices: notices, files: newStateFiles(opts.Service, notices, metrics),
		feeds: feed.NewServer(), health: health.NewServer(),
		dialing: grpcprom.NewClientMetrics(),
		started: time.Now(), afterBoot: SinceBoot(),
		state: nodev1.Health_HEALTH_STARTING,
		peers: map[house.Service]*grpc.ClientConn{},
	}
	k.Metrics.MustRegister(k.dialing, proportional(), cleaned(opts.Service), build(opts.Service), commits(opts.Service), newWork(k))
	cfg := rpc.ServerConfig{Socket: opts.Paths.Socket(opts.Service), Identities: ids, Log: opts.Log, Metrics: k.Metrics}
	if opts.Service == house.Config {
		cfg.MaxRequest, cfg.MaxCalls = configRequest, configCalls
	}
	k.Server, err = rpc.NewServer(cfg)
	if err != nil {
		return nil, err
	}
	k.feeds.Register(k.Server)
	healthpb.RegisterHealthServer(k.Server, k.health)
	nodev1.RegisterNodeServiceServer(k.Server, &hello{kit: k})
	k.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	if err := k.joinBus(); err != nil {
		return nil, err
	}
	return k, nil
}

// joinBus begins to connect. Without a key the process runs as with the bus
// switched off: slower, never wrong.
func (k *Kit) joinBus() error {
	if k.Options.Bus == BusOff || k.Service == house.Bus {
		return nil
	}
	url := k.Options.Bus
	if url != "" && !strings.Contains(url, "://") {
		return fmt.Errorf("bus %q: want %q or a nats:// URL", url, BusOff)
	}
	client, err := bus.Connect(bus.ClientConfig{
		Service: k.Service, AddressFile: k.Paths.BusAddress(), URL: url,
		KeyFile: k.busKey(), Log: k.Log,
		Connected: k.announceAll,
	})
	if err != nil {
		k.Log.Warn("no bus: polling", KeyError, err.Error())
		return nil
	}
	k.Bus = client
	return nil
}

// BusCredential is the name of the credential that holds a service's NKey where
// systemd hands it over (systemd.exec(5), LoadCredential=).
const BusCredential = "bus-key"

// busKey is the file with the service's NKey.
func (k *Kit) busKey() string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		if key := filepath.Join(dir, BusCredential); file.Exists(key) {
			return key
		}
	}
	return bus.KeyFile(k.Paths.BusKeys(), k.Service)
}

// announceAll announces every feed: changes before the bus was connected were not
// announced.
func (k *Kit) announceAll(client *bus.Client) {
	for _, f := range k.feeds.Sources() {
		revision, _, _ := f.State()
		client.Announce(context.Background(), f.Name(), "", revision)
	}
}

// Go adds a task that Run will run.
func (k *Kit) Go(name string, run func(ctx context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tasks = append(k.tasks, Task{name, run})
}

// Dial is the connection to a neighbour, made once and kept for ever.
func (k *Kit) Dial(peer house.Service) (*grpc.ClientConn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if conn, ok := k.peers[peer]; ok {
		return conn, nil
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: k.Paths.Socket(peer), Metrics: k.dialing})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", peer, err)
	}
	k.peers[peer] = conn
	return conn, nil
}

// Run serves and runs every task until ctx ends or one fails.
func (k *Kit) Run(ctx context.Context) error {
	defer k.Bus.Close()
	k.mu.Lock()
	tasks := append([]Task{
		{"grpc", k.Server.Run},
		{"debug", k.serveDebug},
		{"hello", k.heartbeat},
		{"watchdog", k.watchdog},
		{"tidy", Tidy},
	}, k.tasks...)
	k.mu.Unlock()
	k.Log.Info("service starts", "version", Version, "epoch", k.Epoch, "pid", os.Getpid())
	err := RunTasks(ctx, k.Grace, tasks...)
	if err != nil {
		k.Log.Error("service stops", KeyError, err.Error())
		return err
	}
	k.Log.Info("service stops")
	return nil
}

// Serving sets the health SERVING.
func (k *Kit) Serving() { k.setHealth(nodev1.Health_HEALTH_SERVING, "") }

// Waiting sets the health STARTING, with what the service waits for.
func (k *Kit) Waiting(reason string) { k.setHealth(nodev1.Health_HEALTH_STARTING, reason) }

// Failing sets the health FAILING, with the reason.
func (k *Kit) Failing(reason string) { k.setHealth(nodev1.Health_HEALTH_FAILING, reason) }

func (k *Kit) setHealth(state nodev1.Health, reason string) {
	k.mu.Lock()
	changed := k.state != state || k.reason != reason
	k.state, k.reason = state, reason
	k.mu.Unlock()
	if !changed {
		return
	}
	k.Log.Info("health", "state", state.String(), "reason", reason)
	wire := healthpb.HealthCheckResponse_NOT_SERVING
	if state == nodev1.Health_HEALTH_SERVING {
		wire = healthpb.HealthCheckResponse_SERVING
	}
	k.health.SetServingStatus("", wire)
}

// Owner makes a feed of the process and serves it.
func Owner[M proto.Message](k *Kit, f house.FeedOf[M]) *feed.Owner[M] {
	o := feed.NewOwner[M](f.Name, k.Epoch, k.Bus)
	k.feeds.Add(o)
	return o
}

// Events makes the process's feed of Kubernetes Events and serves it.
func (k *Kit) Events() *feed.Events {
	events := feed.NewEvents(string(k.Service)+".events", k.Epoch, k.Bus)
	if err := events.Keep(context.Background(), k.Paths.Events(k.Service), time.Now()); err != nil {
		k.Log.Warn("events that nobody has heard are lost with the process", KeyError, err.Error())
	}
	k.feeds.Add(events)
	k.TellBy(func(kind, reason, message string) {
		err := events.Emit(context.Background(), &eventv1.Event{
			Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node"},
			Type:   kind, Reason: reason, Message: message, Time: timestamppb.Now(),
		})
		if err != nil {
			k.Log.Warn("event lost", "reason", reason, KeyError, err.Error())
		}
	})
	return events
}

// ReplicaOption is an option of a replica.
type ReplicaOption func(*feed.ReplicaConfig)

// Since starts a replica at a revision that the reader has kept.
func Since(r feed.Revision) ReplicaOption { return func(c *feed.ReplicaConfig) { c.Since = r } }

// Unhurried batches announcements, for a reader on which no other service waits.
func Unhurried(c *feed.ReplicaConfig) { c.Settle = 100 * time.Millisecond }

// OnDemand is for a reader that pulls by itself, before it reads, and is not to be woken
// by changes.
func OnDemand(c *feed.ReplicaConfig) { c.OnDemand, c.Listener = true, nil }

// Replica makes a replica of a neighbour's feed and runs it with the process. keep makes
// of the feed's message what the reader wants of it, once for each change.
func Replica[M proto.Message, T any](k *Kit, f house.FeedOf[M], keep func(key string, message M) (T, error), options ...ReplicaOption) (*feed.Replica[T], error) {
	return replica(k, f.Feed, feed.Decoder(keep), options...)
}

// Replicate is Replica for a reader of several feeds: it does nothing once err is set, and
// sets it.
func Replicate[M proto.Message, T any](k *Kit, err *error, f house.FeedOf[M], keep func(key string, message M) (T, error), into **feed.Replica[T], options ...ReplicaOption) {
	if *err == nil {
		*into, *err = Replica(k, f, keep, options...)
	}
}

// Keys is Replica for a reader that wants to know no more than which items there are.
func Keys(k *Kit, f house.Feed, options ...ReplicaOption) (*feed.Replica[struct{}], error) {
	return replica(k, f, feed.Keys, options...)
}

// Pull reads one whole feed of a node, once, for a process that is none of its services.
func Pull[M proto.Message, T any](ctx context.Context, paths house.Paths, f house.FeedOf[M], keep func(key string, message M) (T, error)) (map[string]T, error) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(f.Owner), Timeout: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	m := feed.NewReplica(feed.ReplicaConfig{Feed: f.Name, Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(conn)}}, feed.Decoder(keep))
	if err := m.Pull(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Owner, err)
	}
	return m.Items(), nil
}

func replica[T any](k *Kit, f house.Feed, decode func(key string, value []byte) (T, error), options ...ReplicaOption) (*feed.Replica[T], error) {
	conn, err := k.Dial(f.Owner)
	if err != nil {
		return nil, err
	}
	cfg := feed.ReplicaConfig{Feed: f.Name, Puller: feed.Remote{Client: feedv1.NewFeedServiceClient(conn)}, Listener: k.Bus, Log: k.Log}
	for _, o := range options {
		o(&cfg)
	}
	m := feed.NewReplica(cfg, decode)
	k.mu.Lock()
	k.replicas = append(k.replicas, m)
	k.mu.Unlock()
	k.Go("replica "+f.Name, m.Run)
	return m, nil
}
