// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/services/status/internal/events"
	"github.com/sextant-node/sextant/services/status/internal/journal"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
	"github.com/sextant-node/sextant/services/status/internal/nodesync"
	"github.com/sextant-node/sextant/services/status/internal/plan"
)

// settleLimit is how long registration waits for the node's resources.
const settleLimit = 10 * time.Second

// hosts are what the machine says of its addresses; nil before it was read.
type hosts interface{ Host() *nodestatus.Host }

// node gathers what the Node is rendered from, and keeps what became of it.
type node struct {
	in       *inputs
	settings *settings
	host     hosts
	journal  *journal.Journal
	report   *feed.Owner[*statusv1.NodeReport]
	recorder *events.Recorder
	epoch    string
	started  time.Time
	changed  func() // what pods and objects of the node go by has changed
	csi      func() string
	last     *lastNode
	log      *slog.Logger

	mu      sync.Mutex
	away    map[string]time.Time // parts that do not answer
	partial map[string]time.Time // sources that are not complete
	runtime turn
	events  int

	read      string // whose journaled status was read
	journaled *v1.NodeStatus
}

// lastNode is the newest state of the Node. Safe for concurrent use.
type lastNode struct {
	mu    sync.Mutex
	state nodesync.State
}

func (l *lastNode) get() nodesync.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *lastNode) replace(s nodesync.State) (was nodesync.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, l.state = l.state, s
	return was
}

// uid of the Node, empty while it does not exist.
func (l *lastNode) uid() types.UID { return l.get().UID }

// Known implements nodeView.
func (n *node) Known() bool { return n.settings.get() != nil }

// Standalone implements nodeView.
func (n *node) Standalone() bool { return n.settings.standalone() }

// Owner implements nodeView.
func (n *node) Owner() plan.Node {
	state := n.last.get()
	return plan.Node{Name: state.Name, UID: state.UID}
}

// HostIPs implements nodeView.
func (n *node) HostIPs() []string {
	if status := n.last.get().Status; status != nil {
		return nodestatus.HostIPs(status.Addresses)
	}
	return nil
}

// facts is what is known now (nodesync.Deps).
func (n *node) facts() (nodesync.Facts, bool) {
	config := n.settings.get()
	name := n.settings.node()
	host := n.host.Host()
	if config == nil || name == "" || host == nil {
		return nodesync.Facts{}, false
	}
	k := &config.Kubelet
	f := nodesync.Facts{
		Standalone: n.Standalone(), Register: k.RegisterNode == nil || *k.RegisterNode,
		Period: period(k.NodeStatusUpdateFrequency.Duration, 10*time.Second),
		Report: period(k.NodeStatusReportFrequency.Duration, 5*time.Minute),
		Input:  n.input(config, name),
		Registration: nodestatus.Registration{
			Name: name, OS: runtime.GOOS, Arch: runtime.GOARCH, Labels: config.Node.Labels,
			Taints: k.RegisterWithTaints, ProviderID: k.ProviderID, External: config.Node.ExternalCloudProvider,
			NodeIPs:          config.Node.IPs,
			ControllerAttach: k.EnableControllerAttachDetach == nil || *k.EnableControllerAttachDetach,
			Drivers:          n.in.identities(),
		},
	}
	f.Addresses = func(existing []v1.NodeAddress) ([]v1.NodeAddress, error) {
		return nodestatus.Addresses(nodestatus.AddressInput{
			Hostname: name, NodeIPs: config.Node.IPs, External: config.Node.ExternalCloudProvider,
			Existing: existing, Host: *host,
		})
	}
	f.Settled = f.Input.Resources != nil || time.Since(n.started) > settleLimit
	listed, _, _, _ := n.in.nodes.State()
	f.Epoch = listed.Epoch
	for _, candidate := range n.in.nodes.Items() {
		if candidate != nil && candidate.Name == name {
			f.Node = candidate
		}
	}
	f.Journaled = n.earlier(name)
	return f, true
}

// earlier is what an earlier process said last; read once.
func (n *node) earlier(name string) *v1.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.read != name {
		journaled, err := n.journal.Node(name)
		if err != nil {
			n.log.Error("journaled node skipped", service.KeyError, err.Error())
		}
		n.read, n.journaled = name, journaled
	}
	return n.journaled
}

func period(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		return fallback
	}
	return d
}

