// SPDX-License-Identifier: Apache-2.0

package step

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a node as a step sees it: it carries out what plans ask for.
type world struct {
	in      Input
	now     time.Time
	plan    Plan
	away    map[string]bool // "volume", "pleg": does not answer
	forgot  bool
	serial  int
	exit    int32 // exit code of containers that are stopped
	loaded  bool  // images are there without having been pulled
	sandbox []Sandbox
	conts   []Instance
	// asks is the pod as its owner wants it; sizes what resource has allocated of
	// it, and given what containers were made with, by ID.
	asks  *v1.Pod
	sizes *v1.PodSpec
	given map[string]pod.Size
	// late reports whether something that was given up is carried out all the same; owed
	// is what will be, at some time.
	late func() bool
	owed []Action
	// refuse reports whether resource refuses the pod it is asked about.
	refuse func() bool
	// order chooses the orders of what must not depend on one.
	order *rand.Rand
	// used are the IDs of all containers ever made: the runtime never gives one twice.
	used map[string]bool
}

func newWorld(p *v1.Pod) *world {
	w := &world{now: epoch, away: map[string]bool{}, given: map[string]pod.Size{}, used: map[string]bool{}, in: Input{
		UID:     "uid-1",
		Boot:    "boot",
		Config:  Config{PodsComplete: true, SourcesComplete: true},
		Flights: map[Key]Flight{},
		Network: Network{Ready: true},

		ServicesKnown: true, NodeKnown: true,
		Verdicts:  map[string]Probes{},
		Volumes:   Volumes{Gone: true},
		Resources: Resources{Gone: true},
		Settings:  Settings{Crash: restart.CrashPolicy(0), KeepDead: 1},
	}}
	if p != nil {
		w.desire(p)
	}
	w.refresh()
	return w
}

func (w *world) desire(p *v1.Pod) {
	w.asks = p
	if w.sizes != nil {
		p = pod.WithSizes(p, w.sizes)
	}
	begun := time.Time{}
	if w.in.Desired != nil {
		begun = w.in.Desired.Begun
	}
	w.in.Desired = &Desired{Pod: p, Source: "api", Begun: begun, Fingerprint: uint64(p.Generation) + 1, Asks: pod.SizesID(w.asks)}
	w.in.Accepted = p
	w.in.UID = p.UID
}

// refresh takes the record again.
func (w *world) refresh() {
	o := &w.in.Observed
	if w.away["pleg"] {
		o.RefreshError = "pleg does not answer"
		return
	}
	*o = Observed{Known: true, Verified: true, Current: true, Error: o.Error,
		Sandboxes: slices.Clone(w.sandbox), Containers: slices.Clone(w.conts)}
}

// stepOnce plans, and lets what was planned begin.
func (w *world) stepOnce() Plan {
	w.in.Now = w.now
	p := Step(w.in)
	w.plan = p
	w.in.Facts = p.Facts
	w.forgot = w.forgot || p.Forget
	for _, key := range p.Cancel {
		f := w.in.Flights[key]
		f.Cancelled = true
		w.in.Flights[key] = f
	}
	for _, a := range p.Start {
		w.in.Flights[a.Key()] = Flight{Action: a, Since: w.now.Add(time.Millisecond)} // no clock stands still
	}
	return p
}

// queue has an action under way wait for its turn, or begin.
func (w *world) queue(key Key, waits bool) error {
	f, ok := w.in.Flights[key]
	if !ok {
		return fmt.Errorf("%s is not under way: %v", key, slices.Sorted(maps.Keys(w.in.Flights)))
	}
	f.Queued = waits
	w.in.Flights[key] = f
	return nil
}

// end gives an action under way its result.
func (w *world) end(key Key, failed *Failed) error {
	f, ok := w.in.Flights[key]
	if !ok {
		return fmt.Errorf("%s is not under way: %v", key, slices.Sorted(maps.Keys(w.in.Flights)))
	}
	delete(w.in.Flights, key)
	var r Result
	switch {
	case f.Cancelled:
		r.Cancelled = true
		w.giveUp(f.Action)
	case failed != nil:
		r.Failed = failed
	default:
		r = w.act(f.Action)
	}
	if k := f.Action.Kind; k.Changes() {
		w.in.Observed.Current = false
		if k.Creates() {
			w.in.Observed.Verified = false
		}
	}
	var events []Event
	w.in.Facts, events = Apply(w.in.Facts, w.in.UID, f.Action, r, w.now)
	w.plan.Events = append(w.plan.Events, events...)
	return nil
}

