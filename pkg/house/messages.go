package house

import (
	"google.golang.org/protobuf/proto"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	proberv1 "github.com/sextant-node/sextant/proto/sextant/prober/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

var messages = map[string]proto.Message{
	ConfigPods:       &configv1.DesiredPod{},
	ConfigSources:    &configv1.Source{},
	ConfigObjects:    &configv1.Object{},
	ConfigSecrets:    &configv1.Object{},
	ConfigMirrors:    &configv1.Object{},
	ConfigKubelet:    &configv1.KubeletConfig{},
	ConfigEvents:     &eventv1.Event{},
	ConfigCredential: &configv1.Credential{},
	ConfigServing:    &configv1.Serving{},
	PodWorkerPods:    &podworkerv1.PodState{},
	PodWorkerImages:  &podworkerv1.Images{},
	PodWorkerPulls:   &podworkerv1.PodPulls{},
	PodWorkerNode:    &podworkerv1.NodeState{},
	PodWorkerEvents:  &eventv1.Event{},
	PlegPods:         &plegv1.PodRecord{},
	PlegRuntime:      &plegv1.RuntimeState{},
	ProberVerdicts:   &proberv1.PodVerdicts{},
	ProberEvents:     &eventv1.Event{},
	VolumePods:       &volumev1.PodVolumes{},
	VolumeNode:       &volumev1.VolumeNode{},
	VolumeEvents:     &eventv1.Event{},
	ResourcePods:     &resourcev1.PodAllocation{},
	ResourceNode:     &resourcev1.NodeResources{},
	ResourceEvents:   &eventv1.Event{},
	StatusPods:       &statusv1.PodReport{},
	StatusNode:       &statusv1.NodeReport{},
}

// NewMessage makes an empty message of the type a feed carries, or nil for an
// unknown feed.
func NewMessage(feed string) proto.Message {
	m, ok := messages[feed]
	if !ok {
		return nil
	}
	return m.ProtoReflect().New().Interface()
}
