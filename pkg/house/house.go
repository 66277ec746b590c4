// Package house is the one table of who lives on the node: the services, what
// each feed is called, who owns it and who may read it, which methods a peer
// may call, and where the sockets are.
//
// It owns no state. rpc takes its authorization from here, bus its subject
// permissions, the operator's verbs their lists, and the architecture page is
// checked against it, so that all of them agree by construction.
package house

import (
	"path/filepath"
	"slices"
)

// Service is the name of one process of the node.
type Service string

// The services, in start order (design: who dials whom is a DAG).
const (
	Bus       Service = "bus"
	Config    Service = "config"
	Pleg      Service = "pleg"
	Prober    Service = "prober"
	Volume    Service = "volume"
	Resource  Service = "resource"
	PodWorker Service = "podworker"
	Status    Service = "status"
	NodeAPI   Service = "nodeapi"
	// Operator is not a process of the node: it is root at a terminal.
	Operator Service = "operator"
)

// Protocol is the version of the contracts in proto/ that this build speaks.
// Neighbours accept it and the one before.
const Protocol = 1

// Services lists every process in start order. podworker comes before its
// readers because its broker is a leaf; its workers wait for the others.
func Services() []Service {
	return []Service{Bus, PodWorker, Config, Pleg, Prober, Volume, Resource, Status, NodeAPI}
}

// Feed is one feed of the house.
type Feed struct {
	// Name is "<owner>.<what>".
	Name string
	// Owner is the only writer.
	Owner Service
	// Readers may pull it. The operator may read all but the secret ones.
	Readers []Service
	// Secret feeds carry Secret objects or private keys.
	Secret bool
}

// Names of the feeds; the message of each is stated in the owner's contract.
const (
	ConfigPods    = "config.pods"
	ConfigSources = "config.sources"
	ConfigObjects = "config.objects"
	ConfigSecrets = "config.secrets"
	ConfigMirrors = "config.mirrors"
	ConfigKubelet = "config.kubelet"
	ConfigEvents  = "config.events"
	// ConfigCredential and ConfigServing hold private keys.
	ConfigCredential = "config.credential"
	ConfigServing    = "config.serving"
	PodWorkerPods    = "podworker.pods"
	PodWorkerImages  = "podworker.images"
	PodWorkerPulls   = "podworker.pulls"
	PodWorkerNode    = "podworker.node"
	PodWorkerEvents  = "podworker.events"
	PlegPods         = "pleg.pods"
	PlegRuntime      = "pleg.runtime"
	ProberVerdicts   = "prober.verdicts"
	ProberEvents     = "prober.events"
	VolumePods       = "volume.pods"
	VolumeNode       = "volume.node"
	VolumeEvents     = "volume.events"
	ResourcePods     = "resource.pods"
	ResourceNode     = "resource.node"
	ResourceEvents   = "resource.events"
	StatusPods       = "status.pods"
	StatusNode       = "status.node"
)

// feeds lists as readers those that do read: a right that nobody uses is one too
// many. The end-to-end tests compare it with what runs. What has no reader is
// there for the operator.
var feeds = []Feed{
	{ConfigPods, Config, []Service{Prober, PodWorker, Status, NodeAPI}, false},
	{ConfigSources, Config, []Service{PodWorker, Status}, false},
	{ConfigObjects, Config, []Service{Volume, Resource, PodWorker, Status}, false},
	{ConfigSecrets, Config, []Service{Volume, PodWorker}, true},
	{ConfigMirrors, Config, []Service{Status}, false},
	{ConfigKubelet, Config, []Service{Volume, Resource, PodWorker, Status, NodeAPI}, false},
	{ConfigEvents, Config, []Service{Status}, false},
	{ConfigCredential, Config, []Service{Status}, true},
	{ConfigServing, Config, []Service{NodeAPI}, true},
	{PodWorkerPods, PodWorker, []Service{Status}, false},
	{PodWorkerImages, PodWorker, []Service{Status}, false},
	{PodWorkerPulls, PodWorker, nil, false},
	{PodWorkerNode, PodWorker, []Service{Status}, false},
	{PodWorkerEvents, PodWorker, []Service{Status}, false},
	{PlegPods, Pleg, []Service{Prober, PodWorker, Status, NodeAPI}, false},
	{PlegRuntime, Pleg, []Service{Resource, PodWorker, Status}, false},
	{ProberVerdicts, Prober, []Service{PodWorker, Status}, false},
	{ProberEvents, Prober, []Service{Status}, false},
	{VolumePods, Volume, []Service{PodWorker}, false},
	{VolumeNode, Volume, []Service{Status}, false},
	{VolumeEvents, Volume, []Service{Status}, false},
	{ResourcePods, Resource, []Service{PodWorker}, false},
	{ResourceNode, Resource, []Service{PodWorker, Volume, Status}, false},
	{ResourceEvents, Resource, []Service{Status}, false},
	{StatusPods, Status, []Service{PodWorker, NodeAPI}, false},
	{StatusNode, Status, []Service{NodeAPI}, false},
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

// MayRead tells whether a peer may pull a feed.
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
	var names []string
	for _, f := range feeds {
		if slices.Contains(f.Readers, s) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Owned lists the names of the feeds a service owns.
func Owned(s Service) []string {
	var names []string
	for _, f := range feeds {
		if f.Owner == s {
			names = append(names, f.Name)
		}
	}
	return names
}

// Paths of one node below its run directory (default /run/sextant): a folder a
// service, owned by the service's uid.
type Paths struct{ Run, State string }

// Socket is where a service answers gRPC.
func (p Paths) Socket(s Service) string { return filepath.Join(p.Run, string(s), "grpc.sock") }

// DebugSocket is where a service answers HTTP: /metrics and /debug/pprof.
func (p Paths) DebugSocket(s Service) string { return filepath.Join(p.Run, string(s), "debug.sock") }

// Broker is podworker's CRI socket.
func (p Paths) Broker() string { return filepath.Join(p.Run, string(PodWorker), "cri.sock") }

// Supervisor is the socket of the supervisor, which is no service.
func (p Paths) Supervisor() string { return filepath.Join(p.Run, "supervisor", "grpc.sock") }

// Tools is the socket of what runs root's tools for volume.
func (p Paths) Tools() string { return filepath.Join(p.Run, "tools", "grpc.sock") }

// Identities is the file that maps services to uids.
func (p Paths) Identities() string { return filepath.Join(p.Run, "identities.json") }

// BusKeys is the folder of the bus credentials, one file a service.
func (p Paths) BusKeys() string { return filepath.Join(p.Run, "bus-keys") }

// BusAddress is the file that tells where the bus listens.
func (p Paths) BusAddress() string { return filepath.Join(p.Run, string(Bus), "url") }

// StateOf is a service's durable folder (default below /var/lib/sextant).
func (p Paths) StateOf(s Service) string { return filepath.Join(p.State, string(s)) }