func (w *world) act(a Action) Result {
	switch a.Kind {
	case Admit:
		if !a.Running && w.in.Facts.State != Syncing && w.refuse != nil && w.refuse() {
			return Result{Admission: &Answer{Decision: Refused, Reason: "OutOfcpu"}}
		}
		w.in.Resources.Held, w.in.Resources.Read, w.in.Resources.Gone, w.in.Resources.Lost = true, true, false, false
		if w.asks != nil && w.sizes == nil {
			w.in.Resources.Asked, w.sizes = pod.SizesID(w.asks), pod.Sizes(w.asks)
		}
		return Result{Admission: &Answer{Decision: Admitted, CgroupParent: "/kubepods/poduid-1"}}
	case Declare:
		w.in.Volumes.Gone = false
		w.in.Volumes.Listed = true
		if !w.away["volume"] {
			w.in.Volumes.Ready = true
		}
		if w.in.Desired == nil {
			return Result{Fingerprint: w.in.Facts.Declared}
		}
		return Result{Fingerprint: w.in.Desired.Fingerprint}
	case Withdraw:
		if !w.away["volume"] {
			w.in.Volumes = Volumes{Gone: true}
		}
	case Release:
		w.in.Resources, w.sizes = Resources{Gone: true}, nil
	case Resize:
		if w.in.Desired != nil && w.sizes != nil { // else resource does not know the pod
			w.in.Resources.Asked = w.in.Desired.Asks
			w.allocate()
		}
	case Update:
		for _, c := range a.Changes {
			w.given[c.ID] = c.To
		}
	case Settle:
		if uint64(a.Attempt) == w.in.Resources.Allocation {
			w.in.Resources.Settled = w.in.Resources.Allocation
		}
	case Look:
		if !w.loaded {
			return Result{}
		}
		return Result{Ref: "sha256:" + a.Image}
	case Pull:
		return Result{Ref: "sha256:" + a.Image}
	case RunSandbox:
		w.serial++
		s := Sandbox{ID: "s" + strconv.Itoa(w.serial), Attempt: uint32(a.Attempt), Ready: true, HostNetwork: w.in.Accepted != nil && w.in.Accepted.Spec.HostNetwork}
		if !s.HostNetwork {
			s.IPs = []string{"10.0.0." + strconv.Itoa(w.serial)}
		}
		w.sandbox = slices.Insert(w.sandbox, 0, s)
		return Result{ID: s.ID}
	case Start:
		c, _ := pod.FindContainer(w.in.pod(), a.Container)
		i := Instance{ID: w.id(fmt.Sprintf("%s-%d", a.Container, a.Attempt)), Name: a.Container, Sandbox: a.Sandbox,
			State: Running, RestartCount: a.Attempt, CreatedAt: w.now, Hash: pod.ContainerHash(c)}
		w.conts = slices.Insert(w.conts, 0, i)
		if size := w.in.Facts.Containers[a.Container].Size; size != nil {
			w.given[i.ID] = *size
		}
		return Result{ID: i.ID, CPUs: w.in.Resources.cpusOf(a.Container)}
	case Stop:
		w.die(a.ID, w.exit)
	case StopSandbox:
		for i := range w.sandbox {
			if w.sandbox[i].ID == a.ID {
				w.sandbox[i].Ready = false
			}
		}
		for i := range w.conts {
			if w.conts[i].Sandbox == a.ID {
				w.die(w.conts[i].ID, 137)
			}
		}
	case Remove:
		w.conts = slices.DeleteFunc(w.conts, func(c Instance) bool { return c.ID == a.ID })
	case RemoveSandbox:
		w.sandbox = slices.DeleteFunc(w.sandbox, func(s Sandbox) bool { return s.ID == a.ID })
	}
	return Result{}
}

// id is an unused one that begins so.
func (w *world) id(id string) string {
	for w.used[id] {
		id += "+"
	}
	w.used[id] = true
	return id
}

// allocate gives the pod what it asks for, unless resource has no room.
func (w *world) allocate() {
	if w.away["room"] || w.asks == nil || w.in.Resources.Asked != pod.SizesID(w.asks) || pod.WithSizes(w.asks, w.sizes) == w.asks {
		return
	}
	w.sizes = pod.Sizes(w.asks)
	w.in.Resources.Allocation++
	w.in.Resources.Generation = w.asks.Generation
	w.desire(w.asks)
}

// giveUp lets an action whose caller has gone come to nothing, or to its end, now or,
// if it creates something, later.
func (w *world) giveUp(a Action) {
	switch {
	case w.late == nil || !w.late():
	case a.Kind.Creates() && w.late():
		w.owed = append(w.owed, a)
	default:
		w.act(a)
	}
}

// comeLate carries out the first of what is owed. What the runtime has of that name
// was made meanwhile, and a container needs its sandbox's record.
func (w *world) comeLate() {
	if len(w.owed) == 0 {
		return
	}
	a := w.owed[0]
	w.owed = w.owed[1:]
	named := slices.ContainsFunc(w.sandbox, func(s Sandbox) bool {
		return a.Kind == RunSandbox && int(s.Attempt) == a.Attempt
	}) || slices.ContainsFunc(w.conts, func(c Instance) bool {
		return a.Kind == Start && c.Name == a.Container && c.RestartCount == a.Attempt
	})
	placed := a.Kind == RunSandbox || slices.ContainsFunc(w.sandbox, func(s Sandbox) bool { return s.ID == a.Sandbox })
	if !named && placed && w.in.pod() != nil {
		w.act(a)
		w.refresh()
	}
}

// die ends what was started; containerd leaves the rest as it is.
func (w *world) die(id string, code int32) {
	for i := range w.conts {
		if c := &w.conts[i]; c.ID == id && c.State != Exited && c.State != Created {
			c.State, c.ExitCode, c.FinishedAt = Exited, code, w.now
		}
	}
}

// newestOf finds the newest instance of a container, or one by its ID.
func (w *world) newestOf(name string) (*Instance, error) {
	for i := range w.conts {
		if w.conts[i].Name == name || w.conts[i].ID == name {
			return &w.conts[i], nil
		}
	}
	return nil, fmt.Errorf("no instance of %s", name)
}

// crash is kill -9 and a start: what was under way is gone, of the facts only
// the journal's part is left, and the record was read before.
func (w *world) crash() error {
	raw, err := json.Marshal(w.in.Facts)
	if err != nil {
		return err
	}
	var f Facts
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	w.in.Facts = f
	for _, key := range slices.Sorted(maps.Keys(w.in.Flights)) {
		w.giveUp(w.in.Flights[key].Action)
	}
	w.in.Flights = map[Key]Flight{}
	w.in.Observed.Verified, w.in.Observed.Current = false, false
	w.in.Observed.Sandboxes, w.in.Observed.Containers = slices.Clone(w.sandbox), slices.Clone(w.conts)
	return nil
}
