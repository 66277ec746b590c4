// SPDX-License-Identifier: Apache-2.0

package chains

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// period between two looks at the canary.
	period = time.Minute
	// flushing is how long a flush that has begun may take, and flushPoll how often one
	// looks whether it has ended.
	flushing  = 5 * time.Second
	flushPoll = 100 * time.Millisecond
	// patience is how long the program may take.
	patience = 5 * time.Minute
	// maxSaid is how much of its output is in an error, in bytes.
	maxSaid = 512
)

// Keeper keeps the chains.
type Keeper struct {
	Log   *slog.Logger
	Clock clock.WithTicker
	// Run runs a program and returns its exit code and output; the host's when nil. The
	// error is that it could not be run.
	Run func(ctx context.Context, program string, args ...string) (code int, output string, err error)
}

// Keep works until ctx ends. Without the programs it says so and does nothing.
func (k *Keeper) Keep(ctx context.Context) {
	if k.Run == nil {
		k.Run = run
	}
	var families sync.WaitGroup
	found := false
	for _, f := range Families {
		if code, _, err := k.do(ctx, f, "-S", chain{"nat", "POSTROUTING"}); err != nil || code != done {
			continue
		}
		found = true
		families.Go(func() { k.keep(ctx, f) })
	}
	if !found && ctx.Err() == nil {
		k.Log.Info("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain")
	}
	families.Wait()
}

// keep keeps a family's chains.
func (k *Keeper) keep(ctx context.Context, f Family) {
	if err := k.ensure(ctx, f); err != nil {
		if ctx.Err() == nil {
			k.Log.Warn("Failed to initialize iptables rules; some functionality may be missing.", "protocol", f.Protocol, "error", err.Error())
		}
		return
	}
	k.Log.Info("Initialized iptables rules.", "protocol", f.Protocol)
	for k.watch(ctx, f) {
		if err := k.ensure(ctx, f); err != nil && ctx.Err() == nil {
			k.Log.Warn("iptables rules were flushed, and not made again", "protocol", f.Protocol, "error", err.Error())
		}
	}
}

// ensure makes what is missing.
func (k *Keeper) ensure(ctx context.Context, f Family) error {
	chains, rules := wanted(f)
	for _, c := range chains {
		if err := k.make(ctx, f, c); err != nil {
			return err
		}
	}
	for _, r := range rules {
		code, output, err := k.do(ctx, f, "-C", r.chain, r.args...)
		if err == nil && code == refused {
			code, output, err = k.do(ctx, f, r.how, r.chain, r.args...)
		}
		if err != nil || code != done {
			return failure("rule of "+r.name, code, output, err)
		}
	}
	return nil
}

func (k *Keeper) make(ctx context.Context, f Family, c chain) error {
	if code, output, err := k.do(ctx, f, "-N", c); err != nil || code != done && code != refused {
		return failure("chain "+c.name+" in table "+c.table, code, output, err)
	}
	return nil
}

func failure(what string, code int, output string, err error) error {
	if err == nil {
		err = fmt.Errorf("exit status %d", code)
	}
	return fmt.Errorf("%s: %w: %s", what, err, output)
}

// watch has the canaries there and returns true when they are gone, or false when ctx
// ends.
func (k *Keeper) watch(ctx context.Context, f Family) bool {
	for !k.canaries(ctx, f) {
		if !k.pause(ctx, period) {
			return false
		}
	}
	for k.pause(ctx, period) {
		if k.exists(ctx, f, watched[0]) {
			continue
		}
		// The flush may go on: what is made before its end goes with it.
		for end := k.Clock.Now().Add(flushing); k.anyExists(ctx, f, watched[1:]) && k.Clock.Now().Before(end); {
			if !k.pause(ctx, flushPoll) {
				return false
			}
		}
		return ctx.Err() == nil
	}
	return false
}

// canaries makes the canary in every table.
func (k *Keeper) canaries(ctx context.Context, f Family) bool {
	for _, table := range watched {
		if err := k.make(ctx, f, chain{table, canary}); err != nil {
			if ctx.Err() == nil {
				k.Log.Warn("Could not set up iptables canary", "protocol", f.Protocol, "error", err.Error())
			}
			return false
		}
	}
	return true
}

// exists reports whether the canary is in a table; it is when that is not known.
func (k *Keeper) exists(ctx context.Context, f Family, table string) bool {
	code, _, err := k.do(ctx, f, "-S", chain{table, canary})
	return err != nil || code == done || code == busy
}

func (k *Keeper) anyExists(ctx context.Context, f Family, tables []string) bool {
	return slices.ContainsFunc(tables, func(table string) bool { return k.exists(ctx, f, table) })
}

func (k *Keeper) do(ctx context.Context, f Family, operation string, c chain, rest ...string) (int, string, error) {
	return k.Run(ctx, f.Program, arguments(operation, c, rest...)...)
}

func (k *Keeper) pause(ctx context.Context, d time.Duration) bool {
	timer := k.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// run is the host's program.
func run(ctx context.Context, program string, args ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, time.Second
	output, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(output[:min(len(output), maxSaid)]))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), said, nil
	}
	return 0, said, err
}
