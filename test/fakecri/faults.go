// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Match chooses calls. Every field that is set must match.
type Match struct {
	Method string // "RunPodSandbox"; no service name
	ID     string // the sandbox or container the request names, in full
	Name   string // the container's name, the pod's name, or the image reference
}

func (m Match) matches(c *Call) bool {
	return (m.Method == "" || m.Method == c.Method) &&
		(m.ID == "" || m.ID == c.ID) &&
		(m.Name == "" || m.Name == c.Name || m.Name == c.Pod)
}

// Fault is something that was told to go wrong.
type Fault struct {
	r    *Runtime
	undo func() // called once, with mu held
}

// Undo takes the fault back; the second time it does nothing.
func (f *Fault) Undo() {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.undo != nil {
		f.undo()
		f.undo = nil
		f.r.notify()
	}
}

// faults are the instructions in force; Runtime.mu guards them.
type faults struct {
	rules           []*rule
	containerStates map[string]runtimeapi.ContainerState
	sandboxStates   map[string]runtimeapi.PodSandboxState
	hiddenIPs       map[string]bool
}

// rule acts on the calls it matches, in the order the rules were given.
type rule struct {
	match Match
	left  int   // calls it still acts on; negative: no limit
	fail  error // answered instead of acting
	after error // answered after acting
	lie   func(req, resp proto.Message)
	stall *Stall
}

func (r *Runtime) addRule(ru *rule) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, ru)
	return &Fault{r: r, undo: func() {
		r.rules = slices.DeleteFunc(r.rules, func(x *rule) bool { return x == ru })
	}}
}

// Fail makes the next n matching calls return err without doing anything;
// negative n: all until Undo. err is a status error, or it is code Unknown.
func (r *Runtime) Fail(m Match, n int, err error) *Fault {
	return r.addRule(&rule{match: m, left: n, fail: err})
}

// FailAfter is Fail, but the work is done and only the answer is lost.
func (r *Runtime) FailAfter(m Match, n int, err error) *Fault {
	return r.addRule(&rule{match: m, left: n, after: err})
}

// Lie changes the answers of matching calls until Undo. req must not be
// changed. On a stream, resp is each message sent.
func (r *Runtime) Lie(m Match, change func(req, resp proto.Message)) *Fault {
	return r.addRule(&rule{match: m, left: -1, lie: change})
}

// Stall catches matching calls before they do anything until Release. A call
// whose context ends leaves with that error, without having done anything.
func (r *Runtime) Stall(m Match) *Stall { return r.StallNext(m, -1) }

// StallNext is Stall for the next n matching calls; negative n: for all.
func (r *Runtime) StallNext(m Match, n int) *Stall {
	return r.addGate(m, n, &Stall{r: r, release: make(chan struct{})})
}

// Linger is Stall for calls that outlive their callers, as containerd's do from some
// point on: a call whose context ends stays caught, and does its work when it is
// released, although its answer reaches nobody. RunPodSandbox, CreateContainer and
// StartContainer are caught after they have judged the request, with the name of
// what they make taken.
func (r *Runtime) Linger(m Match) *Stall { return r.LingerNext(m, -1) }

// LingerNext is Linger for the next n matching calls; negative n: for all.
func (r *Runtime) LingerNext(m Match, n int) *Stall {
	return r.addGate(m, n, &Stall{r: r, release: make(chan struct{}), lingers: true})
}

func (r *Runtime) addGate(m Match, n int, s *Stall) *Stall {
	s.fault = r.addRule(&rule{match: m, left: n, stall: s})
	return s
}

// Stall is a gate that holds calls.
type Stall struct {
	r       *Runtime
	fault   *Fault
	release chan struct{}
	lingers bool
	caught  int // ever, guarded by Runtime.mu
	done    bool
}

// Caught is how many calls have run into the gate so far.
func (s *Stall) Caught() int {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.caught
}

// Wait waits until n calls have run into the gate.
func (s *Stall) Wait(ctx context.Context, n int) error {
	return s.r.WaitFor(ctx, func() bool { return s.Caught() >= n })
}

