// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	"github.com/sextant-node/sextant/services/supervisor"
	"github.com/sextant-node/sextant/services/supervisor/versions"
)

// subject is what has a version of its own: a service, or a part of the supervisor that is
// a unit of systemd.
type subject struct {
	name string
	// root: it is one of the supervisor's parts, which run by systemd only.
	root bool
	unit string
	look func(context.Context) versions.Seen
}

// subjects are all there are: those that are root first, because the services of a version
// rely on theirs.
func (u *upgradeFlags) subjects() []subject {
	var all []subject
	for _, p := range house.RootParts() {
		all = append(all, subject{name: string(p), root: true, unit: p.Unit(), look: func(ctx context.Context) versions.Seen {
			return u.unit(ctx, p)
		}})
	}
	for _, s := range house.Services() {
		all = append(all, subject{name: string(s), unit: supervisor.UnitOf(s), look: func(ctx context.Context) versions.Seen {
			return u.hello(ctx, s)
		}})
	}
	return all
}

func (u *upgradeFlags) subjectNamed(name string) (subject, error) {
	for _, s := range u.subjects() {
		if s.name == name {
			return s, nil
		}
	}
	_, err := serviceNamed(name)
	return subject{}, err
}

// subjects completes an argument with what has a version.
func subjects(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, s := range (&upgradeFlags{}).subjects() {
			names = append(names, s.name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// every switches all to the version. One that fails goes back to its own, and its error is
// returned; if it is one of root's, those after it are not tried. What everyBack goes back
// to is what all ran when this began, also those that it does not come to.
func (u *upgradeFlags) every(ctx context.Context, out io.Writer, version string) error {
	if err := u.lib().Has(version); err != nil {
		return err
	}
	for _, s := range u.subjects() {
		if u.lib().Current(s.name) == version {
			continue // an earlier try came so far
		}
		if err := u.lib().Record(s.name); err != nil {
			return err
		}
	}
	var all []error
	for _, s := range u.subjects() {
		err := u.try(ctx, out, s, version, true)
		if err != nil && s.root {
			return fmt.Errorf("%w; the services after it keep their version", err)
		}
		all = append(all, err)
		if ctx.Err() != nil {
			break // unwatched, none is switched
		}
	}
	return errors.Join(all...)
}

// everyBack switches all that have a former version back to it.
func (u *upgradeFlags) everyBack(ctx context.Context, out io.Writer) error {
	var all []error
	for _, s := range u.subjects() {
		if former := u.lib().Previous(s.name); former != "" {
			all = append(all, u.try(ctx, out, s, former, false))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(all...)
}

// keeper is what runs the services.
type keeper int

const (
	stopped keeper = iota
	supervised
	units
)

func (u *upgradeFlags) keeper(ctx context.Context) (keeper, error) {
	active, err := supervisor.SliceActive(ctx, u.node.paths.Run)
	if err != nil {
		return stopped, err
	}
	if active {
		return units, nil
	}
	if p, err := supervisor.ReadPlan(u.node.paths.Run); err == nil && !p.Units && p.Library == u.library {
		return supervised, nil
	}
	return stopped, nil
}

// try switches a service, restarts it and watches it; with back, a service that fails
// goes back to its former version.
func (u *upgradeFlags) try(ctx context.Context, out io.Writer, s subject, version string, back bool) error {
	lib := u.lib()
	former := lib.Current(s.name)
	before := s.look(ctx)
	if former == version && lib.OnTrial(s.name) != "" {
		former = lib.OnTrial(s.name) // an earlier try was killed
	} else if former == version && (before.Err != "" || before.Version == version) {
		fmt.Fprintf(out, "%s: runs %s already\n", s.name, version)
		return nil
	}
	// What is switched now would start unwatched, some time.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: not switched: %w", s.name, err)
	}
	who, err := u.keeper(ctx)
	if err != nil {
		return fmt.Errorf("%s: not switched: %w", s.name, err)
	}
	if who == stopped || who == supervised && s.root {
		if err := errors.Join(lib.Switch(s.name, version), lib.Judged(s.name)); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: runs %s from its next start\n", s.name, version)
		return nil
	}
	if err := lib.Try(s.name, version); err != nil {
		return err
	}
	why := u.trial(ctx, who, s, version, before)
	if why == "" {
		fmt.Fprintf(out, "%s: runs %s\n", s.name, version)
		return lib.Judged(s.name)
	}
	if !back || former == "" || ctx.Err() != nil {
		return fmt.Errorf("%s: version %s does not do its work: %s", s.name, version, why)
	}
	if err := lib.Back(s.name, former); err != nil {
		return fmt.Errorf("%s: version %s does not do its work: %s; and back to %s: %w", s.name, version, why, former, err)
	}
	if again := u.trial(ctx, who, s, former, before); again != "" {
		return fmt.Errorf("%s: version %s does not do its work: %s; nor does %s, to which it went back: %s", s.name, version, why, former, again)
	}
	return fmt.Errorf("%s: version %s does not do its work: %s; it runs %s again", s.name, version, why, former)
}

// trialPause is the time between two Hellos.
const trialPause = 250 * time.Millisecond

// trial restarts a service and watches it; it returns why it failed.
func (u *upgradeFlags) trial(ctx context.Context, who keeper, s subject, version string, before versions.Seen) (why string) {
	// The time counts from before the restart: a unit that never gets ready has failed
	// too.
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, u.limit+30*time.Second)
	defer cancel()
	restarted := make(chan error, 1)
	former := s.look(ctx).Epoch
	go func() { restarted <- u.restart(ctx, who, s) }()
	trial := versions.NewTrial(versions.Terms{
		Version: version, Former: former, Serving: before.Serving, Steady: u.steady, Limit: u.limit, Restarts: 2,
	})
	tick := time.NewTicker(trialPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err().Error()
		case err := <-restarted:
			if err != nil {
				return err.Error()
			}
		case <-tick.C:
			if verdict, why := trial.Step(time.Since(began), s.look(ctx)); verdict != versions.Waiting {
				return why
			}
		}
	}
}

func (u *upgradeFlags) restart(ctx context.Context, who keeper, s subject) error {
	if who == units {
		return supervisor.RestartUnit(ctx, s.unit)
	}
	return supervisor.StopService(ctx, u.node.paths.Run, house.Service(s.name))
}

// unit is what systemd says of one of root's parts, which have no Hello. One that has done
// its work, as prepare, is active too.
func (u *upgradeFlags) unit(ctx context.Context, p house.RootPart) versions.Seen {
	state, err := supervisor.LookAtUnit(ctx, p.Unit())
	if err != nil {
		return versions.Seen{Err: err.Error()}
	}
	seen := versions.Seen{Version: u.lib().Current(string(p)), Epoch: state.Invocation, Understood: true, Serving: state.Active == "active"}
	if state.Program != "" {
		version, ok := versions.Executed(state.Program)
		if !ok {
			return versions.Seen{Err: p.Unit() + " executes " + state.Program + " so far"}
		}
		seen.Version = version
	}
	switch {
	case state.Active == "inactive":
		return versions.Seen{Err: p.Unit() + " does not run"}
	case !seen.Serving:
		seen.Reason = p.Unit() + " is " + state.Active
	}
	return seen
}

// hello asks a service for its Hello.
func (u *upgradeFlags) hello(ctx context.Context, s house.Service) versions.Seen {
	hello, err := helloOf(ctx, u.node.paths, s)
	if err != nil {
		return versions.Seen{Err: err.Error()}
	}
	return versions.Seen{
		Version: hello.GetVersion(), Epoch: hello.GetEpoch(), Protocol: hello.GetProtocol(), Understood: service.Speaks(hello.GetProtocol()),
		Serving: hello.GetHealth() == nodev1.Health_HEALTH_SERVING, Reason: hello.GetHealthReason(),
	}
}
