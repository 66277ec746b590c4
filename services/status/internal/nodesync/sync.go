// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/status/internal/history"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
)

// API is what is asked of the API server.
type API interface {
	CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error)
	GetNode(ctx context.Context, name string) (*v1.Node, error)
	PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error)
}

// Facts is what the node is rendered from.
type Facts struct {
	// Input of the rendering; Old and Now are filled in here.
	Input nodestatus.Input
	// Registration of the Node.
	Registration nodestatus.Registration
	// Register is registerNode.
	Register bool
	// Standalone: there is no API server.
	Standalone bool
	// Period and Report are nodeStatusUpdateFrequency and nodeStatusReportFrequency.
	Period, Report time.Duration
	// Addresses decides the addresses, given those the Node has.
	Addresses func(existing []v1.NodeAddress) ([]v1.NodeAddress, error)
	// Node is the Node as config lists it, nil when it does not. Epoch is that of
	// config's feed, which begins with what an earlier life of config listed.
	Node  *v1.Node
	Epoch string
	// Journaled is the last status of an earlier process, nil for none.
	Journaled *v1.NodeStatus
	// Settled: what is known so far is enough to register with.
	Settled bool
}

// State is how the Node fares, for the feed status.node and for mirror pods.
type State struct {
	Name       string
	Standalone bool
	// UID of the Node; empty while it does not exist or is being deleted.
	UID    types.UID
	Status *v1.NodeStatus
	Err    string
}

// Startup observes the milestones of a new node; each may come more than once.
type Startup interface {
	// Attempt: the Node is about to be registered.
	Attempt()
	// Registered: the API server made the Node.
	Registered()
	// Ready: the API server knows that the node is ready.
	Ready()
}

// Deps of the loop.
type Deps struct {
	API API
	// Facts answers at once; false while the node's configuration is not known.
	Facts func() (Facts, bool)
	// Publish gets every new state, from the loop's goroutine.
	Publish func(State)
	// Emit records an event about the Node.
	Emit func(nodestatus.Event)
	// Startup observes how far the start of the node has come.
	Startup Startup
	// Wake says that a fact has changed.
	Wake signal.Signal
	// Beat is called each time the loop comes round.
	Beat func()
	Log  *slog.Logger
}

// retries are the waits of registering and of writing.
var retries = backoff.Doubling{Least: 100 * time.Millisecond, Most: 7 * time.Second}

// calm is the shortest time between two renderings once the node was ready.
const calm = time.Second

var errGone = errors.New("the Node was deleted at the API server; " +
	"it is registered again when this service starts, and kept again when others make it")

// Sync is the loop.
type Sync struct {
	deps Deps

	// What follows belongs to Run's goroutine.
	node       *v1.Node
	listed     history.Listed // of config
	registered bool
	created    bool // by this process
	gone       bool // the API server said that the Node was deleted
	asked      asked
	tries      int
	written    time.Time
	reportIn   time.Duration
	rendered   *v1.NodeStatus
	ignored    []byte // what the API server accepted and does not show (nodestatus.News)
	homeless   string // why the node has no address, as it was last logged
}

// New makes a loop; Run works.
func New(deps Deps) *Sync { return &Sync{deps: deps} }

// Run works until ctx ends.
func (s *Sync) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.deps.Wake:
		}
		if s.deps.Beat != nil {
			s.deps.Beat()
		}
		wait := s.round(ctx)
		timer.Reset(wait)
		if !s.rest(ctx, timer) {
			return nil
		}
	}
}

// rest keeps a burst of changes from rendering at full speed.
func (s *Sync) rest(ctx context.Context, timer *time.Timer) bool {
	pause := calm
	if s.rendered == nil || !isReady(s.rendered) {
		pause = retries.Least
	}
	rest := time.NewTimer(pause)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	case <-timer.C:
		s.deps.Wake.Send()
	}
	return true
}

// round renders and writes once, and says when to come again.
func (s *Sync) round(ctx context.Context) time.Duration {
	facts, ok := s.deps.Facts()
	if !ok {
		return calm
	}
	s.observe(facts)
	err := s.look(ctx, facts)
	if !facts.Standalone && !s.registered && !s.gone && facts.Settled {
		err = s.register(ctx, facts)
	}
	old := s.old(facts)
	in := facts.Input
	in.Now, in.Old = time.Now(), *old
	addresses, addressErr := facts.Addresses(old.Addresses)
	s.tellAddress(addressErr)
	in.Addresses = addresses
	status := nodestatus.Render(in)
	s.events(facts, *old, status)
	s.rendered = &status
	if s.registered {
		err = errors.Join(err, s.write(ctx, facts, status))
	}
	state := State{Name: facts.Input.Name, Standalone: facts.Standalone, Status: &status}
	if s.node != nil && s.node.DeletionTimestamp == nil && !s.gone {
		state.UID = s.node.UID
	}
	failure := err
	if failure == nil && s.gone {
		failure = errGone
	}
	if failure == nil {
		failure = addressErr
	}
	if failure != nil {
		state.Err = failure.Error()
	}
	s.deps.Publish(state)
	return s.next(facts, err)
}

// tellAddress logs that there is no address, and why, when that changes.
func (s *Sync) tellAddress(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why == s.homeless {
		return
	}
	s.homeless = why
	if err != nil {
		s.deps.Log.Warn("node has no address", service.KeyError, why)
		return
	}
	s.deps.Log.Info("node has an address again")
}

func (s *Sync) next(facts Facts, err error) time.Duration {
	if err != nil || (!facts.Standalone && !s.registered && !s.gone) {
		s.tries++
		return retries.After(s.tries)
	}
	s.tries = 0
	// At least once a minute, for the watchdog.
	return min(facts.Period, time.Minute) + time.Duration(rand.Int64N(int64(facts.Period)/25+1))
}

