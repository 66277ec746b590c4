// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/images"
	"github.com/sextant-node/sextant/services/podworker/internal/logs"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// Inputs are the replicas the workers read. What they hold is shared.
type Inputs struct {
	Pods        *feed.Replica[*step.Desired]
	Sources     *feed.Replica[*configv1.Source]
	Objects     *feed.Replica[*object]
	Secrets     *feed.Replica[*object]
	Kubelet     *feed.Replica[*configuration]
	Records     *feed.Replica[*observe.Record]
	Runtime     *feed.Replica[*runtimeState]
	Verdicts    *feed.Replica[map[string]step.Probes]
	Volumes     *feed.Replica[*volumev1.PodVolumes]
	Allocations *feed.Replica[*resourcev1.PodAllocation]
	Node        *feed.Replica[*resourcev1.NodeResources]
	// Reports tell how far statuses have travelled: the machine goes down when the
	// last ones are known (docs/decisions/0007).
	Reports *feed.Replica[*statusv1.PodReport]
}

// replicas makes the inputs of a process.
func replicas(kit *service.Kit) (*Inputs, error) {
	in := &Inputs{}
	var err error
	service.Replicate(kit, &err, house.ConfigPods, decodeDesired, &in.Pods)
	service.Replicate(kit, &err, house.ConfigSources, feed.Whole[*configv1.Source], &in.Sources)
	service.Replicate(kit, &err, house.ConfigObjects, decodeObject, &in.Objects)
	service.Replicate(kit, &err, house.ConfigSecrets, decodeObject, &in.Secrets)
	service.Replicate(kit, &err, house.ConfigKubelet, decodeConfiguration, &in.Kubelet)
	service.Replicate(kit, &err, house.PlegPods, observe.Decode, &in.Records)
	service.Replicate(kit, &err, house.PlegRuntime, decodeRuntime, &in.Runtime)
	service.Replicate(kit, &err, house.ProberVerdicts, decodeVerdicts, &in.Verdicts)
	service.Replicate(kit, &err, house.VolumePods, feed.Whole[*volumev1.PodVolumes], &in.Volumes)
	service.Replicate(kit, &err, house.ResourcePods, feed.Whole[*resourcev1.PodAllocation], &in.Allocations)
	service.Replicate(kit, &err, house.ResourceNode, feed.Whole[*resourcev1.NodeResources], &in.Node)
	service.Replicate(kit, &err, house.StatusPods, feed.Whole[*statusv1.PodReport], &in.Reports, service.Unhurried)
	return in, err
}

// decodeDesired reads a DesiredPod.
func decodeDesired(_ string, message *configv1.DesiredPod) (*step.Desired, error) {
	p := &v1.Pod{}
	if err := p.Unmarshal(message.GetPod()); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	print, err := fingerprint(p)
	if err != nil {
		return nil, err
	}
	return &step.Desired{
		Pod: p, Source: message.GetSource(), Fingerprint: print, Asks: pod.SizesID(p),
		Seen: wire.TimeOf(message.GetSeenAt()), Begun: wire.TimeOf(message.GetBegunAt()),
	}, nil
}

