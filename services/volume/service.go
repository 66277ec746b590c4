package volume

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/keymutex"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/netdisk"
	"github.com/sextant-node/sextant/services/volume/internal/podcert"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// schema of the state file.
const schema = 1

// Config is what volume is told at start.
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

// Host makes and removes volumes on disk; *setup.Host is the real one.
type Host interface {
	EmptyDir(p *v1.Pod, v *v1.Volume, memory int64) (string, error)
	HostPath(v *v1.Volume) (string, error)
	Local(uid types.UID, l setup.Local) (string, error)
	Files(p *v1.Pod, v *v1.Volume, set *content.Set, now time.Time) (string, error)
	Point(uid types.UID, plugin, volume, name string) (path string, there bool, err error)
	Subpath(uid types.UID, volume, container string, index int, volumePath, subPath string) (string, error)
	Standing(p *v1.Pod, v *v1.Volume) (path string, ok bool)
	// Release lets go of the parts of volumes that Subpath bound.
	Release(uid types.UID) error
	// Give gives a volume to a group; with onMismatch only if its root is not the
	// group's. It may hang with the file system the path is on.
	Give(path string, group int, onMismatch bool) error
	Remove(uid types.UID) error
	Found() (map[types.UID][]string, error)
	// Measure may hang with the file system the path is on.
	Measure(path string) (*measure.Reading, error)
}

// Deps are what volume runs on.
type Deps struct {
	Kit *service.Kit
	// Host defaults to the real one below Config.RootDir.
	Host Host
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// FileLabel is the SELinux label of files for processes with these options, empty
	// for none; this node's policy when nil.
	FileLabel func(*v1.SELinuxOptions) (string, error)
}

// intent is what the journal keeps of a pod: it is written before anything is
// done.
type intent struct {
	// Pod as Kubernetes protobuf; empty for one that was found on disk.
	Pod         []byte `json:"pod,omitempty"`
	Withdrawing bool   `json:"withdrawing,omitempty"`
}

// Service is volume.
type Service struct {
	volumev1.UnimplementedVolumeServiceServer
	kit     *service.Kit
	host    Host
	now     func() time.Time
	file    *store.Store
	journal *store.Table[intent]
	metrics *metrics

	fileLabel func(*v1.SELinuxOptions) (string, error)

	owned  *feed.Owner[*volumev1.PodVolumes]
	events *feed.Events

	objects *feed.Mirror[*configv1.Object]
	secrets *feed.Mirror[*configv1.Object]
	node    *feed.Mirror[*resourcev1.NodeResources]
	kubelet *feed.Mirror[*kubeconf.Config]
	tokens  configv1.ConfigServiceClient
	tools   supervisorv1.ToolsServiceClient

	volumes *feed.Owner[*volumev1.VolumeNode]
	drivers *csi.Drivers
	csi     *csi.Manager
	disks   *netdisk.Manager

	certificates *podcert.Keeper

	stats    *keeper
	children *child.Pool

	turns  keymutex.KeyMutex // one command at a time for a pod
	passes sync.WaitGroup    // begun under mu
	wake   chan struct{}     // capacity 1
	// configured: the configuration is another. Capacity 1.
	configured chan struct{}

	nodeTurn sync.Mutex // who publishes the node's item

	mu     sync.Mutex
	pods   map[types.UID]*podWork
	ending bool // no more passes begin
}

// New wires volume into its process; everything runs in the kit.
func New(cfg Config, deps Deps) (*Service, error) {
	kit := deps.Kit
	s := &Service{
		kit: kit, host: deps.Host, now: deps.Now, fileLabel: deps.FileLabel, metrics: newMetrics(kit.Metrics),
		owned:  service.Owner[*volumev1.PodVolumes](kit, house.VolumePods),
		events: kit.Events(),
		turns:  keymutex.NewHashed(64),
		wake:   make(chan struct{}, 1), configured: make(chan struct{}, 1),
		pods: map[types.UID]*podWork{},
	}
	s.children = child.NewPool(child.Config{Command: cfg.Child, Freed: s.freed, Log: kit.Log})
	if s.host == nil {
		s.host = setup.Apart{Host: setup.NewHost(cfg.RootDir), Children: s.children, Limit: cfg.StepLimit}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.fileLabel == nil {
		s.fileLabel = hostLabel
	}
	s.certificates = podcert.New(s.now)
	file := kit.StoreConfig("state.db")
	file.Schema = schema
	var err error
	// Without an intent, volumes found on disk are kept until their pods are declared
	// or withdrawn.
	if s.file, _, err = store.Open(file); err != nil {
		return nil, err
	}
	if s.journal, err = store.NewTable(s.file, "intents", store.JSON[intent]()); err != nil {
		return nil, err
	}
	config, err := kit.Dial(house.Config)
	if err != nil {
		return nil, err
	}
	s.tokens = configv1.NewConfigServiceClient(config)
	if s.tools, err = newTools(kit); err != nil {
		return nil, err
	}
	if s.objects, err = service.Mirror(kit, house.ConfigObjects, feed.Message[*configv1.Object]); err != nil {
		return nil, err
	}
	if s.secrets, err = service.Mirror(kit, house.ConfigSecrets, feed.Message[*configv1.Object]); err != nil {
		return nil, err
	}
	if s.node, err = service.Mirror(kit, house.ResourceNode, feed.Message[*resourcev1.NodeResources]); err != nil {
		return nil, err
	}
	if s.kubelet, err = service.Mirror(kit, house.ConfigKubelet, kubeconf.Decode); err != nil {
		return nil, err
	}
	s.stats = newKeeper(s.measure, s.now, s.measured, kit.Log)
	kit.Metrics.MustRegister(claims{s}, census{s}, s.metrics.lost(s.children))
	s.objects.Watch(s.objectsChanged)
	s.secrets.Watch(s.objectsChanged)
	s.node.Watch(s.nodeChanged)
	s.kubelet.Watch(func([]string) {
		select {
		case s.configured <- struct{}{}:
		default:
		}
	})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	if s.disks, err = netdisk.New(s.file, s.tools, strings.TrimSpace(string(boot))); err != nil {
		return nil, fmt.Errorf("disks: %w", err)
	}
	if err := s.newCSI(cfg.RootDir, strings.TrimSpace(string(boot))); err != nil {
		return nil, err
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	volumev1.RegisterVolumeServiceServer(kit.Server, s)
	kit.Go("volumes", s.loop)
	kit.Go("health", s.health)
	return s, nil
}