// observe takes over what config lists of the Node, if that is news.
func (s *Sync) observe(facts Facts) {
	if facts.Node == nil || s.node == nil || facts.Node.UID != s.node.UID {
		return
	}
	if s.listed.News(facts.Epoch, version(facts.Node), version(s.node)) {
		s.learn(facts.Node)
	}
}

// learn takes over the Node as the API server has it. A cordon is reported once,
// whether config or the answer to a write shows it first.
func (s *Sync) learn(n *v1.Node) {
	if n.Spec.Unschedulable != s.node.Spec.Unschedulable {
		s.deps.Emit(nodestatus.Schedulable(n.Name, n.Spec.Unschedulable))
	}
	s.node = n
}

// old is the status to render from.
func (s *Sync) old(facts Facts) *v1.NodeStatus {
	switch {
	case s.node != nil:
		return &s.node.Status
	case facts.Node != nil:
		return &facts.Node.Status
	case s.rendered != nil:
		return s.rendered
	case facts.Journaled != nil:
		return facts.Journaled
	}
	return &v1.NodeStatus{}
}

// events says what has changed since the last rendering or, for the first one, since
// what an earlier process left.
func (s *Sync) events(facts Facts, old, new v1.NodeStatus) {
	was := &old
	first := s.rendered == nil
	switch {
	case !first:
		was = s.rendered
	case s.created:
		was = &v1.NodeStatus{}
	}
	changes := nodestatus.Transitions(facts.Input.Name, *was, new)
	rebooted := slices.ContainsFunc(changes, func(e nodestatus.Event) bool { return e.Reason == nodestatus.ReasonRebooted })
	if rebooted || (first && facts.Journaled == nil) {
		s.deps.Emit(nodestatus.Starting())
	}
	for _, e := range changes {
		s.deps.Emit(e)
	}
}

// register creates the Node, or takes over the one there is.
func (s *Sync) register(ctx context.Context, facts Facts) error {
	if err := fault.Hit(ctx, "status.register"); err != nil {
		return err
	}
	name := facts.Input.Name
	if facts.Register {
		node := nodestatus.Object(facts.Registration)
		in := facts.Input
		in.Now, in.Old = time.Now(), v1.NodeStatus{}
		if addresses, err := facts.Addresses(nil); err == nil {
			in.Addresses = addresses
		}
		node.Status = nodestatus.Render(in)
		s.deps.Startup.Attempt()
		created, err := s.deps.API.CreateNode(ctx, node)
		switch {
		case err == nil:
			s.deps.Startup.Registered()
			if isReady(&created.Status) {
				s.deps.Startup.Ready()
			}
			s.deps.Log.Info("node registered", "node", name)
			s.node, s.registered, s.created, s.written = created, true, true, time.Now()
			s.reportIn = jitter(facts.Report)
			s.ignored, err = nodestatus.News(created, node)
			return err
		case !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err):
			return err
		}
	}
	existing, err := s.deps.API.GetNode(ctx, name)
	if err != nil {
		return err
	}
	s.node = existing
	if !facts.Register {
		s.registered = true
		return nil
	}
	registration := facts.Registration
	// However often it was rendered by now: a machine that waits for the API server, or for
	// its own resources, is no less new.
	registration.Fresh = facts.Journaled == nil
	body, err := nodestatus.Patch(existing, nodestatus.Reconcile(existing, registration))
	if err != nil {
		return err
	}
	if body != nil {
		if s.node, err = s.deps.API.PatchNodeStatus(ctx, name, body); err != nil {
			s.node = existing
			return err
		}
	}
	s.deps.Log.Info("node was registered before", "node", name, "reconciled", body != nil)
	s.registered = true
	return nil
}

// write sends a status that says something new, or is due.
func (s *Sync) write(ctx context.Context, facts Facts, status v1.NodeStatus) error {
	now := time.Now()
	want := nodestatus.Maintain(s.node, facts.Registration)
	want.Status = status
	news, err := nodestatus.News(s.node, want)
	if err != nil {
		return err
	}
	// What an API server does not take, for want of a field or for a webhook, goes with a
	// report that is due anyway.
	same := bytes.Equal(news, s.ignored)
	if same && s.written.IsZero() {
		// An earlier process wrote it: others see how old it is. What it wrote by a clock that
		// was ahead is of no age, and is written again now.
		if at := nodestatus.Heartbeat(s.node.Status); !at.After(now) {
			s.written = at
		}
		s.reportIn = jitter(facts.Report)
	}
	if same && now.Sub(s.written) < s.reportIn {
		return nil
	}
	if err := fault.Hit(ctx, "status.node"); err != nil {
		return err
	}
	body, err := nodestatus.Patch(s.node, want)
	if err != nil || body == nil {
		return err
	}
	answered, err := s.deps.API.PatchNodeStatus(ctx, facts.Input.Name, body)
	if apianswer.NotFound(err) {
		s.lose(facts.Input.Name)
		return nil
	}
	if err != nil {
		return err
	}
	if answered.UID != s.node.UID {
		s.adopt(answered) // it was given only what is new, and is given the rest now
		s.deps.Wake.Send()
		return nil
	}
	s.learn(answered)
	s.written = now
	if isReady(&answered.Status) {
		s.deps.Startup.Ready()
	}
	if !same || s.reportIn == 0 {
		s.reportIn = jitter(facts.Report)
	} else {
		s.reportIn = facts.Report
	}
	s.ignored, err = nodestatus.News(answered, want)
	return err
}

// jitter spreads the report period of many nodes by half either way.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + time.Duration(rand.Int64N(int64(d)))
}

func version(n *v1.Node) uint64 {
	v, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func isReady(s *v1.NodeStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
