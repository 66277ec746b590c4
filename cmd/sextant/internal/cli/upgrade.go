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

// upgradeFlags are those of upgrade and rollback.
type upgradeFlags struct {
	node    nodeFlags
	library string
	steady  time.Duration
	limit   time.Duration
	all     bool
}

func (u *upgradeFlags) register(c *cobra.Command) {
	u.node.register(c)
	c.Flags().StringVar(&u.library, "library", versions.DefaultDir, "folder with the versions")
	c.Flags().DurationVar(&u.steady, "steady", 5*time.Second, "how long the new version has to serve before the upgrade counts as done")
	c.Flags().DurationVar(&u.limit, "limit", 90*time.Second, "time limit of the upgrade of one service")
	mustNot(c.MarkFlagDirname("library"))
}

func upgradeCommand() *cobra.Command {
	var u upgradeFlags
	c := &cobra.Command{
		Use:   "upgrade SERVICE VERSION | --all VERSION",
		Short: "Switch a service to another version; back to the former one if it fails",
		Long: `Switch a service to another installed version, restart it, and watch it. If it
does not answer, speaks a protocol the others do not understand, is restarted again
and again or does not serve where the former did, it goes back to the former version.
Neither affects the pods.`,
		Example: `  sextant versions
  sextant upgrade prober 0.2.1
  sextant upgrade --all 0.2.1`,
		Args: func(_ *cobra.Command, args []string) error {
			if want := 2; len(args) != want && (!u.all || len(args) != 1) {
				return errors.New("give a service and a version, or --all and a version")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := needRoot("upgrade", "it switches programs of root and restarts services"); err != nil {
				return err
			}
			if u.all {
				return u.every(c.Context(), c.OutOrStdout(), args[len(args)-1])
			}
			s, err := serviceNamed(args[0])
			if err != nil {
				return err
			}
			return u.try(c.Context(), c.OutOrStdout(), s, args[1], true)
		},
		ValidArgsFunction: services,
	}
	u.register(c)
	c.Flags().BoolVar(&u.all, "all", false, "every service, one after the other")
	return c
}

func rollbackCommand() *cobra.Command {
	var u upgradeFlags
	c := &cobra.Command{
		Use:     "rollback SERVICE",
		Short:   "Switch a service back to the version it ran before",
		Example: `  sextant rollback prober`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := needRoot("rollback", "it switches programs of root and restarts services"); err != nil {
				return err
			}
			s, err := serviceNamed(args[0])
			if err != nil {
				return err
			}
			former := u.lib().Previous(string(s))
			if former == "" {
				return fmt.Errorf("%s has no former version (sextant versions lists what is installed)", s)
			}
			return u.try(c.Context(), c.OutOrStdout(), s, former, false)
		},
		ValidArgsFunction: services,
	}
	u.register(c)
	return c
}

func (u *upgradeFlags) lib() versions.Library { return versions.Library{Dir: u.library} }

