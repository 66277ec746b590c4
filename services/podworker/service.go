// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/broker"
	"github.com/sextant-node/sextant/services/podworker/internal/checkpoint"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
	"github.com/sextant-node/sextant/services/podworker/internal/journal"
	"github.com/sextant-node/sextant/services/podworker/internal/logs"
	"github.com/sextant-node/sextant/services/podworker/internal/pulls"
)

// Config are podworker's values.
type Config struct {
	// RuntimeEndpoint and ImageEndpoint are unix:///path; the latter may be empty.
	RuntimeEndpoint, ImageEndpoint string
	// RootDir, PodLogsDir and LinksDir as the kubelet's; empty for its defaults.
	RootDir, PodLogsDir, LinksDir string
	// NodeName is used until the configuration tells it.
	NodeName string
	// SystemBus is the D-Bus address of a gate to logind; empty for none.
	SystemBus string
}

// Deps is what podworker works with.
type Deps struct{ Kit *service.Kit }

// Service is podworker, wired into its process.
type Service struct {
	kit     *service.Kit
	cfg     Config
	config  *currentConfig
	loop    *loop
	events  *feed.Events
	broker  *broker.Broker
	in      *Inputs
	journal *journal.Journal
}

// New wires podworker into its process: it opens the journal, and adds broker,
// workers, log rotation and image collection to the kit. It starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	cfg.RootDir = cmp.Or(cfg.RootDir, pod.DefaultRootDir)
	cfg.PodLogsDir = cmp.Or(cfg.PodLogsDir, pod.DefaultPodLogsDir)
	cfg.LinksDir = cmp.Or(cfg.LinksDir, pod.LegacyContainerLogs)
	s := &Service{kit: kit, cfg: cfg, config: newCurrentConfig(), events: kit.Events()}
	var err error
	if s.in, err = replicas(kit); err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	reaper, err := dialReaper(kit)
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	kit.Configured(func() uint64 {
		c, ok := s.in.Kubelet.Get("kubelet")
		if !ok {
			return 0
		}
		return kubeletconfig.GenerationOf(c.Config)
	})
	rights := &probeRights{pods: s.in.Pods, containers: lru.New(knownContainers)}
	s.broker, err = broker.New(broker.Config{
		RuntimeEndpoint: cfg.RuntimeEndpoint, ImageEndpoint: cfg.ImageEndpoint, Socket: kit.Paths.Broker(),
		Timeout: s.runtimeTimeout,
	}, broker.Deps{Identities: kit.Identities, Log: kit.Log, Metrics: kit.Metrics, Reaper: reaper, MayProbe: rights.mayProbe, Spare: s.spare})
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	if s.journal, _, err = journal.Open(kit.StoreConfig(journal.FileName)); err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	if err := s.wire(); err != nil {
		return nil, fmt.Errorf("podworker: %w", errors.Join(err, s.journal.Close()))
	}
	return s, nil
}

// wire makes the parts and adds them to the process.
func (s *Service) wire() error {
	kit, real := s.kit, clock.RealClock{}
	keeper := images.New(images.Deps{
		Runtime: s.broker.Runtime(), Images: s.broker.Images(), Feed: service.Owner(kit, house.PodWorkerImages),
		Config: s.config.Config, Used: func() (images.Used, bool) { return s.loop.usedImages() }, Unread: s.in.unread,
		Tell: s.warnNode, Clock: real, Log: kit.Log, Metrics: kit.Metrics,
	})
	progress := pulls.New(pulls.Deps{
		Images: s.broker.Images(), Feed: service.Owner(kit, house.PodWorkerPulls), Clock: real, Log: kit.Log,
	})
	volume, err := kit.Dial(house.Volume)
	if err != nil {
		return err
	}
	config, err := kit.Dial(house.Config)
	if err != nil {
		return err
	}
	devices, err := dialDevices(kit.Paths)
	if err != nil {
		return err
	}
	volumeClient := volumev1.NewVolumeServiceClient(volume)
	look := &lookups{in: s.in, nodeName: s.cfg.NodeName, rootDir: s.cfg.RootDir, config: s.config}
	actuator := actuate.New(
		actuate.Config{RootDir: s.cfg.RootDir, PodLogsDir: s.cfg.PodLogsDir, LegacyLogsDir: s.cfg.LinksDir},
		actuate.Deps{
			Runtime: s.broker.Runtime(), Images: s.broker.Images(), Lookups: look, Configuration: s.config,
			Events: s.events, Subpaths: subpaths{volumeClient}, Devices: devices,
			Accounts: accounts{configv1.NewConfigServiceClient(config)}, Pulls: progress, Pulled: keeper.Pulled, Clock: real, Log: kit.Log, Metrics: kit.Metrics,
		})
	deps, err := s.loopDeps(look, actuator, volumeClient)
	if err != nil {
		return err
	}
	if err := s.nodeEnd(&deps); err != nil {
		return err
	}
	s.loop = newLoop(loopConfig{rootDir: s.cfg.RootDir, podLogsDir: s.cfg.PodLogsDir}, deps)
	kit.Metrics.MustRegister(census{s.loop})
	podworkerv1.RegisterPodWorkerServiceServer(kit.Server, server{
		logs.NewServer(logPods{s.loop}, s.broker.Runtime(), real, kit.Log),
		checkpoint.New(s.cfg.RootDir, checkpoint.Deps{
			Containers: runningContainers{s.in}, Runtime: s.broker.Runtime(), Clock: real, Timeout: s.runtimeTimeout,
		}),
	})
	runs := signal.New()
	s.in.Records.Watch(func([]string) { runs.Send() })
	rotator := logs.NewRotator(logs.RotatorDeps{
		Runtime: s.broker.Runtime(), Running: s.in.runningLogs, Changed: runs, Config: s.config.Config, Clock: real, Log: kit.Log,
	})
	kit.Go("broker", s.broker.Run)
	kit.Go("pods", s.run)
	kit.Go("logind", s.loop.end.machine.run)
	kit.Go("images", keeper.Run)
	kit.Go("reclaim", newReclaimer(s.loop, keeper, s.loop.usedImages, real).run)
	kit.Go("pulls", progress.Run)
	kit.Go("log rotation", rotator.Run)
	kit.Go("tidying", tidier{in: s.in, actuator: actuator, clock: real, log: kit.Log}.run)
	kit.Waiting("config.kubelet")
	return nil
}

