// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/resource/internal/allocate"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// Config is what resource is configured with at start.
type Config struct {
	// RootDir is the kubelet's root directory: its disk is the node's.
	RootDir string
}

// Deps are what resource runs on.
type Deps struct {
	Kit *service.Kit
	// Machine defaults to this one.
	Machine machine.Host
	// Cgroups makes a tree for a driver; the real one when nil.
	Cgroups func(pod.CgroupDriver) Cgroups
	// Ender kills what cgroups of version 1 hold; the supervisor when nil.
	Ender Ender
	// Kills of the kernel's; the supervisor's when nil.
	Kills KillWatcher
	// Gauge is where cgroups and processes are read; this machine's by default,
	// or Machine's.
	Gauge gauge.Host
	// Images is the CRI: its image service, and what containers' layers take; nil dials
	// podworker's broker.
	Images grpc.ClientConnInterface
	// Volumes measures volumes; nil dials volume.
	Volumes grpc.ClientConnInterface
	// Allocators choose what pods get at their admission (package allocate), in the
	// kubelet's order: devices, CPUs, memory. None when nil.
	Allocators []allocate.Allocator
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// fill sets what callers left out.
func (d *Deps) fill() error {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Cgroups == nil {
		d.Cgroups = func(driver pod.CgroupDriver) Cgroups { return cgroup.Tree{Driver: driver} }
	}
	root, err := dialSupervisor(d.Kit)
	if err != nil {
		return err
	}
	if d.Ender == nil {
		d.Ender = root
	}
	if d.Kills == nil {
		d.Kills = root
	}
	if d.Images == nil {
		if d.Images, err = rpc.Dial(rpc.ClientConfig{Socket: d.Kit.Paths.Broker()}); err != nil {
			return fmt.Errorf("dial broker: %w", err)
		}
	}
	if d.Volumes == nil {
		d.Volumes, err = d.Kit.Dial(house.Volume)
	}
	return err
}

// Service is resource.
type Service struct {
	resourcev1.UnimplementedResourceServiceServer
	node      *node
	ledger    *ledger
	readings  *readings
	resizer   *resizer
	releaser  *releaser
	devices   *podDevices
	admission *admission
}

// New makes the parts, each of those that were made before it; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := deps.fill(); err != nil {
		return nil, err
	}
	kit, now := deps.Kit, deps.Now
	wake, rewrite := signal.New(), signal.New()
	events := &events{feed: kit.Events(), now: now, log: kit.Log}
	metrics := newMetrics(kit.Metrics)
	plugins := devices.New(devices.Config{
		Dir: pod.Layout{Root: cfg.RootDir}.DevicePlugins(), Log: kit.Log, Now: now, Patience: devicePatience, Changed: wake.Send,
		Registered: func(name string) { metrics.deviceRegistrations.WithLabelValues(name).Inc() },
		Allocated: func(name string, took time.Duration) {
			metrics.deviceAllocations.WithLabelValues(name).Observe(took.Seconds())
		},
	})
	node, err := newNode(cfg.RootDir, deps.Machine, plugins, kit)
	if err != nil {
		return nil, err
	}
	metrics.cgroupVersion.Set(float64(node.facts.CgroupVersion))
	ledger, err := openLedger(kit, plugins, now())
	if err != nil {
		return nil, err
	}
	known := &known{path: map[string]bool{}}
	tree := &tree{
		of:     func(d pod.CgroupDriver) Cgroups { return timed{deps.Cgroups(d), d, metrics, now, known} },
		ledger: ledger, host: deps.Machine, events: events, ender: deps.Ender, wake: wake,
	}
	if deps.Gauge == (gauge.Host{}) {
		deps.Gauge = gauge.Host{Root: deps.Machine.Root, Version: node.facts.CgroupVersion}
	}
	claims, err := newClaims(cfg.RootDir, kit, ledger, tree, node, metrics, wake, now)
	if err != nil {
		return nil, err
	}
	ledger.awaited = newAwaited(claims, tree)
	sizes, err := openSizeFiles(cfg.RootDir, node, ledger)
	if err != nil {
		return nil, err
	}
	readings := newReadings(deps.Gauge, node, ledger, runtimeapi.NewImageServiceClient(deps.Images), now)
	reclaims, err := service.Replica(kit, house.PodWorkerNode, feed.Whole[*podworkerv1.NodeState])
	if err != nil {
		return nil, err
	}
	shortages, err := openShortages(ledger, now())
	if err != nil {
		return nil, err
	}
	hurried := &atomic.Bool{}
	podDevices := newPodDevices(plugins, ledger, tree, node, events, rewrite)
	evictor := &evictor{
		history: shortages.history(now()), shortages: shortages,
		reader: deps.Gauge.NewReader(), ledger: ledger, node: node, readings: readings, events: events, metrics: metrics,
		log: kit.Log, now: now, wake: wake, reclaims: reclaims, hurried: hurried,
		alarm:   &alarm{host: deps.Gauge, log: kit.Log, call: func() { hurried.Store(true); wake.Send() }},
		layers:  &layers{runtime: runtimeapi.NewRuntimeServiceClient(deps.Images), log: kit.Log, now: now},
		volumes: volumev1.NewVolumeServiceClient(deps.Volumes),
	}
	files := newStateFiles(cfg.RootDir, node, ledger, podDevices, rewrite)
	resizer := &resizer{
		ledger: ledger, node: node, tree: tree, events: events, metrics: metrics, devices: podDevices, sizes: sizes, now: now, wake: wake, freed: podsAdded,
	}
	kills, err := newKillReporter(deps.Kills, kit, node, ledger, readings, events)
	if err != nil {
		return nil, err
	}
	releaser := &releaser{ledger: ledger, node: node, tree: tree, claims: claims, resizer: resizer, evictor: evictor, devices: podDevices, sizes: sizes, wake: wake}
	boots := &boots{
		boot: node.facts.BootID, started: now(), ledger: ledger, tree: tree, node: node, evictor: evictor, events: events, metrics: metrics,
	}
	if err := boots.begin(context.Background()); err != nil {
		return nil, err
	}
	loop := &loop{
		kit: kit, wake: wake, node: node, ledger: ledger, tree: tree, claims: claims, devices: podDevices, boots: boots, files: files,
		evictor: evictor, resizer: resizer, releaser: releaser, unallocated: unallocated{tree: tree},
	}
	s := &Service{
		node: node, ledger: ledger, readings: readings, resizer: resizer, releaser: releaser, devices: podDevices,
		admission: &admission{
			ledger: ledger, node: node, tree: tree, claims: claims, evictor: evictor, events: events, metrics: metrics,
			allocators: deps.Allocators, devices: podDevices, identities: kit.Identities, wake: wake,
			pinned: newPinMetrics(kit.Metrics), clock: now,
			files: files, sizes: sizes,
		},
	}
	ledger.each(func(h *held) { evictor.report(context.Background(), h) })
	kit.Metrics.MustRegister(logSizes{readings}, resizeCensus{ledger}, pinCensus{ledger, node}, protectionCensus{ledger, node})
	look := func([]string) { wake.Send() }
	reclaims.Watch(look)
	node.kubelet.Watch(look)
	node.runtime.Watch(look)
	node.objects.Watch(func(keys []string) {
		if concern(keys, "Node/") {
			wake.Send()
		}
	})
	resourcev1.RegisterResourceServiceServer(kit.Server, s)
	kit.Go("resources", loop.run)
	kit.Go("state files", files.run)
	kit.Go("files of resizes", sizes.run)
	kit.Go("oom-kills", kills.run)
	kit.Go("pod resources", podResources{ledger, node, claims}.serve(cfg.RootDir, kit))
	kit.Go("plugins", pluginIntake{dir: pod.Layout{Root: cfg.RootDir}.PluginsRegistry(), claims: claims, devices: podDevices, log: kit.Log}.run)
	kit.Waiting("config.kubelet")
	return s, nil
}
