// SPDX-License-Identifier: Apache-2.0

package house

import (
	"slices"

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

// Feed is what the house knows of a feed, whatever it carries.
type Feed struct {
	// Name is "<owner>.<what>".
	Name string
	// Owner is the only writer.
	Owner Service
	// Readers may pull it. The operator may read all but the secret ones.
	Readers []Service
	// Secret feeds carry Secret objects or private keys.
	Secret bool
	// message is an empty one of its type.
	message proto.Message
}

// Message makes an empty message of the type that the feed carries.
func (f Feed) Message() proto.Message { return f.message.ProtoReflect().New().Interface() }

// FeedOf is the definition of a feed whose items are messages M. Its owner
// (service.Owner) and its replicas (service.Replica) are made from it, so that a
// feed with another feed's message does not compile.
type FeedOf[M proto.Message] struct{ Feed }

// The feeds of the house, one definition each. Those listed as readers do read: a
// right that is not used is one too many, and the end-to-end tests compare it with
// what runs. What has no reader is there for the operator.
var (
	ConfigPods       = define[*configv1.DesiredPod](Config, "pods", Prober, PodWorker, Resource, Status, NodeAPI)
	ConfigStatuses   = define[*configv1.Object](Config, "statuses", Status, NodeAPI)
	ConfigSources    = define[*configv1.Source](Config, "sources", PodWorker, Status)
	ConfigObjects    = define[*configv1.Object](Config, "objects", Volume, Resource, PodWorker, Status)
	ConfigSecrets    = defineSecret[*configv1.Object](Config, "secrets", Volume, PodWorker)
	ConfigMirrors    = define[*configv1.Object](Config, "mirrors", Status)
	ConfigKubelet    = define[*configv1.KubeletConfig](Config, "kubelet", Volume, Resource, PodWorker, Status, NodeAPI)
	ConfigEvents     = define[*eventv1.Event](Config, "events", Status)
	ConfigCredential = defineSecret[*configv1.Credential](Config, "credential", Status)
	ConfigServing    = defineSecret[*configv1.Serving](Config, "serving", NodeAPI)
	PodWorkerPods    = define[*podworkerv1.PodState](PodWorker, "pods", Status)
	PodWorkerImages  = define[*podworkerv1.Images](PodWorker, "images", Status)
	PodWorkerPulls   = define[*podworkerv1.PodPulls](PodWorker, "pulls")
	PodWorkerNode    = define[*podworkerv1.NodeState](PodWorker, "node", Resource, Status)
	PodWorkerEvents  = define[*eventv1.Event](PodWorker, "events", Status)
	PlegPods         = define[*plegv1.PodRecord](Pleg, "pods", Prober, PodWorker, Status, NodeAPI)
	PlegRuntime      = define[*plegv1.RuntimeState](Pleg, "runtime", Resource, PodWorker, Status)
	ProberVerdicts   = define[*proberv1.PodVerdicts](Prober, "verdicts", PodWorker, Status)
	ProberEvents     = define[*eventv1.Event](Prober, "events", Status)
	VolumePods       = define[*volumev1.PodVolumes](Volume, "pods", PodWorker)
	VolumeNode       = define[*volumev1.VolumeNode](Volume, "node", Status)
	VolumeEvents     = define[*eventv1.Event](Volume, "events", Status)
	ResourcePods     = define[*resourcev1.PodAllocation](Resource, "pods", PodWorker, Status)
	ResourceNode     = define[*resourcev1.NodeResources](Resource, "node", PodWorker, Volume, Status)
	ResourceEvents   = define[*eventv1.Event](Resource, "events", Status)
	StatusPods       = define[*statusv1.PodReport](Status, "pods", PodWorker, NodeAPI)
	StatusNode       = define[*statusv1.NodeReport](Status, "node", NodeAPI)
)

// DockerConfig names the one item of config.secrets that is no object of the API server: a
// Secret without a namespace that holds the node's own docker configuration, the file of
// this name in the kubelet's root directory.
const DockerConfig = "config.json"

// feeds are all that are defined, in this order.
var feeds []Feed

func define[M proto.Message](owner Service, what string, readers ...Service) FeedOf[M] {
	return register[M](Feed{Name: string(owner) + "." + what, Owner: owner, Readers: readers})
}

func defineSecret[M proto.Message](owner Service, what string, readers ...Service) FeedOf[M] {
	return register[M](Feed{Name: string(owner) + "." + what, Owner: owner, Readers: readers, Secret: true})
}

func register[M proto.Message](f Feed) FeedOf[M] {
	var none M
	f.message = none
	feeds = append(feeds, f)
	return FeedOf[M]{f}
}

// Feeds lists every feed of the house.
func Feeds() []Feed { return slices.Clone(feeds) }

// FeedNamed finds a feed by name.
func FeedNamed(name string) (Feed, bool) {
	for _, f := range feeds {
		if f.Name == name {
			return f, true
		}
	}
	return Feed{}, false
}

// MayRead reports whether a peer may pull a feed.
func MayRead(peer Service, feed string) bool {
	f, ok := FeedNamed(feed)
	if !ok {
		return false
	}
	if peer == Operator {
		return !f.Secret
	}
	return peer == f.Owner || slices.Contains(f.Readers, peer)
}

// Reads lists the names of the feeds a service reads.
func Reads(s Service) []string {
	return names(func(f Feed) bool { return slices.Contains(f.Readers, s) })
}

// Owned lists the names of the feeds a service owns.
func Owned(s Service) []string {
	return names(func(f Feed) bool { return f.Owner == s })
}

func names(of func(Feed) bool) []string {
	var names []string
	for _, f := range feeds {
		if of(f) {
			names = append(names, f.Name)
		}
	}
	return names
}
