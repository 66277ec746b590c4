package prober

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/store"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// schema of the state file.
const schema = 1

// Config is what prober is told at start.
type Config struct {
	// NodeIP is probed for pods on the host's network whose address is not known;
	// loopback when empty.
	NodeIP string
	// Parallel bounds how many probes run at once; 256 when zero.
	Parallel int
}

// Deps are what prober runs on.
type Deps struct {
	Kit *service.Kit
	// Runtime answers ExecSync; nil dials podworker's broker.
	Runtime grpc.ClientConnInterface
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Service is prober.
type Service struct {
	cfg     Config
	kit     *service.Kit
	now     func() time.Time
	metrics *metrics
	probes  *probe.Prober
	beat    func()

	pods     *feed.Mirror[*v1.Pod]
	records  *feed.Mirror[*observed]
	verdicts *feed.Owner[*proberv1.PodVerdicts]
	events   *feed.Events
	file     *store.Store
	journal  *store.Table[*proberv1.PodVerdicts]

	wake  chan struct{}
	done  chan finished
	slots chan struct{}

	mu    sync.Mutex
	dirty map[string]bool
	known map[string]*v1.Pod // pods whose series and verdicts exist; loop only
	plan  *schedule.Schedule // loop only
	// complete: every pod of config and pleg was looked at once; loop only.
	complete bool
}

// finished is a probe that has run.
type finished struct {
	target  schedule.Target
	outcome probe.Outcome
	took    time.Duration
}

// New wires prober into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	if cfg.Parallel == 0 {
		cfg.Parallel = 256
	}
	if cfg.NodeIP == "" {
		cfg.NodeIP = "127.0.0.1"
	}
	conn := deps.Runtime
	if conn == nil {
		// The longest exec probe decides, not the connection.
		broker, err := rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Broker(), Timeout: time.Hour})
		if err != nil {
			return nil, fmt.Errorf("dial broker: %w", err)
		}
		conn = broker
	}
	kept := kit.StoreConfig("state.db")
	kept.Schema = schema
	file, _, err := store.Open(kept) // without a verdict, probes start over
	if err != nil {
		return nil, err
	}
	journal, err := store.NewTable(file, "verdicts", store.Proto[*proberv1.PodVerdicts]())
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, kit: kit, now: deps.Now, metrics: newMetrics(kit.Metrics),
		probes:   &probe.Prober{Runtime: runtimeapi.NewRuntimeServiceClient(conn), UserAgent: "kube-probe/1.36"},
		verdicts: service.Owner[*proberv1.PodVerdicts](kit, house.ProberVerdicts),
		events:   kit.Events(),
		file:     file,
		journal:  journal,
		wake:     make(chan struct{}, 1),
		done:     make(chan finished, cfg.Parallel),
		slots:    make(chan struct{}, cfg.Parallel),
		dirty:    map[string]bool{}, known: map[string]*v1.Pod{}, plan: schedule.New(),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.pods, err = service.Mirror(kit, house.ConfigPods, decodePod); err != nil {
		return nil, err
	}
	if s.records, err = service.Mirror(kit, house.PlegPods, decodeRecord); err != nil {
		return nil, err
	}
	s.pods.Watch(s.mark)
	s.records.Watch(s.mark)
	s.beat = kit.Heart("schedule", time.Minute)
	kit.Go("schedule", s.loop)
	kit.Waiting("config and pleg")
	return s, nil
}

// mark notes pods to look at again and wakes the loop.
func (s *Service) mark(uids []string) {
	s.mu.Lock()
	for _, uid := range uids {
		s.dirty[uid] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) takeDirty() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := s.dirty
	s.dirty = map[string]bool{}
	return dirty
}

// later puts a pod back without waking the loop: the change that settles it will.
func (s *Service) later(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty[uid] = true
}