// every switches all services to the version. One that fails goes back to its own; its
// error is returned.
func (u *upgradeFlags) every(ctx context.Context, out io.Writer, version string) error {
	lib := u.lib()
	for _, p := range house.RootParts() {
		if err := lib.Switch(string(p), version); err != nil {
			return err
		}
	}
	keeper := u.keeper(ctx)
	if keeper == units {
		// First the parts that are root: the services of that version rely on them.
		for _, p := range house.RootParts() {
			if err := supervisor.RestartUnit(ctx, p.Unit()); err != nil {
				return err
			}
		}
	}
	var all []error
	for _, s := range house.Services() {
		all = append(all, u.try(ctx, out, s, version, true))
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

func (u *upgradeFlags) keeper(ctx context.Context) keeper {
	if active, err := supervisor.SliceActive(ctx, u.node.paths.Run); err == nil && active {
		return units
	}
	if p, err := supervisor.ReadPlan(u.node.paths.Run); err == nil && !p.Units && p.Library == u.library {
		return supervised
	}
	return stopped
}

// try switches a service, restarts it and watches it; with back, a service that fails
// goes back to its former version.
func (u *upgradeFlags) try(ctx context.Context, out io.Writer, s house.Service, version string, back bool) error {
	lib := u.lib()
	former := lib.Current(string(s))
	before := u.look(ctx, s)
	if former == version && (before.Err != "" || before.Version == version) {
		fmt.Fprintf(out, "%s: runs %s already\n", s, version)
		return nil
	}
	if err := lib.Switch(string(s), version); err != nil {
		return err
	}
	who := u.keeper(ctx)
	if who == stopped {
		fmt.Fprintf(out, "%s: runs %s from its next start\n", s, version)
		return nil
	}
	why := u.trial(ctx, who, s, version, before)
	if why == "" {
		fmt.Fprintf(out, "%s: runs %s\n", s, version)
		return nil
	}
	if !back || former == "" || ctx.Err() != nil {
		return fmt.Errorf("%s: version %s does not do its work: %s", s, version, why)
	}
	if err := lib.Switch(string(s), former); err != nil {
		return fmt.Errorf("%s: version %s does not do its work: %s; and back to %s: %w", s, version, why, former, err)
	}
	if again := u.trial(ctx, who, s, former, before); again != "" {
		return fmt.Errorf("%s: version %s does not do its work: %s; nor does %s, to which it went back: %s", s, version, why, former, again)
	}
	return fmt.Errorf("%s: version %s does not do its work: %s; it runs %s again", s, version, why, former)
}

// trialPause is the time between two Hellos.
const trialPause = 250 * time.Millisecond

// trial restarts a service and watches it; it returns why it failed.
func (u *upgradeFlags) trial(ctx context.Context, who keeper, s house.Service, version string, before versions.Seen) (why string) {
	// The time counts from before the restart: a unit that never gets ready has failed
	// too.
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, u.limit+30*time.Second)
	defer cancel()
	restarted := make(chan error, 1)
	former := u.look(ctx, s).Epoch
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
			if verdict, why := trial.Step(time.Since(began), u.look(ctx, s)); verdict != versions.Waiting {
				return why
			}
		}
	}
}

func (u *upgradeFlags) restart(ctx context.Context, who keeper, s house.Service) error {
	if who == units {
		return supervisor.RestartUnit(ctx, supervisor.UnitOf(s))
	}
	return supervisor.StopService(ctx, u.node.paths.Run, s)
}

// look asks a service for its Hello.
func (u *upgradeFlags) look(ctx context.Context, s house.Service) versions.Seen {
	hello, err := helloOf(ctx, u.node.paths, s)
	if err != nil {
		return versions.Seen{Err: err.Error()}
	}
	return versions.Seen{
		Version: hello.GetVersion(), Epoch: hello.GetEpoch(), Protocol: hello.GetProtocol(), Understood: service.Speaks(hello.GetProtocol()),
		Serving: hello.GetHealth() == nodev1.Health_HEALTH_SERVING, Reason: hello.GetHealthReason(),
	}
}

// versionRow is one service as `sextant versions` shows it.
type versionRow struct {
	Service  string `json:"service"`
	Running  string `json:"running,omitempty"`
	Chosen   string `json:"chosen,omitempty"`
	Previous string `json:"previous,omitempty"`
}

func versionsCommand() *cobra.Command {
	var n nodeFlags
	var o output
	var library string
	c := &cobra.Command{
		Use:     "versions",
		Short:   "Show the installed versions, and which service runs which",
		Example: `  sextant versions`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needRoot("versions", "the services of a node answer no other user"); err != nil {
				return err
			}
			lib := versions.Library{Dir: library}
			installed, err := lib.Installed()
			if err != nil {
				return err
			}
			u := upgradeFlags{node: n}
			var rows []versionRow
			var cells [][]string
			for _, s := range house.Services() {
				r := versionRow{string(s), u.look(c.Context(), s).Version, lib.Current(string(s)), lib.Previous(string(s))}
				rows, cells = append(rows, r), append(cells, []string{r.Service, r.Running, r.Chosen, r.Previous})
			}
			if o.format == "table" {
				fmt.Fprintln(c.OutOrStdout(), "installed:", installed)
			}
			return o.print(c.OutOrStdout(), rows, []string{"SERVICE", "RUNNING", "CHOSEN", "PREVIOUS"}, cells)
		},
	}
	n.register(c)
	o.register(c)
	c.Flags().StringVar(&library, "library", versions.DefaultDir, "folder with the versions")
	return c
}
