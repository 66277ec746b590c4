// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/status/internal/gather"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/services/status/internal/plan"
	"github.com/sextant-node/sextant/services/status/internal/report"
)

// inputs are the replicas of what status learns, each item decoded once into what the
// decisions take.
type inputs struct {
	kubelet *feed.Replica[kubelet]
	sources *feed.Replica[*configv1.Source]
	pods    *feed.Replica[*desired]
	// statuses of the API server's pods, as that has them (config.statuses).
	statuses  *feed.Replica[*plan.Object]
	mirrors   *feed.Replica[*v1.Pod]
	nodes     *feed.Replica[*v1.Node]
	workers   *feed.Replica[*gather.Worker]
	images    *feed.Replica[[]nodestatus.Image]
	end       *feed.Replica[*podworkerv1.NodeState]
	records   *feed.Replica[*gather.Record]
	runtime   *feed.Replica[*nodestatus.Runtime]
	verdicts  *feed.Replica[map[string]podstatus.ProbeVerdict]
	resources *feed.Replica[*nodestatus.Resources]
	volumes   *feed.Replica[*volumev1.VolumeNode]
	// allocations are what pods were given (resource.pods).
	allocations *feed.Replica[*allocation]
	// credential is who the node is at the API server.
	credential *feed.Replica[*configv1.Credential]
	events     []*feed.Replica[*eventv1.Event]
}

// credentialKey is the one item of config.credential.
const credentialKey = "node"

// eventFeeds are the feeds of events of the node.
var eventFeeds = []house.FeedOf[*eventv1.Event]{house.ConfigEvents, house.PodWorkerEvents, house.ProberEvents, house.VolumeEvents, house.ResourceEvents}

// kubelet is the configuration with the bytes it came as.
type kubelet struct {
	config *kubeletconfig.Config
	raw    []byte
}

// desired is a pod as config serves it.
type desired struct {
	pod  *v1.Pod
	item *configv1.DesiredPod // without the pods it carries
	spec uint64               // hash of the pod's packed specification
}

func (d *desired) static() bool { return d.item.GetSource() != "api" }

// newInputs makes the replicas through the kit, which runs them. cursor says how far
// a feed of events was recorded by an earlier process.
func newInputs(kit *service.Kit, cursor func(feed string) feed.Revision) (*inputs, error) {
	in := &inputs{}
	var err error
	service.Replicate(kit, &err, house.ConfigKubelet, decodeKubelet, &in.kubelet)
	service.Replicate(kit, &err, house.ConfigCredential, feed.Whole[*configv1.Credential], &in.credential)
	service.Replicate(kit, &err, house.ConfigSources, feed.Whole[*configv1.Source], &in.sources)
	service.Replicate(kit, &err, house.ConfigPods, decodeDesired, &in.pods)
	service.Replicate(kit, &err, house.ConfigStatuses, decodeStatus, &in.statuses)
	service.Replicate(kit, &err, house.ConfigMirrors, decodeMirror, &in.mirrors)
	service.Replicate(kit, &err, house.ConfigObjects, decodeNode, &in.nodes, service.Unhurried)
	service.Replicate(kit, &err, house.PodWorkerPods, in.decodeWorker, &in.workers)
	service.Replicate(kit, &err, house.PodWorkerImages, decodeImages, &in.images)
	service.Replicate(kit, &err, house.PodWorkerNode, feed.Whole[*podworkerv1.NodeState], &in.end)
	service.Replicate(kit, &err, house.PlegPods, decodeRecord, &in.records)
	service.Replicate(kit, &err, house.PlegRuntime, decodeRuntime, &in.runtime)
	service.Replicate(kit, &err, house.ProberVerdicts, decodeVerdicts, &in.verdicts)
	service.Replicate(kit, &err, house.ResourceNode, decodeResources, &in.resources)
	service.Replicate(kit, &err, house.ResourcePods, decodeAllocation, &in.allocations)
	service.Replicate(kit, &err, house.VolumeNode, feed.Whole[*volumev1.VolumeNode], &in.volumes)
	for _, f := range eventFeeds {
		m, err := service.Replica(kit, f, feed.Whole[*eventv1.Event], service.Since(cursor(f.Name)), service.Unhurried)
		if err != nil {
			return nil, err
		}
		in.events = append(in.events, m)
	}
	return in, err
}

