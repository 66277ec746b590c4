// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/cpumanager"
	cpustate "github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/services/resource/internal/layout"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/memorymanager"
	memorystate "github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/pinning"
)

// node is what is known of the node: its machine, configuration, object and conditions.
type node struct {
	rootDir string
	host    machine.Host
	facts   *machine.Facts
	machine *layout.Layout // nil with the error why it is not known
	unknown error
	log     *slog.Logger
	kubelet *feed.Replica[*kubeletconfig.Config]
	runtime *feed.Replica[*plegv1.RuntimeState]
	objects *feed.Replica[object]
	config  configv1.ConfigServiceClient
	feed    *feed.Owner[*resourcev1.NodeResources]
	devices *devices.Manager

	mu         sync.Mutex
	settings   *settings // nil until config and pleg have answered
	waiting    string    // for what, meanwhile
	conditions map[v1.NodeConditionType]eviction.Condition
}

func newNode(rootDir string, host machine.Host, plugins *devices.Manager, kit *service.Kit) (*node, error) {
	n := &node{rootDir: rootDir, devices: plugins, host: host, log: kit.Log, feed: service.Owner(kit, house.ResourceNode), waiting: "config.kubelet"}
	var err error
	if n.facts, err = host.Read(); err != nil {
		return nil, err
	}
	n.machine, n.unknown = host.Layout() // an error matters only where containers are pinned
	service.Replicate(kit, &err, house.ConfigKubelet, kubeletconfig.Decode, &n.kubelet)
	service.Replicate(kit, &err, house.PlegRuntime, feed.Whole[*plegv1.RuntimeState], &n.runtime)
	service.Replicate(kit, &err, house.ConfigObjects, decodeObject, &n.objects, service.Unhurried)
	if err != nil {
		return nil, err
	}
	kit.Configured(func() uint64 {
		c, _ := n.kubelet.Get("kubelet")
		return kubeletconfig.GenerationOf(c)
	})
	conn, err := kit.Dial(house.Config)
	if err != nil {
		return nil, err
	}
	n.config = configv1.NewConfigServiceClient(conn)
	return n, nil
}

// now is the settings in force, or nil and what they wait for.
func (n *node) now() (now *settings, waiting string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settings, n.waiting
}

// use puts settings in force.
func (n *node) use(now *settings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.protects() && (n.settings == nil || !n.settings.protects()) && before59(n.facts.Kernel) {
		n.log.Warn("MemoryQoS: memory.high may hang processes on kernels before 5.9", "kernel", n.facts.Kernel)
	}
	n.settings = now
}

// before59 reports whether a kernel reclaims memory without end where memory.high throttles
// (mended in Linux 5.9).
func before59(kernel string) bool {
	v, err := version.ParseGeneric(kernel)
	return err == nil && !v.AtLeast(version.MustParseGeneric("5.9"))
}

// waits notes what settings wait for; nil for nothing.
func (n *node) waits(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting = ""; err != nil {
		n.waiting = err.Error()
	}
}

// press notes the node's conditions.
func (n *node) press(conditions map[v1.NodeConditionType]eviction.Condition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conditions = conditions
}

// condition is one of the node's.
func (n *node) condition(kind v1.NodeConditionType) eviction.Condition {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conditions[kind]
}

// read makes settings of the configuration, the runtime's answer and the machine.
func (n *node) read() (*settings, error) {
	conf, ok := n.kubelet.Get("kubelet")
	if !ok {
		return nil, errors.New("config.kubelet")
	}
	driver, err := n.driver(conf)
	if err != nil {
		return nil, err
	}
	disk, err := machine.DiskOf(n.rootDir)
	if err != nil {
		return nil, err
	}
	now, err := settingsOf(conf, driver, n.facts, disk)
	if err != nil {
		return nil, err
	}
	now.pins, err = n.pins(conf, now.reserved)
	return now, err
}

