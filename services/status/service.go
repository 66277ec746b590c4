package status

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
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
)

// Config of the service: what it must know before config answers.
type Config struct {
	// NodeName is the name of the Node object; if empty it is the configuration's.
	NodeName string
}

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
	writes   limit
	eventful limit
	recorder *events.Recorder
	host     *host.Reader
	node     *node
	nodes    *nodesync.Sync
	csi      *csinode.Keeper
	claims   *claims.Writer
	pods     *podLoop
	desk     *report.Desk
}

// New makes the service: its feeds, mirrors and store. It starts nothing; the kit
// runs what is added to it here.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{kit: kit, settings: &settings{cfg: cfg}, source: api.NewSource(api.Config{})}
	kit.Waiting(house.ConfigKubelet)
	kept, _, err := journal.Open(kit.StoreConfig("status.db"))
	if err != nil {
		return nil, err
	}
	s.journal = kept
	if err := s.restore(); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	s.in, err = newInputs(kit, s.cursor)
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	if err := s.build(); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	kit.TellBy(func(kind, reason, message string) {
		s.node.emit(nodestatus.Event{Type: kind, Reason: reason, Message: message})
	})
	s.run()
	return s, nil
}

// restore takes up the configuration and the credential of an earlier process.
func (s *Service) restore() error {
	credential, err := s.journal.Credential()
	if err != nil {
		return err
	}
	s.settings.setCredential(string(credential))
	s.source.Configure(s.settings.api()) // enough for the Lease
	data, err := s.journal.Config()
	if err != nil || data == nil {
		return err
	}
	config, err := kubeconf.Unmarshal(data)
	if err != nil {
		s.kit.Log.Warn("journaled configuration skipped", service.KeyError, err.Error())
		return nil
	}
	s.configure(config)
	return nil
}

func (s *Service) cursor(name string) feed.Revision {
	revision, err := s.journal.Cursor(name)
	if err != nil {
		s.kit.Log.Error("how far events were recorded is not known", "feed", name, service.KeyError, err.Error())
	}
	return revision
}

func (s *Service) build() error {
	kit, started := s.kit, time.Now()
	restored, err := s.journal.Pods()
	if err != nil {
		return err
	}
	s.metrics = newMetrics(kit.Metrics,
		func() float64 {
			n := 0
			for _, m := range s.in.mirrors.Items() {
				if m != nil {
					n++
				}
			}
			return float64(n)
		},
		func() float64 { return float64(s.desk.Pending()) },
	)
	s.recorder = events.New(events.Deps{
		API: s.source, Limiter: &s.eventful, Node: s.recording, Save: s.journal.PutCursor, Log: kit.Log,
	})
	s.host = host.NewReader(kit.Log, func() { s.nodes.Look() })
	if name := s.settings.node(); name != "" {
		s.host.Name(name)
		s.metrics.node(name)
	}
	s.csi = csinode.New(csinode.Deps{
		API: s.source, Node: func() (string, types.UID) { return s.settings.node(), s.nodes.UID() },
		Drivers: s.in.drivers, Changed: func() { s.nodes.Look() }, Log: kit.Log,
	})
	s.claims = claims.New(claims.Deps{API: s.source, Wanted: s.in.expansions, Log: kit.Log})
	s.node = &node{
		in: s.in, settings: s.settings, host: s.host, journal: s.journal, recorder: s.recorder,
		report: service.Owner[*statusv1.NodeReport](kit, house.StatusNode),
		epoch:  kit.Epoch, started: started, changed: func() { s.pods.mark(nil, nil, true); s.csi.Look() },
		csi:  s.csi.Problem,
		away: map[string]time.Time{}, partial: map[string]time.Time{}, log: kit.Log,
	}
	s.nodes = nodesync.New(nodesync.Deps{
		API: s.source, Facts: s.node.facts, Publish: s.node.publish, Emit: s.node.emit,
		Startup: newNodeStartup(kit.Metrics, bootTime(started), started, time.Now),
		Beat:    kit.Heart("node", 5*time.Minute), Log: kit.Log,
	})
	s.desk = report.NewDesk(time.Now, func(key string) { s.pods.settled(key) })
	times := newStartTimes(started, s.metrics)
	s.pods = newPodLoop(&podLoop{
		in: s.in, desk: s.desk, journal: s.journal, node: s.node, started: times, log: kit.Log, now: time.Now,
		reports: service.Owner[*statusv1.PodReport](kit, house.StatusPods),
		beat:    kit.Heart("pods", 3*time.Minute),
	}, restored)
	s.pods.watch()
	for _, m := range s.in.events {
		s.recorder.Follow(m, times.event)
	}
	s.watch()
	return nil
}

// watch hears of what the node depends on.
func (s *Service) watch() {
	look := func([]string) { s.nodes.Look() }
	s.in.runtime.Watch(look)
	s.in.resources.Watch(look)
	s.in.nodes.Watch(look)
	s.in.end.Watch(look)
	s.in.sources.Watch(look)
	s.in.volumes.Watch(func(keys []string) {
		look(keys)
		s.csi.Look()
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
		s.nodes.Look()
		s.recorder.Look()
		s.pods.mark(nil, nil, true)
	})
}

// credential puts the credential in force that config hands out. Without one
// from a config that has only just started, the former one stays.
func (s *Service) credential() {
	c, ok := s.in.credential.Get(credentialKey)
	if !ok && !s.in.credential.Complete() {
		return
	}
	s.settings.setCredential(string(c.GetKubeconfig()))
	s.source.Configure(s.settings.api())
	s.journal.PutCredential(c.GetKubeconfig())
	s.nodes.Look()
	s.recorder.Look()
}

// configure puts a configuration in force.
func (s *Service) configure(config *kubeconf.Config) {
	s.settings.set(config)
	s.source.Configure(s.settings.api())
	s.writes.set(apiRate(config))
	s.eventful.set(eventRate(config))
	if s.host != nil {
		s.host.Name(s.settings.node())
	}
	if s.metrics != nil {
		s.metrics.node(s.settings.node())
	}
	s.kit.Serving()
}

// recording tells the recorder what to do with events.
func (s *Service) recording() (string, events.Mode) {
	switch name := s.settings.node(); {
	case s.settings.get() == nil || name == "":
		return "", events.Wait
	case s.settings.standalone():
		return name, events.Discard
	default:
		return name, events.Record
	}
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

func (s *Service) run() {
	kit := s.kit
	sender := report.NewSender(report.SenderConfig{}, report.SenderDeps{
		Desk: s.desk, API: s.source, Limiter: &s.writes, Log: kit.Log,
		Synced: func(d time.Duration) { s.metrics.synced.Observe(d.Seconds()) },
	})
	renewer := lease.New(lease.Deps{Settings: s.leasing, NodeUID: s.nodes.UID, Log: kit.Log})
	kit.Go("lease", renewer.Run)
	kit.Go("journal", func(ctx context.Context) error {
		err := s.journal.Run(ctx)
		if closeErr := s.journal.Close(); closeErr != nil && !errors.Is(closeErr, os.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("journal: %w", closeErr))
		}
		return err
	})
	kit.Go("host", s.host.Run)
	kit.Go("node", s.nodes.Run)
	kit.Go("csinode", s.csi.Run)
	kit.Go("claims", s.claims.Run)
	kit.Go("pods", s.pods.Run)
	kit.Go("sender", sender.Run)
	kit.Go("events", s.recorder.Run)
}