// countMirrors is how many mirror pods the API server has.
func (in *inputs) countMirrors() (n float64) {
	for _, m := range in.mirrors.Items() {
		if m != nil {
			n++
		}
	}
	return n
}

func decodeKubelet(_ string, m *configv1.KubeletConfig) (kubelet, error) {
	config, err := kubeletconfig.Decode("", m)
	return kubelet{config, m.GetConfig()}, err
}

func decodePod(data []byte) (*v1.Pod, error) {
	if len(data) == 0 {
		return nil, nil
	}
	p := &v1.Pod{}
	if err := p.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	return p, nil
}

func decodeDesired(_ string, m *configv1.DesiredPod) (*desired, error) {
	p, err := decodePod(m.GetPod())
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fmt.Errorf("pod: empty")
	}
	spec := specOf(m.GetPod())
	m.Pod, m.Mirror = nil, nil
	return &desired{p, m, spec}, nil
}

var specSeed = maphash.MakeSeed()

// specOf is the hash of the specification in a packed pod (field 2 of the message Pod of
// k8s.io/api/core/v1); 0 if it has none.
func specOf(packed []byte) (hash uint64) {
	for len(packed) > 0 {
		number, kind, n := protowire.ConsumeTag(packed)
		if n < 0 {
			return 0
		}
		size := protowire.ConsumeFieldValue(number, kind, packed[n:])
		if size < 0 {
			return 0
		}
		if value := packed[n : n+size]; number == 2 {
			hash = max(maphash.Bytes(specSeed, value), 1)
		}
		packed = packed[n+size:]
	}
	return hash
}

// decodeStatus reads an item of config.statuses; nil says that the pod does not exist.
func decodeStatus(_ string, m *configv1.Object) (*plan.Object, error) {
	p, err := decodePod(m.GetObject())
	return report.Apart(p), err
}

// decodeMirror reads an item of config.mirrors; nil says that it does not exist.
func decodeMirror(_ string, m *configv1.Object) (*v1.Pod, error) {
	return decodePod(m.GetObject())
}

// decodeNode reads an item of config.objects; nil for all but Nodes.
func decodeNode(_ string, m *configv1.Object) (*v1.Node, error) {
	if m.GetKind() != "Node" || len(m.GetObject()) == 0 {
		return nil, nil
	}
	n := &v1.Node{}
	if err := n.Unmarshal(m.GetObject()); err != nil {
		return nil, fmt.Errorf("node %s: %w", m.GetName(), err)
	}
	return n, nil
}

var lifecycles = map[podworkerv1.Lifecycle]podstatus.Lifecycle{
	podworkerv1.Lifecycle_LIFECYCLE_PENDING:     podstatus.Syncing,
	podworkerv1.Lifecycle_LIFECYCLE_SYNCING:     podstatus.Syncing,
	podworkerv1.Lifecycle_LIFECYCLE_TERMINATING: podstatus.Terminating,
	podworkerv1.Lifecycle_LIFECYCLE_TERMINATED:  podstatus.Terminated,
	podworkerv1.Lifecycle_LIFECYCLE_RELEASED:    podstatus.Released,
	podworkerv1.Lifecycle_LIFECYCLE_REJECTED:    podstatus.Rejected,
}