// found is what pods had with the agent before, by the kubelet's files.
func (n *node) found() (had pinning.Found) {
	n.foundIn(cpustate.Name, func(data []byte) (err error) {
		had.CPUs, err = cpumanager.ReadState(data)
		return err
	})
	n.foundIn(memorystate.Name, func(data []byte) (err error) {
		had.Memory, err = memorymanager.ReadState(data)
		return err
	})
	return had
}

// foundIn reads a file of the kubelet's; one that cannot be read is set aside.
func (n *node) foundIn(name string, read func([]byte) error) {
	path := filepath.Join(n.rootDir, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = read(data)
	}
	if err != nil {
		n.log.Error("running pods do not keep what a kubelet gave them", "file", name, "error", err.Error())
		if _, err := file.Aside(path, time.Now()); err != nil {
			n.log.Error("state file not set aside", "file", name, "error", err.Error())
		}
	}
}

// pins are the policies by which containers are pinned.
func (n *node) pins(conf *kubeletconfig.Config, reserved v1.ResourceList) (*pinning.Policies, error) {
	if former, _ := n.now(); former != nil && former.conf == conf {
		return former.pins, nil
	}
	if !pinning.Pins(conf) {
		return &pinning.Policies{}, nil
	}
	if n.unknown != nil {
		return nil, fmt.Errorf("cpuManagerPolicy, memoryManagerPolicy, topologyManagerPolicy: the machine's CPUs are not known: %w", n.unknown)
	}
	return pinning.New(conf, n.machine, reserved, n.found())
}

// driver is the runtime's where it says (KEP-4033), else the configuration's.
func (n *node) driver(conf *kubeletconfig.Config) (pod.CgroupDriver, error) {
	state, ok := n.runtime.Get("runtime")
	if !ok || state.GetSince() == nil || state.GetStatus() == nil {
		return "", fmt.Errorf("pleg.runtime: the runtime has not answered yet")
	}
	switch state.GetCgroupDriver() {
	case string(pod.Systemd):
		return pod.Systemd, nil
	case string(pod.Cgroupfs):
		return pod.Cgroupfs, nil
	}
	if conf.Kubelet.CgroupDriver == string(pod.Systemd) {
		return pod.Systemd, nil
	}
	return pod.Cgroupfs, nil
}

// object is the node's own object in the API, or nil.
func (n *node) object(name string) *v1.Node {
	o, _ := n.objects.Get("Node//" + name)
	return o.node
}

// claim is a resource claim as the API server has it.
func (n *node) claim(namespace, name string) dra.Object {
	o, _ := n.objects.Get("ResourceClaim/" + namespace + "/" + name)
	return o.claim
}

// nodeTimeout is for the API server to tell the node's object.
const nodeTimeout = 5 * time.Second

// readObject is the node's own object as the API server has it now; object may be older.
func (n *node) readObject(ctx context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	resp, err := n.config.Node(ctx, &configv1.NodeRequest{})
	if err != nil {
		return nil, err
	}
	object := &v1.Node{}
	if err := object.Unmarshal(resp.GetNode()); err != nil {
		return nil, fmt.Errorf("the Node object: %w", err)
	}
	return object, nil
}

// judged is the node a pod is judged against, or the answer while it is not known. object is
// the Node as it was read for this pod, nil for the one that is known.
func (n *node) judged(p *v1.Pod, now *settings, object *v1.Node) (admit.Node, *resourcev1.AdmitResponse) {
	node := admit.Node{
		Name: now.conf.Node.Name, Allocatable: maps.Clone(now.allocatable), Sysctls: now.sysctls,
		Labels: map[string]string{
			v1.LabelHostname: now.conf.Node.Name, v1.LabelOSStable: n.facts.OperatingSystem, v1.LabelArchStable: n.facts.Architecture,
		},
		StrictGroups: n.strictGroups(), AppArmor: n.facts.AppArmor, Features: now.conf.DeclaredFeatures(),
		MemoryPressure: n.condition(v1.NodeMemoryPressure).Under,
		DiskPressure:   n.condition(v1.NodeDiskPressure).Under,
		PIDPressure:    n.condition(v1.NodePIDPressure).Under,
	}
	n.extend(v1.ResourceList{}, node.Allocatable, true)
	maps.Copy(node.Labels, now.conf.Node.Labels)
	if object == nil {
		object = n.object(now.conf.Node.Name)
	}
	if object != nil {
		node.Labels, node.Taints = object.Labels, object.Spec.Taints
	} else if !now.conf.Standalone() && !pod.IsStatic(p) {
		return node, notYet("", "the Node object is not known yet")
	}
	return node, nil
}

