// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/status/internal/api"
	"github.com/sextant-node/sextant/services/status/internal/claims"
	"github.com/sextant-node/sextant/services/status/internal/csinode"
	"github.com/sextant-node/sextant/services/status/internal/events"
	"github.com/sextant-node/sextant/services/status/internal/host"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/lease"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/services/status/internal/nodesync"
	"github.com/sextant-node/sextant/services/status/internal/report"
	"github.com/sextant-node/sextant/services/status/internal/resourceslices"
)

// Deps of the service.
type Deps struct {
	Kit *service.Kit
}

// Service is status.
type Service struct {
	kit      *service.Kit
	in       *inputs
	settings *settings
	source   *api.Source
	journal  *journal.Journal
	metrics  *metrics
	writes   *limit
	eventful *limit
	recorder *events.Recorder
	host     *host.Reader
	node     *node
	claims   *claims.Writer
	slices   *resourceslices.Sweeper
	pods     *podLoop
	desk     *report.Desk
	// looks wakes the loop of the Node, volumes that of its CSINode.
	looks, volumes signal.Signal
}

// New makes the service: its feeds, replicas and store. It starts nothing; the kit
// runs what is added to it here.
func New(cfg Config, deps Deps) (*Service, error) {
	kept, _, err := journal.Open(deps.Kit.StoreConfig("status.db"))
	if err != nil {
		return nil, err
	}
	s, err := build(cfg, deps.Kit, kept)
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return s, nil
}

// build makes the parts, each of those that were made before it, and adds their tasks.
func build(cfg Config, kit *service.Kit, kept *journal.Journal) (*Service, error) {
	started := time.Now()
	kit.Waiting(house.ConfigKubelet.Name)
	former, err := kept.Pods()
	if err != nil {
		return nil, err
	}
	in, err := newInputs(kit, cursors(kept, kit.Log))
	if err != nil {
		return nil, err
	}
	kit.Configured(func() uint64 {
		k, _ := in.kubelet.Get(kubeletKey)
		return kubeletconfig.GenerationOf(k.config)
	})
	settings := &settings{cfg: cfg}
	source := api.NewSource(api.Config{})
	writes, eventful := &limit{}, &limit{}
	looks, volumes, marks, last := signal.New(), signal.New(), signal.NewKeys(), &lastNode{}
	desk := report.NewDesk(time.Now, func(key string) { marks.Mark([]string{key}) })
	metrics := newMetrics(kit.Metrics, in.countMirrors, func() float64 { return float64(desk.Pending()) })
	times := newStartTimes(started, metrics)
	recorder := events.New(events.Deps{
		API: source, Limiter: eventful, Node: settings.recording, Save: kept.PutCursor, Log: kit.Log,
	})
	reader := host.NewReader(kit.Log, looks.Send)
	csi := csinode.New(csinode.Deps{
		API: source, Node: func() (string, types.UID) { return settings.node(), last.uid() },
		Drivers: in.drivers, Wake: volumes, Changed: looks.Send, Log: kit.Log,
	})
	sweeper := resourceslices.New(resourceslices.Deps{
		API: source, Node: func() (string, types.UID) { return settings.node(), last.uid() }, Present: in.claimDrivers, Log: kit.Log,
	})
	node := &node{
		in: in, settings: settings, host: reader, journal: kept, recorder: recorder, last: last,
		report: service.Owner(kit, house.StatusNode),
		epoch:  kit.Epoch, started: started, csi: csi.Problem,
		changed: func() { marks.Mark([]string{everything}); volumes.Send(); sweeper.Look() },
		away:    map[string]time.Time{}, partial: map[string]time.Time{}, log: kit.Log,
	}
	nodes := nodesync.New(nodesync.Deps{
		API: source, Facts: node.facts, Publish: node.publish, Emit: node.emit, Wake: looks,
		Startup: newNodeStartup(kit.Metrics, bootTime(started), started, time.Now),
		Beat:    kit.Heart("node", 5*time.Minute), Log: kit.Log,
	})
	pods := newPodLoop(&podLoop{
		in: in, desk: desk, journal: kept, node: node, started: times, log: kit.Log, now: time.Now, Keys: marks,
		reports: service.Owner(kit, house.StatusPods),
		beat:    kit.Heart("pods", 3*time.Minute),
	}, former)
	s := &Service{
		kit: kit, in: in, settings: settings, source: source, journal: kept, metrics: metrics,
		writes: writes, eventful: eventful, recorder: recorder, host: reader, node: node,
		claims: claims.New(claims.Deps{API: source, Wanted: in.expansions, Log: kit.Log}),
		pods:   pods, desk: desk, looks: looks, volumes: volumes, slices: sweeper,
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	pods.watch()
	for _, m := range in.events {
		recorder.Follow(m, times.event)
	}
	s.watch()
	kit.TellBy(func(kind, reason, message string) {
		node.emit(nodestatus.Event{Type: kind, Reason: reason, Message: message})
	})
	renewer := lease.New(lease.Deps{Settings: s.leasing, NodeUID: last.uid, Log: kit.Log})
	sender := report.NewSender(report.SenderConfig{}, report.SenderDeps{
		Desk: desk, API: source, Limiter: writes, Log: kit.Log,
		Synced: func(d time.Duration) { metrics.synced.Observe(d.Seconds()) },
	})
	kit.Go("lease", renewer.Run)
	kit.Go("journal", s.keepJournal)
	kit.Go("host", reader.Run)
	kit.Go("node", nodes.Run)
	kit.Go("csinode", csi.Run)
	kit.Go("claims", s.claims.Run)
	kit.Go("resourceslices", sweeper.Run)
	kit.Go("pods", pods.Run)
	kit.Go("sender", sender.Run)
	kit.Go("events", recorder.Run)
	return s, nil
}

// keepJournal writes the journal until ctx ends, and closes it.
func (s *Service) keepJournal(ctx context.Context) error {
	err := s.journal.Run(ctx)
	if closeErr := s.journal.Close(); closeErr != nil && !errors.Is(closeErr, os.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("journal: %w", closeErr))
	}
	return err
}