func (n *node) input(config *kubeletconfig.Config, name string) nodestatus.Input {
	k := &config.Kubelet
	in := nodestatus.Input{
		Name: name, Started: n.started, Port: k.Port, MaxImages: 50,
		EphemeralStorage: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation,
		Away:             n.absent(time.Now()), Features: config.DeclaredFeatures(),
	}
	if k.NodeStatusMaxImages != nil {
		in.MaxImages = int(*k.NodeStatusMaxImages)
	}
	if !n.Standalone() {
		in.CSINode = n.csi()
	}
	if end, ok := n.in.end.Get(nodeKey); ok {
		in.ShuttingDown = new(end.GetStage() > podworkerv1.ShutdownStage_SHUTDOWN_STAGE_STAYING)
	}
	if r, ok := n.in.runtime.Get(runtimeKey); ok {
		in.Runtime = n.timed(r, time.Now())
	}
	in.Resources, _ = n.in.resources.Get(nodeKey)
	in.VolumesInUse = n.in.inUse()
	in.Images, _ = n.in.images.Get(imagesKey)
	if n.in.sources.Synced() {
		in.Sources = []nodestatus.Source{}
		for _, s := range n.in.sources.Items() {
			in.Sources = append(in.Sources, nodestatus.Source{Name: s.GetName(), Complete: s.GetComplete()})
		}
		if _, ok := n.in.sources.Get(pod.SourceAPI); !ok && !n.Standalone() {
			in.Sources = append(in.Sources, nodestatus.Source{Name: pod.SourceAPI})
		}
		n.age(in.Sources, time.Now())
	}
	return in
}

// turn is since when the runtime does, or does not, respond.
type turn struct {
	told time.Time // by pleg, on the wall clock of that moment
	at   time.Time // the same by this process's monotonic clock
}

// timed is the runtime with a time that steps of the wall clock do not touch: how long it is
// silent is counted from what that clock said when it was heard of.
func (n *node) timed(r *nodestatus.Runtime, now time.Time) *nodestatus.Runtime {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runtime.at.IsZero() || !n.runtime.told.Equal(r.Since) {
		n.runtime = turn{r.Since, now.Add(-max(0, now.Sub(r.Since)))}
	}
	out := *r
	out.Since = n.runtime.at
	return &out
}

// age tells each source that is not complete since when that was noticed.
func (n *node) age(sources []nodestatus.Source, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range sources {
		s := &sources[i]
		if s.Complete {
			delete(n.partial, s.Name)
			continue
		}
		if n.partial[s.Name].IsZero() {
			n.partial[s.Name] = now
		}
		s.Since = n.partial[s.Name]
	}
}

// absent lists the parts of the node without which no pod can be run, if they do not
// answer, since when that was noticed.
func (n *node) absent(now time.Time) (out []nodestatus.Away) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, part := range []struct {
		name  string
		state func() (feed.Revision, bool, int, error)
	}{
		{"config", n.in.pods.State}, {"pleg", n.in.runtime.State},
		{"podworker", n.in.workers.State}, {"resource", n.in.resources.State},
	} {
		if _, _, _, err := part.state(); err == nil {
			delete(n.away, part.name)
			continue
		}
		if n.away[part.name].IsZero() {
			n.away[part.name] = now
		}
		out = append(out, nodestatus.Away{Service: part.name, Since: n.away[part.name]})
	}
	return out
}

// publish gets each rendering (nodesync.Deps).
func (n *node) publish(s nodesync.State) {
	was := n.last.replace(s)
	if err := n.journalStatus(was, s); err != nil {
		n.log.Error("node status not journaled", service.KeyError, err.Error())
	}
	report := &statusv1.NodeReport{Name: s.Name, Standalone: s.Standalone, Registered: s.UID != "", Error: s.Err}
	for _, c := range s.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			report.ReadySince = timestamppb.New(c.LastTransitionTime.Time)
		}
	}
	ctx := context.Background()
	data, err := s.Status.Marshal()
	if err == nil {
		report.Status = data
		_, err = n.report.Set(ctx, nodeKey, report)
	}
	if err != nil {
		n.log.Error("node not published", service.KeyError, err.Error())
	}
	n.report.SetComplete(ctx, true)
	if was.UID != s.UID || was.Status == nil || !slices.Equal(nodestatus.HostIPs(was.Status.Addresses), nodestatus.HostIPs(s.Status.Addresses)) {
		n.changed()
	}
}

func (n *node) journalStatus(was, s nodesync.State) error {
	if !n.remembers(s) || n.remembers(was) && nodestatus.Same(*was.Status, *s.Status) {
		return nil
	}
	return n.journal.PutNode(s.Name, s.Status)
}

// remembers reports whether a state is of a Node that is this machine's: what an earlier
// process left says that there is one, and no status is left before it is registered.
func (n *node) remembers(s nodesync.State) bool {
	return s.Status != nil && (s.UID != "" || s.Standalone || n.earlier(s.Name) != nil)
}

// emit records an event about the Node; its UID is its name, as the kubelet has it.
func (n *node) emit(e nodestatus.Event) {
	n.mu.Lock()
	n.events++
	id := events.ID{Feed: "status", Epoch: n.epoch, Key: strconv.Itoa(n.events)}
	n.mu.Unlock()
	name := n.settings.node()
	n.recorder.Emit(id, &eventv1.Event{
		Object: &eventv1.ObjectReference{Kind: "Node", Name: name, Uid: name},
		Type:   e.Type, Reason: e.Reason, Message: e.Message, Time: timestamppb.Now(),
	})
}

// claimDrivers are the node's drivers of resource claims; false while they are not known.
func (in *inputs) claimDrivers() ([]string, bool) {
	r, ok := in.resources.Get(nodeKey)
	if !ok || r.ClaimDrivers == nil {
		return nil, false
	}
	return r.ClaimDrivers, true
}
