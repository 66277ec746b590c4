package nodeapi

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// Config is what nodeapi is told at start.
type Config struct {
	// NodeName is the name every review is about.
	NodeName string
}

// Deps are what nodeapi runs on.
type Deps struct {
	Kit *service.Kit
	// Now is the clock certificates and reviews run out by; time.Now when nil.
	Now func() time.Time
}

// Service is nodeapi.
type Service struct {
	cfg Config
	kit *service.Kit

	kubelet  *feed.Mirror[*kubeconf.Config]
	pods     *feed.Mirror[*desired]
	statuses *feed.Mirror[*statusv1.PodReport]
	worker   podworkerv1.PodWorkerServiceClient
	gate     *auth.Gate
	policy   atomic.Pointer[auth.Policy]
	// certificate is the one shown to callers.
	certificate atomic.Pointer[tls.Certificate]

	wake chan struct{} // capacity 1: the configuration may have changed
}

// New wires nodeapi into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{cfg: cfg, kit: kit, wake: make(chan struct{}, 1)}
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
	now := deps.Now
	if now == nil {
		now = time.Now
	}
	s.gate = auth.NewGate(func() auth.Policy { return *s.policy.Load() }, reviewer{configv1.NewConfigServiceClient(config)}, now)
	if s.kubelet, err = service.Mirror(kit, house.ConfigKubelet, decodeKubelet); err != nil {
		return nil, err
	}
	if s.pods, err = service.Mirror(kit, house.ConfigPods, decodeDesired); err != nil {
		return nil, err
	}
	if s.statuses, err = service.Mirror(kit, house.StatusPods, feed.Message[*statusv1.PodReport]); err != nil {
		return nil, err
	}
	s.kubelet.Watch(func([]string) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
	kit.Go("listeners", s.listenLoop)
	kit.Waiting("config.kubelet")
	return s, nil
}

// current is the configuration in force, or nil before config has spoken.
func (s *Service) current() *kubeconf.Config {
	c, ok := s.kubelet.Get("kubelet")
	if !ok {
		return nil
	}
	return c
}

func decodeKubelet(_ string, value []byte) (*kubeconf.Config, error) {
	m, err := feed.Message[*configv1.KubeletConfig]("", value)
	if err != nil {
		return nil, err
	}
	c, err := kubeconf.Unmarshal(m.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", m.GetGeneration(), err)
	}
	return c, nil
}
