package status

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/status/internal/api"
	"github.com/sextant-node/sextant/services/status/internal/events"
	"github.com/sextant-node/sextant/services/status/internal/host"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/lease"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/services/status/internal/nodesync"
	"github.com/sextant-node/sextant/services/status/internal/report"
)

// Config of the service: what it must know before config answers. Both may be empty;
// then they are what the KubeletConfiguration's flags say.
type Config struct {
	// NodeName is the name of the Node object.
	NodeName string
	// Kubeconfig is the path of the API server credentials.
	Kubeconfig string
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
	pods     *podLoop
	desk     *report.Desk
}

// New makes the service: its feeds, mirrors and store. It starts nothing; the kit
// runs what is added to it here.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{kit: kit, settings: &settings{cfg: cfg}, source: api.NewSource(api.Config{})}
	kit.Waiting(house.ConfigKubelet)
	kept, damage, err := journal.Open(filepath.Join(kit.StateDir(), "status.db"), kit.Log)
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
	if damage != nil {
		s.node.emit(nodestatus.Event{Type: "Warning", Reason: "StateSetAside", Message: "status: " + damage.String()})
	}
	s.run()
	return s, nil
}

// restore takes up the configuration of an earlier process.
func (s *Service) restore() error {
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
	s.node = &node{
		in: s.in, settings: s.settings, host: s.host, journal: s.journal, recorder: s.recorder,
		report: service.Owner[*statusv1.NodeReport](kit, house.StatusNode),
		epoch:  kit.Epoch, started: started, changed: func() { s.pods.mark(nil, nil, true) },
		away: map[string]time.Time{}, partial: map[string]time.Time{}, log: kit.Log,
	}
	s.nodes = nodesync.New(nodesync.Deps{
		API: s.source, Facts: s.node.facts, Publish: s.node.publish, Emit: s.node.emit,
		Beat: kit.Heart("node", 5*time.Minute), Log: kit.Log,
	})
	s.desk = report.NewDesk(time.Now, func(key string) { s.pods.settled(key) })
	times := newStartTimes(started, s.metrics.started)
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
	s.in.sources.Watch(look)
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

// configure puts a configuration in force.
func (s *Service) configure(config *kubeconf.Config) {
	s.settings.set(config)
	s.source.Configure(api.Config{
		Kubeconfig: s.settings.kubeconfig(), ContentType: config.Kubelet.ContentType,
		Lease: s.leaseDuration(), UserAgent: "sextant-status/" + service.Version,
	})
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

func (s *Service) leaseDuration() time.Duration {
	if c := s.settings.get(); c != nil && c.Kubelet.NodeLeaseDurationSeconds > 0 {
		return time.Duration(c.Kubelet.NodeLeaseDurationSeconds) * time.Second
	}
	return 40 * time.Second
}

// recording tells the recorder what to do with events.
func (s *Service) recording() (string, events.Mode) {
	switch name := s.settings.node(); {
	case s.settings.get() == nil || name == "":
		return "", events.Wait
	case s.settings.kubeconfig() == "":
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
		Node: s.settings.node(), Duration: s.leaseDuration(),
		Client: clients.Heartbeat, Generation: clients.Generation,
	}, nil
}

func (s *Service) run() {
	kit := s.kit
	if s.settings.get() == nil && s.settings.cfg.Kubeconfig != "" {
		// Enough for the Lease, until config answers.
		s.source.Configure(api.Config{Kubeconfig: s.settings.cfg.Kubeconfig, UserAgent: "sextant-status/" + service.Version})
	}
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
	kit.Go("pods", s.pods.Run)
	kit.Go("sender", sender.Run)
	kit.Go("events", s.recorder.Run)
}