// decodeWorker reads an item of podworker.pods. The specification that podworker runs is
// nearly always the one that config serves, and is then neither decoded nor kept twice.
func (in *inputs) decodeWorker(uid string, m *podworkerv1.PodState) (*gather.Worker, error) {
	lifecycle, ok := lifecycles[m.GetLifecycle()]
	if !ok {
		return nil, fmt.Errorf("lifecycle: unknown value %d", m.GetLifecycle())
	}
	var p *v1.Pod
	if want, ok := in.pods.Get(uid); ok && want.spec != 0 && want.spec == specOf(m.GetPod()) {
		p = want.pod
	} else {
		var err error
		if p, err = decodePod(m.GetPod()); err != nil {
			return nil, err
		}
	}
	w := &gather.Worker{
		Pod: p, Source: m.GetSource(), Namespace: m.GetNamespace(), Name: m.GetName(),
		Messages: make(map[string]string, len(m.GetMessages())),
		Facts: podstatus.Facts{
			StartTime: wire.TimeOf(cmp.Or(m.GetStartedAt(), m.GetAdmittedAt())),
			Lifecycle: lifecycle, Containers: containerFacts(m), Resizes: resizes(m.GetResize()), ResizesUnknown: m.GetResizeUnknown(),
			AllContainersRestarting: m.GetAllContainersRestarting(),
		},
	}
	if v := m.GetVerdict(); v != nil {
		w.Facts.Verdict = &podstatus.Verdict{
			Kind: podstatus.VerdictKind(v.GetKind()), Reason: m.GetReason(), Message: m.GetMessage(),
			Disruption: v.GetDisruption(), Time: v.GetTime().AsTime(),
		}
	}
	for _, message := range m.GetMessages() {
		w.Messages[message.GetContainerId()] = message.GetMessage()
	}
	return w, nil
}

// resizes are what the conditions of a resize tell.
func resizes(m *podworkerv1.Resize) (all []podstatus.Resize) {
	if m.GetPendingReason() != "" {
		all = append(all, podstatus.Resize{
			State: podstatus.ResizeState(m.GetPendingReason()), Message: m.GetPendingMessage(), ObservedGeneration: m.GetPendingGeneration(),
		})
	}
	if m.GetInProgress() {
		progress := podstatus.Resize{State: podstatus.ResizeInProgress, Message: m.GetError(), ObservedGeneration: m.GetGeneration()}
		if m.GetError() != "" {
			progress.State = podstatus.ResizeFailed
		}
		all = append(all, progress)
	}
	return all
}

// backoffs are the reasons that stand for a wait podworker imposes.
var backoffs = map[string]podstatus.BackoffKind{
	reason.CrashLoopBackOff: podstatus.BackoffRestart,
	reason.ImagePullBackOff: podstatus.BackoffPull,
}

func containerFacts(m *podworkerv1.PodState) map[string]podstatus.ContainerFacts {
	out := make(map[string]podstatus.ContainerFacts, len(m.GetContainers()))
	for _, c := range m.GetContainers() {
		facts := podstatus.ContainerFacts{
			RestartCount: c.GetRestartCount(), Unstarted: c.GetUnstarted(), Replaced: c.GetReplaced(), ResetCount: c.GetResetCount(),
		}
		if s := c.GetSize(); s != nil {
			facts.Given = &pod.Size{
				CPURequest: s.GetCpuRequest(), CPULimit: s.GetCpuLimit(), MemoryRequest: s.GetMemoryRequest(), MemoryLimit: s.GetMemoryLimit(),
			}
		}
		out[c.GetContainer()] = facts
	}
	for _, wait := range m.GetWaits() {
		facts := out[wait.GetContainer()]
		if kind, ok := backoffs[wait.GetReason()]; ok && wait.GetBackOff() != nil {
			facts.Backoff = &podstatus.Backoff{Kind: kind, Delay: wait.GetBackOff().AsDuration(), Until: wire.TimeOf(wait.GetRetryAt()), LastError: wait.GetLastError()}
		} else {
			facts.Waiting = &podstatus.Waiting{Reason: wait.GetReason(), Message: wait.GetMessage()}
		}
		out[wait.GetContainer()] = facts
	}
	return out
}

func decodeImages(_ string, m *podworkerv1.Images) ([]nodestatus.Image, error) {
	out := make([]nodestatus.Image, 0, len(m.GetImages()))
	for _, i := range m.GetImages() {
		out = append(out, nodestatus.Image{Names: i.GetNames(), Bytes: i.GetSizeBytes()})
	}
	return out, nil
}

func decodeRecord(_ string, m *plegv1.PodRecord) (*gather.Record, error) {
	r := &gather.Record{Err: m.GetError()}
	for _, data := range m.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		s.Labels, s.Annotations = nil, nil
		r.Sandboxes = append(r.Sandboxes, s)
	}
	for _, data := range m.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		if info, _ := pod.ParseContainer(c.GetLabels(), c.GetAnnotations()); tellsAll(c.GetMetadata(), info) {
			c.Labels, c.Annotations = nil, nil
		}
		c.LogPath = ""
		r.Containers = append(r.Containers, c)
	}
	return r, nil
}

