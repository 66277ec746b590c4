// SPDX-License-Identifier: Apache-2.0

package child

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/keyed"
)

const (
	// most is how many steps begin at a time. A step gives its place away when it
	// takes long, so those that hang delay no others.
	most = 8
	slow = time.Second
	// mostOfPlace is how many of them begin at a time on one place: as many as it costs when
	// it does not answer.
	mostOfPlace = 2
	// mostStuck bounds the processes that a broken node can lose: each keeps its
	// memory, a few MiB of what the service may use.
	mostStuck = 12
	// keep is how long a child without work is kept.
	keep = 10 * time.Second
)

// Config is what a pool is made of.
type Config struct {
	// Command makes the command of a child, which is to call Serve with its
	// standard input and output.
	Command func() *exec.Cmd
	// Freed is called when a place that did not answer may be tried again; nil for
	// nothing.
	Freed func()
	// Clock is the real one when nil.
	Clock clock.WithDelayedExecution
	Log   *slog.Logger
}

// Pool runs steps in children.
type Pool struct {
	cfg   Config
	slots chan struct{}

	gates *keyed.Limit // by place

	mu    sync.Mutex
	idle  []*process
	stuck map[string]*Stuck // by place
	busy  map[string]*Stuck // steps that go through many files, by Task.work
	lost  map[*Stuck]bool
}

// NewPool makes a pool; it starts nothing.
func NewPool(cfg Config) *Pool {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Pool{
		cfg: cfg, slots: make(chan struct{}, most),
		gates: keyed.NewLimit(mostOfPlace), stuck: map[string]*Stuck{}, busy: map[string]*Stuck{}, lost: map[*Stuck]bool{},
	}
}

// Task is one step to be done.
type Task struct {
	Step string
	// On names for people what the step works on; Place is what hangs with it,
	// the path or its file system: On when empty.
	On, Place string
	Args      any
	// Limit is how long it may take.
	Limit time.Duration
	// Long is a step that takes its time where all is well: until its limit, it keeps
	// from its place only others of its kind, so that one that hangs costs one process.
	Long bool
}

// work is what a long step keeps for itself.
func (t *Task) work() string { return t.Step + " " + t.Place }

// process is one child.
type process struct {
	cmd     *exec.Cmd
	greeted bool
	in      io.WriteCloser
	out     *json.Decoder
	retired clock.Timer
}

// Do carries out a step in a child and decodes what it returns into result,
// unless that is nil. The error is *Stuck for as long as the place does not
// answer.
func (p *Pool) Do(t Task, result any) error {
	t.Place = cmp.Or(t.Place, t.On)
	if err := p.hangs(&t); err != nil {
		return err
	}
	args, err := json.Marshal(t.Args)
	if err != nil {
		return err
	}
	leave := p.gates.Lock(t.Place) // each child that has a place gives it back at its limit, at the latest
	p.slots <- struct{}{}
	free := sync.OnceFunc(func() { <-p.slots; leave() })
	defer free()
	if err := p.hangs(&t); err != nil { // found out while this one waited
		return err
	}
	c, err := p.take()
	if err != nil {
		return err
	}
	wait := &Stuck{Step: t.Step, On: t.On, Since: p.cfg.Clock.Now(), PID: c.cmd.Process.Pid}
	done := make(chan outcome, 1)
	go func() {
		o := c.greet()
		if o.err == nil {
			// A child that is slow to start, on a busy node, says nothing about the place.
			late := p.cfg.Clock.AfterFunc(slow, func() { p.late(&t, wait); free() })
			o = c.ask(request{Step: t.Step, Args: args})
			late.Stop()
		}
		done <- o
	}()
	limit := p.cfg.Clock.NewTimer(t.Limit)
	defer limit.Stop()
	select {
	case <-limit.C():
		p.abandon(c, &t, wait)
		return wait
	case o := <-done:
		p.clear(&t, wait)
		if o.err != nil {
			p.end(c)
			return fmt.Errorf("%s %s: its process ended: %w", t.Step, t.On, o.err)
		}
		p.give(c)
		if o.a.Error != "" {
			return errors.New(o.a.Error)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(o.a.Result, result)
	}
}

type outcome struct {
	a   answer
	err error
}

// greet waits until a child that was started just now is there.
func (c *process) greet() (o outcome) {
	if !c.greeted {
		o.err = c.out.Decode(&o.a)
		c.greeted = o.err == nil
	}
	return o
}

func (c *process) ask(r request) (o outcome) {
	if o.err = json.NewEncoder(c.in).Encode(r); o.err == nil {
		o.err = c.out.Decode(&o.a)
	}
	return o
}

// late keeps others from a place that has not answered for a while.
func (p *Pool) late(t *Task, s *Stuck) {
	if t.Long {
		p.keep(p.busy, t.work(), s)
	} else {
		p.keep(p.stuck, t.Place, s)
	}
}

func (p *Pool) keep(in map[string]*Stuck, from string, s *Stuck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.over && in[from] == nil { // of two at the same time, the first counts
		in[from] = s
	}
}

// clear lets others try a place again.
func (p *Pool) clear(t *Task, s *Stuck) {
	p.mu.Lock()
	s.over = true
	was := p.stuck[t.Place] == s
	if was {
		delete(p.stuck, t.Place)
	}
	if p.busy[t.work()] == s {
		was = true
		delete(p.busy, t.work())
	}
	p.mu.Unlock()
	if was && p.cfg.Freed != nil {
		p.cfg.Freed()
	}
}

// Lost lists the children that were left to themselves and have not ended, the
// oldest first.
func (p *Pool) Lost() []Stuck {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Stuck, 0, len(p.lost))
	for s := range p.lost {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return all
}

func (p *Pool) hangs(t *Task) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.stuck[t.Place]; s != nil {
		return s
	}
	if s := p.busy[t.work()]; s != nil {
		return s
	}
	if len(p.lost) >= mostStuck {
		return fmt.Errorf("%d processes wait for file systems that do not answer: no more are started", len(p.lost))
	}
	return nil
}

// take finds an idle child or starts one.
func (p *Pool) take() (*process, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		c.retired.Stop()
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	cmd := p.cfg.Command()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// What the parent began is not carried on when a new parent begins it again.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start of a child: %w", err)
	}
	return &process{cmd: cmd, in: in, out: json.NewDecoder(out)}, nil
}

// give takes a child back.
func (p *Pool) give(c *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
	c.retired = p.cfg.Clock.AfterFunc(keep, func() {
		p.mu.Lock()
		i := slices.Index(p.idle, c)
		if i >= 0 {
			p.idle = slices.Delete(p.idle, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 {
			p.end(c)
		}
	})
}

// end ends a child that is not stuck.
func (p *Pool) end(c *process) {
	c.in.Close() //nolint:errcheck // it is killed in any case
	if err := c.cmd.Process.Kill(); err != nil {
		p.cfg.Log.Debug("child", "error", err.Error())
	}
	c.cmd.Wait() //nolint:errcheck // it was killed
}

// abandon kills a child and keeps others from its place until it has ended, if
// ever.
func (p *Pool) abandon(c *process, t *Task, s *Stuck) {
	p.cfg.Log.Warn("no answer: the process is left to itself", "step", s.Step, "on", s.On, "pid", s.PID)
	p.keep(p.stuck, t.Place, s)
	p.mu.Lock()
	p.lost[s] = true
	p.mu.Unlock()
	go func() {
		p.end(c)
		p.mu.Lock()
		delete(p.lost, s)
		p.mu.Unlock()
		p.clear(t, s)
	}()
}

// Close ends the children that have nothing to do.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.retired.Stop()
		p.end(c)
	}
}
