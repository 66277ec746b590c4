// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sextant-node/sextant/services/supervisor"
)

// Agent is what Unit is.
type Agent string

const (
	Kubelet Agent = "the kubelet"
	Sextant Agent = "Sextant"
)

// other is what a change that fails goes back to.
func (a Agent) other() Agent {
	if a == Sextant {
		return Kubelet
	}
	return Sextant
}

// Change is one change-over.
type Change struct {
	Files Files
	Node  Node
	// To is the agent that the node gets.
	To Agent
	// Joined: the node has its configuration. Without it the agent cannot be well yet, and
	// is not waited for.
	Joined bool
	// Args are flags for Sextant that are not in kubeadm's files; nil where they are.
	Args []string
	// Ran are the flags of the agent that the node has.
	Ran []string
	// Limit is how long the node may take to be as it was.
	Limit time.Duration
	// Step runs a step and says how it went.
	Step func(name string, do func() (string, error)) error
}

// undoLimit is how long going back may take, which no signal ends.
const undoLimit = 2 * time.Minute

// ErrUndone is in the error of a change that failed and went back.
var ErrUndone = errors.New("the node has its former agent again")

// Run makes the change. Where no agent runs, only the unit files change, but for a node
// whose agent an earlier change ended, which was killed then. An agent that does not get
// the node Ready, and a signal, make it go back.
func (c *Change) Run(ctx context.Context) error {
	runs, err := c.runs(ctx)
	if err != nil {
		return err
	}
	unfinished, err := c.Files.Unfinished()
	if err != nil {
		return err
	}
	if runs {
		if err := c.Files.begin(c.Ran); err != nil {
			return err
		}
	}
	runs = runs || unfinished != nil
	var before Seen
	if c.Joined {
		before = c.Node.See(ctx)
	}
	began, err := c.switchTo(ctx, c.To, runs)
	if err == nil && !began.IsZero() && c.Joined {
		err = c.Step("node as before", func() (string, error) { return c.await(ctx, before, began) })
	}
	if err == nil {
		return c.Files.finish()
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if _, back := c.switchTo(undo, c.To.other(), runs); back != nil {
		return errors.Join(err, fmt.Errorf("and back to %s: %w", c.To.other(), back))
	}
	return errors.Join(fmt.Errorf("%w; %w: %s", err, ErrUndone, c.To.other()), c.Files.finish())
}

// runs reports whether the node has an agent that systemd runs.
func (c *Change) runs(ctx context.Context) (bool, error) {
	for _, unit := range []string{Unit, supervisor.Slice} {
		active, err := supervisor.UnitActive(ctx, unit)
		if active || err != nil {
			return active, err
		}
	}
	return false, nil
}

// switchTo ends whatever agent runs, changes the unit files and starts the other agent, if
// it is installed. It returns when that began to work, zero if it was not started: what the
// former one did in its last moments is not the other's.
func (c *Change) switchTo(ctx context.Context, to Agent, start bool) (began time.Time, err error) {
	if err := c.Step("former agent stopped", func() (string, error) {
		return "", errors.Join(supervisor.StopUnit(ctx, Unit), supervisor.StopUnit(ctx, supervisor.Slice))
	}); err != nil {
		return time.Time{}, err
	}
	if err := c.Step(Unit+" changed", func() (string, error) { return "it is " + string(to), c.change(ctx, to) }); err != nil {
		return time.Time{}, err
	}
	if !start {
		return time.Time{}, nil
	}
	defined, err := supervisor.UnitDefined(ctx, Unit)
	if err != nil {
		return time.Time{}, err
	}
	if !defined {
		return time.Time{}, c.Step(Unit+" started", func() (string, error) { return "not: no kubelet is installed", nil })
	}
	began = time.Now()
	return began, c.Step(Unit+" started", func() (string, error) { return "", supervisor.StartUnit(ctx, Unit) })
}

func (c *Change) change(ctx context.Context, to Agent) error {
	if to == Kubelet {
		return errors.Join(c.Files.Remove(), supervisor.ReloadUnits(ctx))
	}
	defined, err := supervisor.UnitDefined(ctx, Unit)
	if err != nil {
		return err
	}
	return errors.Join(c.Files.Write(!defined, c.Args), supervisor.ReloadUnits(ctx))
}

// pause is how often the node is looked at.
const pause = 500 * time.Millisecond

// await waits until the node is as it was before.
func (c *Change) await(ctx context.Context, before Seen, began time.Time) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		missing := Missing(before, c.Node.See(ctx), began)
		if missing == "" {
			return c.remark(before), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("not within %s: %s", c.Limit, missing)
		case <-tick.C:
		}
	}
}

func (c *Change) remark(before Seen) string {
	switch {
	case before.API != "":
		return "healthy; the API server was not asked: " + before.API
	case before.Ready:
		return "Ready"
	}
	return "healthy; it was not Ready before: " + before.Message
}
