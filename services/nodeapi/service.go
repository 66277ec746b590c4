package nodeapi

import (
	"cmp"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
	"github.com/sextant-node/sextant/services/nodeapi/internal/nodelog"
)

// Config is what nodeapi is told at start.
type Config struct {
	// NodeName is the name every review is about.
	NodeName string
	// LogDir is the folder of the node's logs; /var/log when empty.
	LogDir string
	// GetStreams restores the kubelet's rule for exec, attach, portForward and
	// run: a GET, which is how a WebSocket begins, needs the verb get. Without it
	// they need create, whatever the method.
	GetStreams bool
}

// Deps are what nodeapi runs on.
type Deps struct {
	Kit *service.Kit
	// Now is the clock certificates and reviews run out by; time.Now when nil.
	Now func() time.Time
	// Sockets are listening sockets that were opened before this process was
	// started; those of configured ports are used instead of new ones.
	Sockets []*os.File
}

// Service is nodeapi.
type Service struct {
	cfg Config
	kit *service.Kit
	// inherited are the sockets that outlive this process.
	inherited inherited

	kubelet  *feed.Mirror[*kubeconf.Config]
	pods     *feed.Mirror[*desired]
	statuses *feed.Mirror[*statusv1.PodReport]
	records  *feed.Mirror[*observed]
	worker   podworkerv1.PodWorkerServiceClient
	// patient is worker for what may take long.
	patient podworkerv1.PodWorkerServiceClient
	// runtime is podworker's broker.
	runtime  runtimeapi.RuntimeServiceClient
	streams  *streamMetrics
	gauges   gauges
	gate     *auth.Gate
	totals   *metrics.Totals
	policy   atomic.Pointer[auth.Policy]
	now      func() time.Time
	requests *requests
	pages    zpages
	nodeLogs *nodelog.Server
	moved    *sightings
	// serving is what config read for this server, node the Node with its
	// addresses.
	serving *feed.Mirror[*configv1.Serving]
	node    *feed.Mirror[*statusv1.NodeReport]
	config  configv1.ConfigServiceClient
	shown   *shown

	wake chan struct{} // capacity 1: the configuration may have changed
}

// New wires nodeapi into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{cfg: cfg, kit: kit, inherited: inherited{files: deps.Sockets}, wake: make(chan struct{}, 1)}
	s.policy.Store(&auth.Policy{Node: cfg.NodeName}) // nobody, until config has spoken
	config, err := kit.Dial(house.Config)
	if err != nil {
		return nil, err
	}
	worker, err := kit.Dial(house.PodWorker)
	if err != nil {
		return nil, err
	}
	s.worker = podworkerv1.NewPodWorkerServiceClient(worker)
	if err := s.dialLong(); err != nil {
		return nil, err
	}
	if s.streams, err = newStreamMetrics(kit.Metrics); err != nil {
		return nil, err
	}
	if err := s.dialGauges(); err != nil {
		return nil, err
	}
	if s.now = deps.Now; s.now == nil {
		s.now = time.Now
	}
	s.totals = metrics.NewTotals(s.now())
	s.nodeLogs = nodelog.New(cmp.Or(cfg.LogDir, "/var/log"))
	s.requests, s.moved = newRequests(kit.Metrics), newSightings(s.now())
	s.config = configv1.NewConfigServiceClient(config)
	s.shown = newShown(kit.Metrics, s.now)
	s.gate = auth.NewGate(s.policy.Load, reviewer{s.config}, s.now)
	if s.kubelet, err = service.Mirror(kit, house.ConfigKubelet, kubeconf.Decode); err != nil {
		return nil, err
	}
	if s.pods, err = service.Mirror(kit, house.ConfigPods, decodeDesired, service.Unhurried); err != nil {
		return nil, err
	}
	if s.statuses, err = service.Mirror(kit, house.StatusPods, feed.Message[*statusv1.PodReport], service.Unhurried); err != nil {
		return nil, err
	}
	if s.records, err = service.Mirror(kit, house.PlegPods, decodeObserved, service.Unhurried); err != nil {
		return nil, err
	}
	if s.serving, err = service.Mirror(kit, house.ConfigServing, feed.Message[*configv1.Serving]); err != nil {
		return nil, err
	}
	if s.node, err = service.Mirror(kit, house.StatusNode, feed.Message[*statusv1.NodeReport]); err != nil {
		return nil, err
	}
	changed := func([]string) {
		poke(s.wake)
		s.shown.look()
	}
	s.kubelet.Watch(changed)
	s.serving.Watch(changed)
	s.node.Watch(func([]string) { s.shown.look() })
	if cfg.GetStreams {
		kit.Log.Warn("exec, attach, port-forward and run by GET need only the verb get, as in the kubelet")
	}
	kit.Go("certificate", s.certificateLoop)
	kit.Go("listeners", s.listenLoop)
	kit.Go("neighbours", s.look)
	kit.Waiting("config.kubelet")
	return s, nil
}

// dialLong makes the connections for calls that last as long as they take.
func (s *Service) dialLong() error {
	broker, err := rpc.Dial(rpc.ClientConfig{Socket: s.kit.Paths.Broker(), Timeout: streamTimeout})
	if err != nil {
		return fmt.Errorf("dial broker: %w", err)
	}
	s.runtime = runtimeapi.NewRuntimeServiceClient(broker)
	worker, err := rpc.Dial(rpc.ClientConfig{Socket: s.kit.Paths.Socket(house.PodWorker), Timeout: streamTimeout})
	if err != nil {
		return fmt.Errorf("dial podworker: %w", err)
	}
	s.patient = podworkerv1.NewPodWorkerServiceClient(worker)
	return nil
}

// current is the configuration in force, or nil before config has spoken.
func (s *Service) current() *kubeconf.Config {
	c, ok := s.kubelet.Get("kubelet")
	if !ok {
		return nil
	}
	return c
}
