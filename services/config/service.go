// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/services/config/internal/identity"
	"github.com/sextant-node/sextant/services/config/internal/keep"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/services/config/internal/objects"
)

// Config says where the configuration is.
type Config struct {
	// Load reads the flags and configuration files again (kubeletconfig.Load).
	Load func() (*kubeletconfig.Config, []kubeletconfig.Warning, error)
	// Watch names the files and folders whose change makes Load run again: those
	// of --config and --config-dir. Files that Load read are watched anyway.
	Watch []string
	// KeepSecrets is how long Secrets and tokens are kept (keep.Mode): "disk", also over
	// a restart of the machine, which "" stands for; "boot"; or "off", not at all.
	KeepSecrets string
}

// CheckKeepSecrets refuses what is no value of Config.KeepSecrets.
func CheckKeepSecrets(value string) error {
	switch keep.Mode(value) {
	case "", keep.Disk, keep.Boot, keep.Off:
		return nil
	}
	return fmt.Errorf("--keep-secrets %q: want %s, %s or %s", value, keep.Disk, keep.Boot, keep.Off)
}

// Deps are what config runs on.
type Deps struct {
	Kit *service.Kit
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// New wires config into its process. It reads the store and the configuration;
// the error is that there is neither a good configuration nor a former one, or
// that the store cannot be opened. Everything else runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	keys := keep.Keys{
		Mode: keep.Mode(cfg.KeepSecrets), State: kit.StateDir(), Run: filepath.Dir(kit.Paths.Socket(house.Config)),
		Credentials: os.Getenv("CREDENTIALS_DIRECTORY"),
	}
	if err := CheckKeepSecrets(cfg.KeepSecrets); err != nil {
		return nil, err
	}
	keeper, _, err := keep.Open(kit.StoreConfig(keep.File), keys)
	if err != nil {
		return nil, err
	}
	now := deps.Now
	if now == nil {
		now = time.Now
	}
	inForce := &configuration{}
	s := &Service{
		kit: kit, log: kit.Log, now: now, keeper: keeper, configuration: inForce, session: &session{inForce: inForce},
		feeds: newFeeds(kit),
		wake:  signal.New(),
	}
	s.report = reporter{events: s.feeds.events, inForce: inForce, now: now, log: kit.Log}
	s.serving = &serving{inForce: inForce, feed: s.feeds.serving, log: kit.Log, wake: signal.New()}
	s.metrics = newMetrics(kit.Metrics, keeper.Unwritten, func() *kubeletconfig.Config {
		c, _ := s.configuration.get()
		return c
	})
	kit.Configured(inForce.number)
	s.objects = objects.New(objects.Config{
		Publish: s.publishObject, Withdraw: s.withdrawObject, Linger: linger, Log: kit.Log,
		Changed: func() {
			s.objectsMoved.Store(true)
			s.wake.Send()
		},
	})
	s.identity = identity.New(identity.Config{
		Changed: func(held *identity.Held) {
			s.feeds.publishCredential(held, kit.Log)
			s.wake.Send()
		},
		RenewError: s.metrics.renewErrors.Inc,
		UserAgent:  userAgent, Now: s.now, Log: kit.Log,
	})
	s.sources = &sources{
		now: now, log: kit.Log, wake: s.wake, identity: s.identity, session: s.session, objects: s.objects,
		kick: signal.New(), slots: map[string]*slot{},
	}
	s.metrics.observeCertificate(kit.Metrics, func() float64 {
		held, _, _ := s.identity.Held()
		return timeLeft(held, now())
	})
	if err := s.wire(cfg); err != nil {
		return nil, fmt.Errorf("config: %w", closing(keeper, err))
	}
	return s, nil
}

// wire reads what was kept and adds the tasks.
func (s *Service) wire(cfg Config) error {
	configurator := &configurator{
		load: cfg.Load, watched: cfg.Watch, inForce: s.configuration, keeper: s.keeper, feed: s.feeds.kubelet, metrics: s.metrics,
		report: s.report, log: s.log, apply: s.apply, wake: s.wake,
	}
	if err := configurator.first(context.Background()); err != nil {
		return err
	}
	pods, err := s.restore()
	if err != nil {
		return err
	}
	s.ahead = newAhead(s.tokens)
	s.loop.state = merge.Restore(pods)
	s.loop.kept = maps.Clone(s.loop.state.Pods)
	s.loop.direct, s.loop.former = map[types.UID]directRefs{}, map[types.UID]bool{}
	for uid := range s.loop.kept {
		s.loop.former[uid] = true
	}
	s.loop.readAt = map[string]*feedv1.Revision{}
	s.objectsMoved.Store(true) // nothing was asked for yet
	s.beat = s.kit.Heart("merge", time.Minute)
	configv1.RegisterConfigServiceServer(s.kit.Server, &server{
		session: s.session, objects: s.objects, tokens: s.tokens, metrics: s.metrics, now: s.now,
		reviewing: semaphore.NewWeighted(maxReviews),
	})
	s.kit.Go("keep", s.keeper.Run)
	s.kit.Go("tokens", s.ahead.run)
	s.kit.Go("configuration", configurator.watch)
	s.kit.Go("identity", s.identity.Run)
	s.kit.Go("serving", s.serving.watch)
	current, _ := s.configuration.get()
	docker := &dockerConfig{path: filepath.Join(current.Node.RootDir, house.DockerConfig), feed: s.feeds.secrets, log: s.log}
	docker.publish(context.Background()) // before readers are told that there is no more
	s.kit.Go("docker configuration", docker.watch)
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

// apply arranges the parts by a configuration.
func (s *Service) apply(c *kubeletconfig.Config) {
	s.identity.Configure(identity.Settings{
		Kubeconfig: c.Node.KubeConfig, Bootstrap: c.Node.BootstrapKubeConfig, Dir: house.CertDir(c.Node.CertDir, house.Config),
		Node: c.Node.Name, Rotate: c.Kubelet.RotateCertificates,
	})
	s.serving.wake.Send()
	s.sources.configure(c)
	s.wake.Send()
}
