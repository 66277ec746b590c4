// SPDX-License-Identifier: Apache-2.0

package step

import (
	"maps"
	"slices"
	"time"

	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// learning folds what is observed into the facts.
type learning struct{ agenda }

// setBack takes what waits are counted from, and lies ahead of now, for now: the clock was
// set back since. Without that the wait would last until the clock is there again. A
// grace that is running begins anew. Times that only people read stay as they are.
func (p *learning) setBack() {
	now := p.in.Now
	for name, c := range p.f.Containers {
		c.Crash.Updated = earlier(c.Crash.Updated, now)
		if c.Last != nil && c.Last.Exit != nil && c.Last.Exit.At.After(now) {
			last, exit := *c.Last, *c.Last.Exit
			exit.At = now
			last.Exit, c.Last = &exit, &last
		}
		p.f.Containers[name] = c
	}
	for key, pull := range p.f.Pulls {
		pull.Backoff.Updated, pull.Looked = earlier(pull.Backoff.Updated, now), earlier(pull.Looked, now)
		p.f.Pulls[key] = pull
	}
	p.f.RestartedAll, p.f.Sandboxed = earlier(p.f.RestartedAll, now), earlier(p.f.Sandboxed, now)
	for id, k := range p.f.Kills {
		if k.Grace > 0 {
			k.Deadline = earlier(k.Deadline, now.Add(k.Grace))
		}
		p.f.Kills[id] = k
	}
	if r := p.f.Rejected; r != nil {
		r.At, r.Asked = earlier(r.At, now), earlier(r.Asked, now)
	}
	if t := p.f.Termination; t != nil {
		t.Started, t.Deadline = earlier(t.Started, now), earlier(t.Deadline, now.Add(t.Grace))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// rebooted ends the back-offs of a former boot: what ended with the machine did not
// fail, and what did may be well now. A kubelet remembers none either.
func (p *learning) rebooted() {
	if was := p.f.Boot; was != "" && was != p.in.Boot {
		for name, c := range p.f.Containers {
			c.Crash, c.CrashKey = restart.Backoff{}, ""
			p.f.Containers[name] = c
		}
		p.f.Pulls = nil
	}
	p.f.Boot = p.in.Boot
}

// trust takes out of the record what this process has removed since, and lets a
// newer record correct what was believed of the rest.
func (p *learning) trust() {
	o := &p.in.Observed
	if o.Current {
		for _, c := range o.Containers {
			if (c.State == Running || c.State == Unknown) && p.f.Dead[c.ID] {
				p.contradict(Action{Kind: Stop, ID: c.ID})
			}
			if p.f.Removed[c.ID] {
				p.contradict(Action{Kind: Remove, ID: c.ID})
			}
		}
		for _, s := range o.Sandboxes {
			if s.Ready && p.f.Stopped[s.ID] {
				p.contradict(Action{Kind: StopSandbox, ID: s.ID})
				delete(p.f.Stopped, s.ID)
			}
			if p.f.Removed[s.ID] {
				p.contradict(Action{Kind: RemoveSandbox, ID: s.ID})
			}
		}
		maps.DeleteFunc(p.f.Failures, func(_ Key, f Failure) bool { return f.Reported })
		p.f.Removed, p.f.Dead = map[string]bool{}, map[string]bool{}
		maps.DeleteFunc(p.f.Pinned, func(id, _ string) bool {
			return !slices.ContainsFunc(o.Containers, func(c Instance) bool { return c.ID == id })
		})
		maps.DeleteFunc(p.f.Stopped, func(id string, _ bool) bool {
			return !slices.ContainsFunc(o.Sandboxes, func(s Sandbox) bool { return s.ID == id })
		})
		return
	}
	o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c Instance) bool { return p.f.Removed[c.ID] })
	o.Sandboxes = slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s Sandbox) bool { return p.f.Removed[s.ID] })
}

// contradict counts an act as failed that the runtime reported done, and a
// newer record says was not.
func (p *learning) contradict(a Action) {
	fail(&p.f, p.in.UID, a, Failed{Reason: "RuntimeError", Message: "the runtime reported success, and nothing changed"}, p.in.Now)
}

// learn folds what is observed into the facts.
func (p *learning) learn() {
	seen := map[string]bool{}
	for i := range p.in.Observed.Containers { // newest first
		o := &p.in.Observed.Containers[i]
		if o.State == Created || seen[o.Name] {
			continue
		}
		seen[o.Name] = true
		c := p.f.Containers[o.Name]
		if o.RestartCount+1 < c.Instances {
			continue // an older one; the newest is gone
		}
		last := &Last{ID: o.ID, Sandbox: o.Sandbox}
		if o.State == Exited {
			last.Exit = &Exit{Code: o.ExitCode, At: earlier(o.FinishedAt, p.in.Now)}
			if was := c.Last; was != nil && was.ID == o.ID && was.Exit != nil {
				last.Exit.At = earlier(last.Exit.At, was.Exit.At)
			}
		}
		c.Instances, c.Last = o.RestartCount+1, last
		p.f.Containers[o.Name] = c
	}
	p.lost()
	for id := range p.f.Kills {
		if !p.running(id) && !p.f.Dead[id] && p.in.Observed.Known && !p.flying(Action{Kind: Stop, ID: id}.Key()) && !p.flying(Action{Kind: PreStop, ID: id}.Key()) {
			delete(p.f.Kills, id)
		}
	}
}

// lost notes the end of instances that a record newer than they are does not
// list, or lists as never started: the runtime lost them, or that it had started
// them, and with them how they ended. A machine that loses its power leaves a
// runtime whose files end before its memory did.
func (p *learning) lost() {
	if !p.in.Observed.Known || !p.in.Observed.Verified || p.in.Observed.Error != "" {
		return
	}
	for name, c := range p.f.Containers {
		if c.Last == nil || c.Last.Exit != nil || p.flying(Action{Kind: Start, Container: name}.Key()) {
			continue
		}
		if o := p.instanceByID(c.Last.ID); o == nil || o.State == Created {
			last := *c.Last
			last.Exit = &Exit{Code: killedExitCode, At: p.in.Now}
			c.Last = &last
			p.f.Containers[name] = c
		}
	}
}

// interrupted takes an instance whose start was not answered for one that was only
// created: the runtime gives up a start when its caller dies, and so does a runtime
// that dies. One that the runtime said it could not start is an exit like others.
func (p *learning) interrupted() {
	cloned := false
	for i := range p.in.Observed.Containers {
		o := &p.in.Observed.Containers[i]
		f, failed := p.f.Failures[Action{Kind: Start, Container: o.Name}.Key()]
		if !o.NeverRan || o.RestartCount < p.f.Containers[o.Name].Instances || failed && !f.Away {
			continue
		}
		if !cloned {
			p.in.Observed.Containers, cloned = slices.Clone(p.in.Observed.Containers), true
		}
		p.in.Observed.Containers[i].State = Created
	}
}
