package config

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/services/config/internal/identity"
	"github.com/sextant-node/sextant/services/config/internal/keep"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/objects"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// Config says where the configuration is.
type Config struct {
	// Load reads the flags and configuration files anew (kubeconf.Load).
	Load func() (*kubeconf.Config, []kubeconf.Warning, error)
	// Watch names the files and folders whose change makes Load run again: those
	// of --config and --config-dir. Files that Load read are watched anyway.
	Watch []string
}

// Deps are what config runs on.
type Deps struct {
	Kit *service.Kit
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Service is config.
type Service struct {
	configv1.UnimplementedConfigServiceServer
	cfg     Config
	kit     *service.Kit
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	beat    func()
	keeper  *keep.Keeper
	feeds   feeds

	configuration configuration
	sources       *sources
	objects       *objects.Manager
	tokens        *token.Cache
	identity      *identity.Holder
	serving       serving
	client        atomic.Pointer[kubernetes.Clientset]

	wake chan struct{} // capacity 1: merge soon
	// objectsMoved is set when objects may name others than before.
	objectsMoved atomic.Bool
	loop         loop
	// restoring is true within New: what is told then came from the store.
	restoring bool
}

// feeds are what config owns.
type feeds struct {
	pods    *feed.Owner[*configv1.DesiredPod]
	sources *feed.Owner[*configv1.Source]
	objects *feed.Owner[*configv1.Object]
	secrets *feed.Owner[*configv1.Object]
	mirrors *feed.Owner[*configv1.Object]
	kubelet *feed.Owner[*configv1.KubeletConfig]
	events  *feed.Events
	// credential and serving hold private keys.
	credential *feed.Owner[*configv1.Credential]
	serving    *feed.Owner[*configv1.Serving]
}

// New wires config into its process. It reads the store and the configuration;
// the error is that there is neither a good configuration nor a former one, or
// that the store cannot be opened. Everything else runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	keeper, _, err := keep.Open(kit.StoreConfig(keep.File))
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, kit: kit, log: kit.Log, now: deps.Now, keeper: keeper,
		feeds: feeds{
			pods:    service.Owner[*configv1.DesiredPod](kit, house.ConfigPods),
			sources: service.Owner[*configv1.Source](kit, house.ConfigSources),
			objects: service.Owner[*configv1.Object](kit, house.ConfigObjects),
			secrets: service.Owner[*configv1.Object](kit, house.ConfigSecrets),
			mirrors: service.Owner[*configv1.Object](kit, house.ConfigMirrors),
			kubelet: service.Owner[*configv1.KubeletConfig](kit, house.ConfigKubelet),
			events:  kit.Events(),

			credential: service.Owner[*configv1.Credential](kit, house.ConfigCredential),
			serving:    service.Owner[*configv1.Serving](kit, house.ConfigServing),
		},
		wake: make(chan struct{}, 1),
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.metrics = newMetrics(kit.Metrics, keeper.Unwritten, func() *kubeconf.Config {
		c, _ := s.configuration.get()
		return c
	})
	s.objects = objects.New(objects.Config{
		Publish: s.publishObject, Withdraw: s.withdrawObject, Linger: linger, Log: kit.Log,
		Changed: func() {
			s.objectsMoved.Store(true)
			s.look()
		},
	})
	s.sources = newSources(s)
	s.serving.wake = make(chan struct{}, 1)
	s.identity = identity.New(identity.Config{
		Changed: s.publishCredential, RenewError: s.metrics.renewErrors.Inc,
		UserAgent: userAgent, Now: s.now, Log: kit.Log,
	})
	s.metrics.observeCertificate(kit.Metrics, s.certificateTTL)
	if err := s.wire(); err != nil {
		return nil, fmt.Errorf("config: %w", closing(keeper, err))
	}
	return s, nil
}

// wire reads what was kept and adds the tasks.
func (s *Service) wire() error {
	ctx := context.Background()
	if err := s.firstConfiguration(ctx); err != nil {
		return err
	}
	pods, err := s.restore()
	if err != nil {
		return err
	}
	s.loop.state = merge.Restore(pods)
	s.loop.kept = maps.Clone(s.loop.state.Pods)
	s.loop.readAt = map[string]*feedv1.Revision{}
	s.objectsMoved.Store(true) // nothing was asked for yet
	s.beat = s.kit.Heart("merge", time.Minute)
	configv1.RegisterConfigServiceServer(s.kit.Server, s)
	s.kit.Go("keep", s.keeper.Run)
	s.kit.Go("configuration", s.watchConfiguration)
	s.kit.Go("identity", s.identity.Run)
	s.kit.Go("serving", s.watchServing)
	s.kit.Go("sources", s.sources.run)
	s.kit.Go("merge", s.run)
	s.kit.Waiting("sources of pods")
	return nil
}

// closing closes what New opened, when it fails.
func closing(k *keep.Keeper, err error) error {
	if closeErr := k.Close(); closeErr != nil {
		return fmt.Errorf("%w; %w", err, closeErr)
	}
	return err
}

// look asks the loop to merge soon.
func (s *Service) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// configuration is the one in force.
type configuration struct {
	mu         sync.Mutex
	current    *kubeconf.Config
	encoded    []byte
	generation uint64
	refused    string // why the newest one is not in force, or empty
}

func (c *configuration) get() (current *kubeconf.Config, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.refused
}