// fingerprint changes with what volumes depend on: the specification, labels and
// annotations. It is never 0.
func fingerprint(p *v1.Pod) (uint64, error) {
	part := &v1.Pod{Spec: p.Spec}
	part.Labels, part.Annotations = p.Labels, p.Annotations
	raw, err := part.Marshal()
	if err != nil {
		return 0, fmt.Errorf("pod: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return max(h.Sum64(), 1), nil
}

// object is an API object as config has it.
type object struct {
	// known: it was read, or the API server said that it does not exist.
	known     bool
	err       string
	configMap *v1.ConfigMap
	secret    *v1.Secret
	service   *v1.Service
	node      *v1.Node
	class     *nodev1.RuntimeClass
}

// decodeObject reads an Object of the kinds containers are made from; of other
// kinds nothing is kept.
func decodeObject(_ string, message *configv1.Object) (*object, error) {
	o := &object{err: message.GetError(), known: message.GetAbsent() || len(message.GetObject()) > 0}
	if len(message.GetObject()) == 0 {
		return o, nil
	}
	var into interface{ Unmarshal([]byte) error }
	switch message.GetKind() {
	case "ConfigMap":
		o.configMap = &v1.ConfigMap{}
		into = o.configMap
	case "Secret":
		o.secret = &v1.Secret{}
		into = o.secret
	case "Service":
		o.service = &v1.Service{}
		into = o.service
	case "Node":
		o.node = &v1.Node{}
		into = o.node
	case "RuntimeClass":
		o.class = &nodev1.RuntimeClass{}
		into = o.class
	default:
		return o, nil
	}
	if err := into.Unmarshal(message.GetObject()); err != nil {
		return nil, fmt.Errorf("%s: %w", message.GetKind(), err)
	}
	return o, nil
}

// configuration is the effective configuration and its wire form.
type configuration struct {
	*kubeletconfig.Config
	raw []byte
}

func decodeConfiguration(_ string, message *configv1.KubeletConfig) (*configuration, error) {
	c, err := kubeletconfig.Decode("", message)
	if err != nil {
		return nil, err
	}
	return &configuration{c, message.GetConfig()}, nil
}

// runtimeState is what pods depend on of the runtime as a whole.
type runtimeState struct {
	// away is the error of the last question, empty while the runtime answers.
	away    string
	network step.Network
	status  *runtimeapi.StatusResponse
}

func decodeRuntime(_ string, message *plegv1.RuntimeState) (*runtimeState, error) {
	s := &runtimeState{away: message.GetError(), status: &runtimeapi.StatusResponse{}, network: step.Network{Message: "runtime network not ready: status is not known yet"}}
	if len(message.GetStatus()) == 0 {
		if e := message.GetError(); e != "" {
			s.network.Message = e
		}
		return s, nil
	}
	if err := proto.Unmarshal(message.GetStatus(), s.status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	for _, c := range s.status.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.NetworkReady {
			s.network = step.Network{Ready: c.GetStatus(), Message: fmt.Sprintf(
				"container runtime network not ready: NetworkReady=%t reason:%s message:%s", c.GetStatus(), c.GetReason(), c.GetMessage())}
		}
	}
	return s, nil
}

func decodeVerdicts(_ string, message *proberv1.PodVerdicts) (map[string]step.Probes, error) {
	verdicts := map[string]step.Probes{}
	for _, v := range message.GetVerdicts() {
		p := verdicts[v.GetContainerId()]
		failed := v.GetResult() == proberv1.Result_RESULT_FAILURE
		switch v.GetKind() {
		case proberv1.ProbeKind_PROBE_KIND_LIVENESS:
			p.LivenessFailed = failed
		case proberv1.ProbeKind_PROBE_KIND_STARTUP:
			p.StartupFailed = failed
			p.Started = v.GetResult() == proberv1.Result_RESULT_SUCCESS
		}
		verdicts[v.GetContainerId()] = p
	}
	return verdicts, nil
}

// desired is a pod as config lists it. dropped says that it does not, and that
// the pod's own source was read whole: the pod is gone whatever other sources,
// the API server above all, have not said yet. source is where the pod came from
// as far as the caller remembers.
func (in *Inputs) desired(uid types.UID, source string) (want *step.Desired, dropped bool) {
	key := string(uid)
	d, listed := in.Pods.Get(key)
	if listed {
		source = d.Source
	}
	s, ok := in.Sources.Get(source)
	if !ok || source == pod.SourceAPI || !s.GetComplete() || s.GetPodsRevision() == nil {
		return d, false // the API server's pods are gone when the whole feed says so
	}
	// A later life of config may have read the source and not list the pod, while
	// the replica still holds it from the former life.
	if !in.reachedSource(source) || in.Pods.Current(key) {
		return d, false
	}
	return nil, true
}

// unheard reports whether config has heard neither pods nor an error from the API server
// since it started, or that the pods it heard of are not here yet.
func (in *Inputs) unheard() bool {
	s, ok, known := in.Sources.Lookup(pod.SourceAPI)
	if !ok {
		return !known // else the node has no API server any more
	}
	if !s.GetComplete() {
		return s.GetError() == ""
	}
	return !in.reachedSource(pod.SourceAPI)
}

// reachedSource reports whether the pods that a source has read are here.
func (in *Inputs) reachedSource(source string) bool {
	s, ok := in.Sources.Get(source)
	if !ok || s.GetPodsRevision() == nil {
		return true
	}
	at, _, _, _ := in.Pods.State()
	return at.Reached(feed.RevisionFrom(s.GetPodsRevision()))
}

// sourcesComplete reports whether every configured source of pods was read.
func (in *Inputs) sourcesComplete() bool {
	if !in.Pods.Listed() || !in.Sources.Complete() {
		return false
	}
	for _, s := range in.Sources.Items() {
		if !s.GetComplete() {
			return false
		}
	}
	return true
}

// podsSaid reports whether it is known what pods there are to run, as far as can be: every
// source was read, or config says why it cannot be. Then the node runs what it ran before,
// and images that something else may need are pulled when it comes.
func (in *Inputs) podsSaid() bool {
	if in.Pods.Listed() {
		return in.Pods.Complete()
	}
	if !in.Pods.Synced() || !in.Sources.Complete() {
		return false
	}
	for name, s := range in.Sources.Items() {
		if !s.GetComplete() && s.GetError() == "" || !in.reachedSource(name) {
			return false
		}
	}
	return true
}

// usedImages are those that containers of the runtime were made from, and those of pods
// that may get one yet, which ended ones do not; not known until pleg has listed all, and
// config said what there is.
func (in *Inputs) usedImages(ended map[types.UID]bool) (images.Used, bool) {
	if !in.Records.Complete() || !in.podsSaid() {
		return nil, false
	}
	used := images.Used{}
	for _, r := range in.Records.Items() {
		for _, status := range r.Statuses {
			used[status.GetImageRef()], used[status.GetImageId()], used[status.GetImage().GetImage()] = true, true, true
			for _, m := range status.GetMounts() {
				if image := m.GetImage().GetImage(); image != "" {
					used[image] = true
				}
			}
		}
	}
	for _, d := range in.Pods.Items() {
		if ended[d.Pod.UID] || pod.IsTerminalPhase(d.Pod.Status.Phase) {
			continue
		}
		for _, c := range pod.Containers(d.Pod) {
			used[c.Image] = true
		}
		for i := range d.Pod.Spec.Volumes {
			if image := d.Pod.Spec.Volumes[i].Image; image != nil {
				used[image.Reference] = true
			}
		}
	}
	delete(used, "")
	return used, true
}

// unread reports whether the runtime did not answer for a pod.
func (in *Inputs) unread() bool {
	for _, r := range in.Records.Items() {
		if r.Error != "" {
			return true
		}
	}
	return false
}

// runningLogs are the logs that grow.
func (in *Inputs) runningLogs() []logs.Container {
	var running []logs.Container
	for _, r := range in.Records.Items() {
		for id, status := range r.Statuses {
			if status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && status.GetLogPath() != "" {
				running = append(running, logs.Container{ID: id, LogPath: status.GetLogPath()})
			}
		}
	}
	return running
}