func (s *Service) loopDeps(look *lookups, actuator *actuate.Actuator, volume volumes) (loopDeps, error) {
	deps := loopDeps{
		in: s.in, config: s.config, lookups: look, journal: s.journal, sandboxes: actuator, containers: actuator,
		states: service.Owner(s.kit, house.PodWorkerPods), events: s.events,
		clock: clock.RealClock{}, calm: newCalm(clock.RealClock{}, calmAfter), log: s.kit.Log, volume: volume,
		serving: s.kit.Serving, waiting: s.kit.Waiting, beat: s.kit.Heart("pods", 3*leftoverPeriod),
	}
	resource, err := s.kit.Dial(house.Resource)
	if err != nil {
		return deps, err
	}
	pleg, err := s.kit.Dial(house.Pleg)
	if err != nil {
		return deps, err
	}
	deps.resource = resourcev1.NewResourceServiceClient(resource)
	deps.pleg = plegv1.NewPlegServiceClient(pleg)
	deps.metrics = newMetrics(s.kit.Metrics)
	return deps, nil
}

// nodeEnd makes the end of the node.
func (s *Service) nodeEnd(deps *loopDeps) error {
	boot, err := service.BootID()
	if err != nil {
		return err
	}
	deps.end, err = newNodeEnd(&nodeEnd{
		journal: s.journal, report: service.Owner(s.kit, house.PodWorkerNode), metrics: deps.metrics,
		clock: deps.clock, log: s.kit.Log, boot: boot, tell: s.tellNode,
	}, dialLogind(s.cfg.SystemBus))
	return err
}

// run lives as long as the process; the journal is closed after the last worker.
func (s *Service) run(ctx context.Context) error {
	err := s.loop.run(ctx)
	return errors.Join(err, s.journal.Close())
}

// runtimeTimeout is runtimeRequestTimeout, or the broker's own before the
// configuration is known.
func (s *Service) runtimeTimeout() time.Duration {
	if c := s.config.Config(); c != nil && c.Kubelet.RuntimeRequestTimeout.Duration > 0 {
		return c.Kubelet.RuntimeRequestTimeout.Duration
	}
	return broker.DefaultTimeout
}

// spare reports whether containers may be stopped as fast as it goes: there are processors for
// it, or the machine is to end.
func (s *Service) spare() bool { return s.loop.end.active() || broker.Spare() }

// warnNode tells a warning about the node.
func (s *Service) warnNode(ctx context.Context, reason, message string) {
	s.tellNode(ctx, v1.EventTypeWarning, reason, message)
}

// tellNode tells an event about the node.
func (s *Service) tellNode(ctx context.Context, kind, reason, message string) {
	name := s.cfg.NodeName
	if c := s.config.Config(); c != nil {
		name = c.Node.Name
	}
	if name == "" {
		if host, err := os.Hostname(); err == nil {
			name = host
		}
	}
	err := s.events.Emit(ctx, &eventv1.Event{
		Object: &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: name, Uid: name},
		Type:   kind, Reason: reason, Message: message, Time: timestamppb.Now(),
	})
	if err != nil {
		s.kit.Log.Warn("event lost", "reason", reason, service.KeyError, err.Error())
	}
}