// tellsAll reports whether the runtime's own data of a container say what its labels and
// annotations say of its name and its restarts, of which a pod's status is made.
func tellsAll(m *runtimeapi.ContainerMetadata, info pod.ContainerInfo) bool {
	return (info.Name == "" || info.Name == m.GetName()) && info.RestartCount <= int(m.GetAttempt())
}

func decodeRuntime(_ string, m *plegv1.RuntimeState) (*nodestatus.Runtime, error) {
	r := &nodestatus.Runtime{
		Name: m.GetName(), Version: m.GetVersion(), Responding: m.GetResponding(), Error: m.GetError(),
		Since: m.GetSince().AsTime(), Asked: len(m.GetStatus()) > 0,
	}
	s := &runtimeapi.StatusResponse{}
	if err := proto.Unmarshal(m.GetStatus(), s); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	for _, c := range s.GetStatus().GetConditions() {
		r.Conditions = append(r.Conditions, nodestatus.RuntimeCondition{
			Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
		})
	}
	for _, h := range s.GetRuntimeHandlers() {
		ro, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		r.Handlers = append(r.Handlers, v1.NodeRuntimeHandler{
			Name: h.GetName(), Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &ro, UserNamespaces: &users},
		})
	}
	if f := s.GetFeatures(); f != nil {
		r.SupplementalGroupsPolicy = new(f.GetSupplementalGroupsPolicy())
	}
	return r, nil
}

var results = map[proberv1.Result]podstatus.ProbeResult{
	proberv1.Result_RESULT_UNSPECIFIED: podstatus.ProbeUnknown,
	proberv1.Result_RESULT_SUCCESS:     podstatus.ProbeSuccess,
	proberv1.Result_RESULT_FAILURE:     podstatus.ProbeFailure,
}

func decodeVerdicts(_ string, m *proberv1.PodVerdicts) (map[string]podstatus.ProbeVerdict, error) {
	out := make(map[string]podstatus.ProbeVerdict, len(m.GetVerdicts()))
	for _, v := range m.GetVerdicts() {
		one := out[v.GetContainerId()]
		switch v.GetKind() {
		case proberv1.ProbeKind_PROBE_KIND_STARTUP:
			one.Startup = results[v.GetResult()]
		case proberv1.ProbeKind_PROBE_KIND_READINESS:
			one.Readiness = results[v.GetResult()]
		case proberv1.ProbeKind_PROBE_KIND_LIVENESS:
			one.Liveness = results[v.GetResult()]
		}
		out[v.GetContainerId()] = one
	}
	return out, nil
}

func decodeResources(_ string, m *resourcev1.NodeResources) (*nodestatus.Resources, error) {
	r := &nodestatus.Resources{
		MachineID: m.GetMachineId(), SystemUUID: m.GetSystemUuid(), BootID: m.GetBootId(),
		KernelVersion: m.GetKernelVersion(), OSImage: m.GetOsImage(),
		OperatingSystem: m.GetOperatingSystem(), Architecture: m.GetArchitecture(),
		SwapCapacity:   m.GetSwapCapacityBytes(),
		MemoryPressure: m.GetMemory().GetUnderPressure(), DiskPressure: m.GetDisk().GetUnderPressure(),
		PID: m.GetPid().GetUnderPressure(),
	}
	if d := m.GetClaimDrivers(); d != nil {
		r.ClaimDrivers = append([]string{}, d.GetPresent()...)
	}
	var err error
	if r.Capacity, err = quantities(m.GetCapacity()); err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	if r.Allocatable, err = quantities(m.GetAllocatable()); err != nil {
		return nil, fmt.Errorf("allocatable: %w", err)
	}
	return r, nil
}

func quantities(texts map[string]string) (v1.ResourceList, error) {
	list := make(v1.ResourceList, len(texts))
	for name, text := range texts {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, strconv.Quote(text), err)
		}
		list[v1.ResourceName(name)] = q
	}
	return list, nil
}