// Release lets all go and takes the gate away; the second time it does nothing.
func (s *Stall) Release() {
	s.fault.Undo()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if !s.done {
		s.done = true
		close(s.release)
	}
}

// LieContainerState reports a state for a container, in lists, status and
// events, whatever it does in truth.
func (r *Runtime) LieContainerState(id string, state runtimeapi.ContainerState) *Fault {
	return lieIn(r, &r.containerStates, id, state)
}

// LieSandboxState reports a state for a sandbox, in lists, status and events.
func (r *Runtime) LieSandboxState(id string, state runtimeapi.PodSandboxState) *Fault {
	return lieIn(r, &r.sandboxStates, id, state)
}

// HideIP reports a sandbox without its address.
func (r *Runtime) HideIP(sandboxID string) *Fault {
	return lieIn(r, &r.hiddenIPs, sandboxID, true)
}

func lieIn[V any](r *Runtime, lies *map[string]V, id string, v V) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if *lies == nil {
		*lies = map[string]V{}
	}
	(*lies)[id] = v
	r.notify()
	return &Fault{r: r, undo: func() { delete(*lies, id) }}
}

// FreezeLists makes ListContainers and ListPodSandbox, and their Stream forms,
// tell what is true now until Undo, filters included.
func (r *Runtime) FreezeLists() *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &frozenLists{containers: r.listedContainers(nil), sandboxes: r.listedSandboxes(nil)}
	r.frozen = f
	return &Fault{r: r, undo: func() {
		if r.frozen == f {
			r.frozen = nil
		}
	}}
}

type frozenLists struct {
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
}

// JumpClock moves the timestamps made from now on; timers are not moved.
func (r *Runtime) JumpClock(d time.Duration) { r.skew.Add(int64(d)) }

// SetCondition sets a runtime condition, adding one that is not known yet.
func (r *Runtime) SetCondition(typ string, ok bool, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cond := &runtimeapi.RuntimeCondition{Type: typ, Status: ok, Reason: reason, Message: message}
	for i, c := range r.conditions {
		if c.Type == typ {
			r.conditions[i] = cond
			return
		}
	}
	r.conditions = append(r.conditions, cond)
}

// orders are what the rules say about one call.
type orders struct {
	gates []*Stall
	fail  error
	after error
	lies  []func(req, resp proto.Message)
}

// apply takes the rules for a call. The caller holds mu.
func (r *Runtime) apply(c *Call) (o orders) {
	for _, ru := range r.rules {
		if ru.left == 0 || !ru.match.matches(c) {
			continue
		}
		if ru.fail != nil && o.fail != nil {
			continue // one failure per call; the next rule keeps its count
		}
		if ru.left > 0 {
			ru.left--
		}
		switch {
		case ru.stall != nil:
			ru.stall.caught++
			o.gates = append(o.gates, ru.stall)
		case ru.fail != nil:
			o.fail = ru.fail
		case ru.after != nil:
			o.after = ru.after
		case ru.lie != nil:
			o.lies = append(o.lies, ru.lie)
		}
	}
	r.rules = slices.DeleteFunc(r.rules, func(ru *rule) bool { return ru.left == 0 })
	if len(o.gates) > 0 {
		r.notify()
	}
	return o
}

// lateKey is the context's key of the gate a call waits at in the middle.
type lateKey struct{}

// pass waits until all gates are open. Behind one that lingers the context is no
// longer the caller's.
func pass(ctx context.Context, gates []*Stall, creates bool) (context.Context, error) {
	for _, g := range gates {
		if g.lingers {
			ctx = context.WithoutCancel(ctx)
			if creates {
				ctx = context.WithValue(ctx, lateKey{}, g)
				continue
			}
		}
		select {
		case <-g.release:
		case <-ctx.Done():
			return ctx, fmt.Errorf("stalled: %w", ctx.Err())
		}
	}
	return ctx, nil
}

// linger holds a creating call in its middle until its gate opens. The caller holds
// mu, which is free meanwhile.
func (r *Runtime) linger(ctx context.Context) {
	if g, ok := ctx.Value(lateKey{}).(*Stall); ok {
		r.mu.Unlock()
		<-g.release
		r.mu.Lock()
	}
}
