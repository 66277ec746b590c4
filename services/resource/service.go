package resource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/keymutex"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/store"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/pressure"
)

// schema of the checkpoint.
const schema = 1

// Config is what resource is told at start.
type Config struct {
	// RootDir is the kubelet's root directory: its disk is the node's.
	RootDir string
}

// Cgroups makes and removes cgroups; cgroup.Tree is the real one.
type Cgroups interface {
	Ensure(name pod.CgroupName, values cgroup.Values) error
	Remove(name pod.CgroupName) error
}

// Deps are what resource runs on.
type Deps struct {
	Kit *service.Kit
	// Machine defaults to this one.
	Machine machine.Host
	// Cgroups makes a tree for a driver; the real one when nil.
	Cgroups func(pod.CgroupDriver) Cgroups
	// Gauge is where cgroups and processes are read; this machine's by default,
	// or Machine's.
	Gauge gauge.Host
	// Images is the CRI's image service; nil dials podworker's broker.
	Images grpc.ClientConnInterface
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// allocation is what the checkpoint keeps of a pod.
type allocation struct {
	// Pod as Kubernetes protobuf.
	Pod []byte `json:"pod"`
	// Cgroup is the pod's, part by part from the root.
	Cgroup pod.CgroupName   `json:"cgroup"`
	Driver pod.CgroupDriver `json:"driver"`
	// Releasing: the pod is to lose what it holds.
	Releasing bool `json:"releasing,omitempty"`
	resizing
}

// held is an allocation in memory. But for stored, which belongs to the pod's
// turn, it is guarded by Service.mu and written in the pod's turn.
type held struct {
	allocation
	pod    *v1.Pod
	stored bool   // the checkpoint has it
	err    string // what holds the release up
	// wish is the pod with what it asks for in vain, so far; blocked is why its
	// cgroup has no room for its allocation.
	wish    *v1.Pod
	blocked string
	// burstableMilli is the CPU a Burstable pod asks for, 0 for others.
	burstableMilli int64
}

func newHeld(a allocation, p *v1.Pod) *held {
	return &held{allocation: a, pod: p, burstableMilli: burstableMilli(p)}
}

func burstableMilli(p *v1.Pod) int64 {
	if pod.QOS(p) != v1.PodQOSBurstable {
		return 0
	}
	requests := pod.Requests(p)
	return requests.Cpu().MilliValue()
}

// settings is what a configuration and the machine come to.
type settings struct {
	conf                  *kubeconf.Config
	driver                pod.CgroupDriver
	root                  pod.CgroupName
	capacity, allocatable v1.ResourceList
	sysctls               *pod.SysctlAllowlist
}

// Service is resource.
type Service struct {
	resourcev1.UnimplementedResourceServiceServer
	cfg     Config
	kit     *service.Kit
	host    machine.Host
	facts   *machine.Facts
	tree    func(pod.CgroupDriver) Cgroups
	now     func() time.Time
	file    *store.Store
	table   *store.Table[allocation]
	metrics *metrics
	gauges  *gauges
	images  runtimeapi.ImageServiceClient

	pods   *feed.Owner[*resourcev1.PodAllocation]
	node   *feed.Owner[*resourcev1.NodeResources]
	events *feed.Events

	kubelet *feed.Mirror[*kubeconf.Config]
	runtime *feed.Mirror[*plegv1.RuntimeState]
	nodes   *feed.Mirror[*v1.Node]

	wake  chan struct{}     // capacity 1
	turns keymutex.KeyMutex // one command at a time for a pod
	// burstable orders the writers of that class's shares.
	burstable sync.Mutex
	// resizes orders those who judge them.
	resizes sync.Mutex

	mu       sync.Mutex
	settings *settings // nil until config and pleg have spoken
	waiting  string    // for what, meanwhile
	held     map[string]*held
	// rejudgeAt is when resizes that wait are judged again; freed is why earlier.
	rejudgeAt time.Time
	freed     string
	pressure  map[pressure.Condition]pressure.State
}

// New wires resource into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{
		cfg: cfg, kit: kit, host: deps.Machine, tree: deps.Cgroups, now: deps.Now, metrics: newMetrics(kit.Metrics),
		pods:    service.Owner[*resourcev1.PodAllocation](kit, house.ResourcePods),
		node:    service.Owner[*resourcev1.NodeResources](kit, house.ResourceNode),
		events:  kit.Events(),
		wake:    make(chan struct{}, 1),
		turns:   keymutex.NewHashed(64),
		waiting: "config.kubelet",
		held:    map[string]*held{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	tree := s.tree
	if tree == nil {
		tree = func(d pod.CgroupDriver) Cgroups { return cgroup.Tree{Driver: d} }
	}
	have := &known{path: map[string]bool{}}
	s.tree = func(d pod.CgroupDriver) Cgroups { return timed{tree(d), d, s.metrics, s.now, have} }
	var err error
	if s.facts, err = s.host.Read(); err != nil {
		return nil, err
	}
	if deps.Gauge == (gauge.Host{}) {
		deps.Gauge = gauge.Host{Root: s.host.Root, Version: s.facts.CgroupVersion}
	}
	s.gauges = newGauges(deps.Gauge)
	if deps.Images == nil {
		if deps.Images, err = rpc.Dial(rpc.ClientConfig{Socket: kit.Paths.Broker()}); err != nil {
			return nil, fmt.Errorf("dial broker: %w", err)
		}
	}
	s.images = runtimeapi.NewImageServiceClient(deps.Images)
	kit.Metrics.MustRegister(logSizes{s})
	kit.Metrics.MustRegister(resizeCensus{s})
	s.rejudgeAt = s.now().Add(firstRejudge)
	s.metrics.cgroupVersion.Set(float64(s.facts.CgroupVersion))
	if err := s.restore(); err != nil {
		return nil, err
	}
	if s.kubelet, err = service.Mirror(kit, house.ConfigKubelet, kubeconf.Decode); err != nil {
		return nil, err
	}
	if s.runtime, err = service.Mirror(kit, house.PlegRuntime, feed.Message[*plegv1.RuntimeState]); err != nil {
		return nil, err
	}
	if s.nodes, err = service.Mirror(kit, house.ConfigObjects, decodeNode, service.Unhurried); err != nil {
		return nil, err
	}
	s.kubelet.Watch(func([]string) { s.look() })
	s.runtime.Watch(func([]string) { s.look() })
	s.nodes.Watch(s.objectsChanged)
	resourcev1.RegisterResourceServiceServer(kit.Server, s)
	kit.Go("resources", s.loop)
	kit.Waiting("config.kubelet")
	return s, nil
}

func (s *Service) restore() error {
	file := s.kit.StoreConfig("state.db")
	file.Schema = schema
	var err error
	// What is lost with a damaged file podworker asks for again.
	if s.file, _, err = store.Open(file); err != nil {
		return err
	}
	if s.table, err = store.NewTable(s.file, "allocations", store.JSON[allocation]()); err != nil {
		return err
	}
	all, err := s.table.All()
	if err != nil {
		return err
	}
	for uid, a := range all {
		p := &v1.Pod{}
		if err := p.Unmarshal(a.Pod); err != nil {
			s.kit.Log.Error("allocation skipped", "uid", uid, "error", err.Error())
			continue
		}
		h := newHeld(a, p)
		h.stored = true
		if h.Asked == "" { // kept by a version that knew no resize
			h.Asked = pod.SizesID(p)
		}
		if len(a.Wish) > 0 {
			sizes := &v1.PodSpec{}
			if err := sizes.Unmarshal(a.Wish); err != nil {
				s.kit.Log.Error("resize forgotten", "uid", uid, "error", err.Error())
				h.Asked, h.Wish = "", nil
			} else {
				h.wish = pod.WithSizes(p, sizes)
			}
		}
		s.held[uid] = h
	}
	ctx := context.Background()
	for uid, h := range s.held {
		if err := s.publish(ctx, uid, h); err != nil {
			return fmt.Errorf("publish %s: %w", uid, err)
		}
	}
	s.pods.SetComplete(ctx, true)
	return nil
}

func (s *Service) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// uids of all pods that hold something.
func (s *Service) uids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.held))
}

// publish writes a pod's item; callers have the pod's turn or are alone.
func (s *Service) publish(ctx context.Context, uid string, h *held) error {
	item := &resourcev1.PodAllocation{
		Uid: uid, Namespace: h.pod.Namespace, Name: h.pod.Name,
		CgroupParent: h.parent(), Releasing: h.Releasing, Error: h.err,
	}
	if err := h.resizeItem(item); err != nil {
		return err
	}
	_, err := s.pods.Set(ctx, uid, item)
	return err
}

// parent is the pod's cgroup as the CRI's cgroup_parent takes it.
func (h *held) parent() string {
	if len(h.Cgroup) == 0 {
		return ""
	}
	return h.Cgroup.Parent(h.Driver)
}
