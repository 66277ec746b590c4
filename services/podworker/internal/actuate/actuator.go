// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/credprovider"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullrecord"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/userns"
	"github.com/sextant-node/sextant/services/podworker/internal/pulls"
	"github.com/sextant-node/sextant/services/podworker/internal/queue"
)

// Config is where things lie.
type Config struct {
	// RootDir is the state directory; empty for the kubelet's.
	RootDir string
	// PodLogsDir and LegacyLogsDir; empty for the kubelet's.
	PodLogsDir, LegacyLogsDir string
}

func (c Config) rootDir() string {
	return cmp.Or(c.RootDir, pod.DefaultRootDir)
}

// Deps is what an Actuator works with.
type Deps struct {
	Runtime       runtimeapi.RuntimeServiceClient
	Images        runtimeapi.ImageServiceClient
	Lookups       Lookups
	Configuration Configuration
	Events        Recorder
	// Subpaths may be nil: then a container with a subPath cannot be made.
	Subpaths Subpaths
	// Devices may be nil where no container has devices of plugins.
	Devices Devices
	// Accounts may be nil: then credential providers get no service account tokens.
	Accounts credprovider.Accounts
	// Pulls may be nil.
	Pulls *pulls.Pulls
	// Pulled is called after each pull; may be nil.
	Pulled func()
	Clock  clock.WithDelayedExecution
	Log    *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Actuator acts on the runtime and on a pod's files: it makes, resizes and removes
// containers, and stands on layers of which each uses only those it embeds. Safe for
// concurrent use.
type Actuator struct{ sandboxes }

// core is what every layer works with.
type core struct {
	cfg     Config
	layout  pod.Layout
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	host    *host
}

// files makes and removes a pod's directories and links.
type files struct{ core }

// images makes images present.
type images struct {
	files
	pulls   *queue.Queue
	limiter pullLimiter
	plugins *credprovider.Plugins
	records *pullrecord.Store

	noRecords  sync.Once
	imageUsers sync.Map // pod.ImageUser by image id
}

// stopper runs hooks and stops containers.
type stopper struct {
	images
	mu    sync.Mutex
	stops map[string]*stop // by container ID
}

// requests makes the runtime's configurations of sandboxes and containers.
type requests struct {
	stopper
	users *userns.Manager
}

// sandboxes makes, stops and removes sandboxes.
type sandboxes struct{ requests }

// New makes an Actuator. It does nothing before it is called.
func New(cfg Config, deps Deps) *Actuator {
	cfg.PodLogsDir = cmp.Or(cfg.PodLogsDir, pod.DefaultPodLogsDir)
	cfg.LegacyLogsDir = cmp.Or(cfg.LegacyLogsDir, pod.LegacyContainerLogs)
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	records := pullrecord.NewStore(filepath.Join(cfg.rootDir(), "image_manager"))
	plugins := credprovider.New(credprovider.Deps{Accounts: deps.Accounts, Clock: deps.Clock, Log: deps.Log, Metrics: deps.Metrics})
	a := &Actuator{}
	a.core = core{cfg: cfg, layout: pod.Layout{Root: cfg.RootDir}, deps: deps, log: deps.Log, metrics: newMetrics(deps.Metrics, records), host: newHost()}
	a.pulls, a.plugins, a.records = queue.New(deps.Clock), plugins, records
	a.users, a.stops = userns.New(a.layout, sandboxUsers(deps.Runtime), deps.Log), map[string]*stop{}
	return a
}

var errNoConfig = errors.New("the kubelet configuration is not known yet")

func (a *core) config() (*kubeletconfig.Config, error) {
	if c := a.deps.Configuration.Config(); c != nil {
		return c, nil
	}
	return nil, errNoConfig
}

// securityOptions are the node's part of a pod's security.
func (a *requests) securityOptions(ctx context.Context, cfg *kubeletconfig.Config, spec SandboxSpec) (pod.SecurityOptions, error) {
	o := pod.SecurityOptions{
		SeccompDefault:   ptr.Deref(cfg.Kubelet.SeccompDefault, false),
		SeccompRoot:      a.layout.Seccomp(),
		ExtraGroups:      spec.ExtraGroups,
		ExtraMaskedPaths: a.host.thermalThrottle(),
	}
	if ptr.Deref(spec.Pod.Spec.HostUsers, true) {
		return o, nil
	}
	if handlers := a.deps.Lookups.Node().Handlers; !handlers[spec.RuntimeHandler].UserNamespaces {
		return o, fmt.Errorf("RuntimeClass handler %q does not support user namespaces", spec.RuntimeHandler)
	}
	idsPerPod := int64(65536)
	if u := cfg.Kubelet.UserNamespaces; u != nil {
		idsPerPod = ptr.Deref(u.IDsPerPod, idsPerPod)
	}
	var err error
	o.UserNamespace, err = a.users.Get(ctx, spec.Pod.UID, uint32(idsPerPod))
	return o, err
}

// resourceOptions are the node's part of a container's cgroup values.
func (a *requests) resourceOptions(cfg *kubeletconfig.Config) pod.ResourceOptions {
	node := a.deps.Lookups.Node()
	o := pod.ResourceOptions{
		MemoryCapacity: node.MemoryCapacity, SwapCapacity: node.SwapCapacity,
		CPUQuota:             ptr.Deref(cfg.Kubelet.CPUCFSQuota, true),
		CgroupV2:             node.CgroupVersion == 2,
		SingleProcessOOMKill: ptr.Deref(cfg.Kubelet.SingleProcessOOMKill, node.CgroupVersion != 2),
		Swap:                 pod.SwapMode(cfg.Kubelet.MemorySwap.SwapBehavior),
		SwapController:       a.host.swapController(node.CgroupVersion == 2),
		HugePageSizes:        a.host.hugePageSizes(),
	}
	if p := cfg.Kubelet.CPUCFSQuotaPeriod; p != nil {
		o.QuotaPeriod = p.Duration
	}
	return o
}

// event emits an Event about a pod or, with a name, about one of its containers. A
// warning reports something that failed: what was cancelled here has not.
func (a *core) event(ctx context.Context, p *v1.Pod, container, kind, reason, message string) {
	if kind == v1.EventTypeWarning && ctx.Err() != nil {
		return
	}
	if err := a.deps.Events.Emit(ctx, newEvent(p, container, kind, reason, message, a.deps.Clock.Now())); err != nil {
		a.log.WarnContext(ctx, "event lost", "reason", reason, "pod", pod.FullName(p), "error", err.Error())
	}
}
