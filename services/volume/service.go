// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"io"
	"os"
	"os/exec"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/store"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// schema of the state file.
const schema = 1

// Config of the service.
type Config struct {
	// RootDir is the kubelet's root directory, /var/lib/kubelet by default.
	RootDir string
	// Child makes the command of a process that calls ServeSteps.
	Child func() *exec.Cmd
	// StepLimit is how long a child's step may take; zero for what suits it.
	StepLimit time.Duration
}

// ServeSteps is a child of volume: it carries out the steps that may hang, one at
// a time, as its parent asks.
func ServeSteps(root string, in io.Reader, out io.Writer) error {
	// Should memory run out, a child goes before its parent, if the node allows it.
	os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) //nolint:errcheck // it can do without
	return child.Serve(in, out, setup.Steps(root))
}

// Deps are what volume runs on.
type Deps struct {
	Kit *service.Kit
	// Host defaults to the real one below Config.RootDir.
	Host Host
	// Clock is the real one when nil.
	Clock clock.Clock
	// FileLabel is the SELinux label of files for processes with these options, empty
	// for none; this node's policy when nil.
	FileLabel func(*v1.SELinuxOptions) (string, error)
}

// Service is volume.
type Service struct {
	volumev1.UnimplementedVolumeServiceServer
	kit      *service.Kit
	clock    clock.Clock
	file     *store.Store
	children *child.Pool
	pods     *pods
	maker    *maker
	stats    *keeper
	turns    *keyed.Limit // one command at a time for a pod
}

// New wires volume into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	if deps.FileLabel == nil {
		deps.FileLabel = hostLabel
	}
	metrics := newMetrics(kit.Metrics)
	pods := newPods(service.Owner(kit, house.VolumePods), kit.Events(), deps.Clock.Now, kit.Log)
	children := child.NewPool(child.Config{Command: cfg.Child, Freed: pods.freed, Log: kit.Log})
	if deps.Host == nil {
		deps.Host = setup.Apart{Host: setup.NewHost(cfg.RootDir), Children: children, Limit: cfg.StepLimit}
	}
	// Without an intent, volumes found on disk are kept until their pods are declared
	// or withdrawn.
	config := kit.StoreConfig("state.db")
	config.Schema = schema
	file, _, err := store.Open(config)
	if err != nil {
		return nil, err
	}
	journal := store.NewTable(file, "intents", store.JSON[intent]())
	in, err := newInputs(kit, deps.FileLabel, deps.Clock.Now)
	if err != nil {
		return nil, err
	}
	made, err := newPlugins(kit, cfg.RootDir, deps.Host, file, in.now, metrics.called)
	if err != nil {
		return nil, err
	}
	node := &nodeItem{volumes: service.Owner(kit, house.VolumeNode), drivers: made.drivers, plugins: made.registry, pods: pods, log: kit.Log}
	left := &reaper{node: node, all: map[string]*reaping{}}
	limits := newLimits(made.drivers, in, deps.Clock, kit.Log)
	meter := &gauges{in: in, host: deps.Host, plugins: made.registry, pods: pods, metrics: metrics}
	s := &Service{
		kit: kit, clock: deps.Clock, file: file, children: children, pods: pods,
		maker: &maker{in: in, host: deps.Host, plugins: made.registry, pods: pods, node: node, left: left, journal: journal, metrics: metrics, limits: limits, log: kit.Log},
		stats: newKeeper(meter.measure, in.now, meter.measured, kit.Log),
		turns: keyed.NewLimit(1),
	}
	kit.Metrics.MustRegister(claims{func(ctx context.Context) []*volumev1.VolumeStats { return s.volumeStats(ctx, time.Time{}) }}, census{pods}, metrics.lost(children))
	in.objects.Watch(pods.objectsChanged)
	in.secrets.Watch(pods.objectsChanged)
	in.node.Watch(func(keys []string) {
		if len(keys) > 0 {
			pods.objectsChanged([]string{allocatableKey})
		}
	})
	if err := s.maker.restore(); err != nil {
		return nil, err
	}
	volumev1.RegisterVolumeServiceServer(kit.Server, s)
	kit.Go("plugins", made.run(node, left))
	kit.Go("limits", limits.run)
	kit.Go("volumes", s.loop)
	kit.Go("health", s.health)
	return s, nil
}