// restore takes up the configuration and the credential of an earlier process.
func (s *Service) restore() error {
	credential, err := s.journal.Credential()
	if err != nil {
		return err
	}
	s.settings.setCredential(string(credential))
	s.source.Configure(s.settings.api()) // enough for the Lease
	if name := s.settings.node(); name != "" {
		s.host.Name(name)
		s.metrics.node(name)
	}
	data, err := s.journal.Config()
	if err != nil || data == nil {
		return err
	}
	config, err := kubeletconfig.Unmarshal(data)
	if err != nil {
		s.kit.Log.Warn("journaled configuration skipped", service.KeyError, err.Error())
		return nil
	}
	s.configure(config)
	return nil
}

// cursors reads how far feeds of events were recorded by an earlier process.
func cursors(kept *journal.Journal, log *slog.Logger) func(feed string) feed.Revision {
	return func(name string) feed.Revision {
		revision, err := kept.Cursor(name)
		if err != nil {
			log.Error("how far events were recorded is not known", "feed", name, service.KeyError, err.Error())
		}
		return revision
	}
}

// watch wakes what depends on an input when that changes.
func (s *Service) watch() {
	look := func([]string) { s.looks.Send() }
	s.in.runtime.Watch(look)
	s.in.resources.Watch(func(keys []string) {
		look(keys)
		s.slices.Look()
	})
	s.in.nodes.Watch(look)
	s.in.end.Watch(look)
	s.in.sources.Watch(look)
	s.in.volumes.Watch(func(keys []string) {
		look(keys)
		s.volumes.Send()
		s.claims.Look()
	})
	s.in.credential.Watch(func([]string) { s.credential() })
	s.in.kubelet.Watch(func([]string) {
		k, ok := s.in.kubelet.Get(kubeletKey)
		if !ok {
			return
		}
		s.configure(k.config)
		s.journal.PutConfig(k.raw)
		s.looks.Send()
		s.recorder.Look()
		s.pods.Mark([]string{everything})
	})
}

// credential puts the credential in force that config hands out. Without one
// from a config that has only just started, the former one stays.
func (s *Service) credential() {
	c, ok, known := s.in.credential.Lookup(credentialKey)
	if !ok && !known {
		return
	}
	s.settings.setCredential(string(c.GetKubeconfig()))
	s.source.Configure(s.settings.api())
	s.journal.PutCredential(c.GetKubeconfig())
	s.looks.Send()
	s.recorder.Look()
}

// configure puts a configuration in force.
func (s *Service) configure(config *kubeletconfig.Config) {
	s.settings.set(config)
	s.source.Configure(s.settings.api())
	s.writes.set(apiRate(config))
	s.eventful.set(eventRate(config))
	s.host.Name(s.settings.node())
	s.metrics.node(s.settings.node())
	s.kit.Serving()
}

// leasing is what the Lease is renewed by (lease.Deps).
func (s *Service) leasing() (lease.Settings, error) {
	clients, err := s.source.Clients()
	if err != nil {
		return lease.Settings{}, err
	}
	return lease.Settings{
		Node: s.settings.node(), Duration: leaseDuration(s.settings.get()),
		Client: clients.Lease, Generation: clients.Generation,
	}, nil
}