func notYet(reason, message string) *resourcev1.AdmitResponse {
	return &resourcev1.AdmitResponse{Decision: resourcev1.Decision_DECISION_NOT_YET, Reason: reason, Message: message}
}

// declared are the features that the node declares; nil for none, or while it is not known.
func (n *node) declared() []string {
	if now, _ := n.now(); now != nil {
		return now.conf.DeclaredFeatures()
	}
	return nil
}

// strictGroups reports whether the runtime knows supplementalGroupsPolicy Strict.
func (n *node) strictGroups() bool {
	state, ok := n.runtime.Get("runtime")
	if !ok {
		return false
	}
	answer := &runtimeapi.StatusResponse{}
	if err := proto.Unmarshal(state.GetStatus(), answer); err != nil {
		n.log.Error("runtime status", "error", err.Error())
		return false
	}
	return answer.GetFeatures().GetSupplementalGroupsPolicy()
}

// publish writes the node's item.
func (n *node) publish(ctx context.Context, now *settings, reclaim *resourcev1.Reclaim, unallocated []string, drivers *resourcev1.ClaimDrivers) error {
	capacity, allocatable := maps.Clone(now.capacity), maps.Clone(now.allocatable)
	n.extend(capacity, allocatable, false)
	_, err := n.feed.Set(ctx, "node", &resourcev1.NodeResources{
		Capacity: texts(capacity), Allocatable: texts(allocatable), DevicePlugins: n.plugins(), ClaimDrivers: drivers,
		MachineId: n.facts.MachineID, SystemUuid: n.facts.SystemUUID, BootId: n.facts.BootID,
		KernelVersion: n.facts.Kernel, OsImage: n.facts.OSImage,
		OperatingSystem: n.facts.OperatingSystem, Architecture: n.facts.Architecture,
		CgroupVersion: n.facts.CgroupVersion, CgroupDriver: string(now.driver), SwapCapacityBytes: n.facts.SwapBytes,
		NodeObjectKnown: n.object(now.conf.Node.Name) != nil, Reclaim: reclaim, UnallocatedCgroups: unallocated,
		Memory: n.pressure(v1.NodeMemoryPressure), Disk: n.pressure(v1.NodeDiskPressure), Pid: n.pressure(v1.NodePIDPressure),
	})
	if err == nil {
		n.feed.SetComplete(ctx, true)
	}
	return err
}

func (n *node) pressure(kind v1.NodeConditionType) *resourcev1.Pressure {
	state := n.condition(kind)
	return &resourcev1.Pressure{UnderPressure: state.Under, Since: timestamppb.New(state.Since), Message: state.Message}
}

// extend adds the resources of plugins to what the node has. judging leaves out those that
// pods wait for: a pod is not refused for want of them.
func (n *node) extend(capacity, allocatable v1.ResourceList, judging bool) {
	for name, r := range n.devices.Inventory() {
		if judging && (r.State == devices.Away || r.State == devices.Hung) {
			continue
		}
		all, healthy := r.Counts()
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(all), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
}

// plugins are the plugins as resource.node has them.
func (n *node) plugins() (all []*resourcev1.DevicePlugin) {
	for name, r := range n.devices.Inventory() {
		all = append(all, &resourcev1.DevicePlugin{Resource: name, State: string(r.State), Since: timestamppb.New(r.Since), Message: r.Why})
	}
	slices.SortFunc(all, func(a, b *resourcev1.DevicePlugin) int { return strings.Compare(a.GetResource(), b.GetResource()) })
	return all
}

func texts(list v1.ResourceList) map[string]string {
	all := make(map[string]string, len(list))
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}
