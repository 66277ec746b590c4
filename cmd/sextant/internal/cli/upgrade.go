package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/cmd/sextant/internal/node"
	"github.com/sextant-node/sextant/cmd/sextant/internal/versions"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// helpers have versions as the services have, and answer no questions.
var helpers = []string{"prepare", "gate", "tools"}

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
	c.Flags().DurationVar(&u.steady, "steady", 5*time.Second, "how long the service has to do its work before it is believed")
	c.Flags().DurationVar(&u.limit, "limit", 90*time.Second, "how long it may take until then")
	mustNot(c.MarkFlagDirname("library"))
}

func upgradeCommand() *cobra.Command {
	var u upgradeFlags
	c := &cobra.Command{
		Use:   "upgrade SERVICE VERSION | --all VERSION",
		Short: "Give a service another version; back to the former one if it does not do its work",
		Long: `Give a service another version that is installed, start it again, and watch it. If it
does not answer, speaks a protocol the others do not understand, is started again
and again or does not serve where the former did, it gets the former version back.
Pods notice neither.`,
		Example: `  sextant versions
  sextant upgrade prober 0.2.1
  sextant upgrade --all 0.2.1`,
		Args: func(_ *cobra.Command, args []string) error {
			if want := 2; len(args) != want && (!u.all || len(args) != 1) {
				return errors.New("want a service and a version, or --all and a version")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
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
		Short:   "Give a service the version back that it ran before",
		Example: `  sextant rollback prober`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := serviceNamed(args[0])
			if err != nil {
				return err
			}
			former := u.lib().Previous(string(s))
			if former == "" {
				return fmt.Errorf("%s has run no other version", s)
			}
			return u.try(c.Context(), c.OutOrStdout(), s, former, false)
		},
		ValidArgsFunction: services,
	}
	u.register(c)
	return c
}

func (u *upgradeFlags) lib() versions.Library { return versions.Library{Dir: u.library} }

// every gives all of them the version. What fails keeps its own, and is told.
func (u *upgradeFlags) every(ctx context.Context, out io.Writer, version string) error {
	lib := u.lib()
	for _, h := range helpers {
		if err := lib.Switch(h, version); err != nil {
			return err
		}
	}
	keeper := u.keeper(ctx)
	if keeper == units {
		for _, unit := range []string{"sextant-gate.service", "sextant-tools.service"} {
			if err := node.RestartUnit(ctx, unit); err != nil {
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

// keeper is who runs the services.
type keeper int

const (
	nobody keeper = iota
	supervisor
	units
)

func (u *upgradeFlags) keeper(ctx context.Context) keeper {
	if active, err := node.SliceActive(ctx, u.node.paths.Run); err == nil && active {
		return units
	}
	if p, err := node.ReadPlan(u.node.paths.Run); err == nil && !p.Units && p.Library == u.library {
		return supervisor
	}
	return nobody
}

// try switches a service, starts it again and watches it; with back it gets its
// former version if it fails.
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
	if who == nobody {
		fmt.Fprintf(out, "%s: %s when it is started\n", s, version)
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

// trialPause is between two looks.
const trialPause = 250 * time.Millisecond

// trial starts a service again and watches it; it returns why it failed.
func (u *upgradeFlags) trial(ctx context.Context, who keeper, s house.Service, version string, before versions.Seen) (why string) {
	// The clock starts before the restart: a unit that never gets ready is a failure too.
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
		return node.RestartUnit(ctx, node.UnitOf(s))
	}
	return node.StopService(ctx, u.node.paths.Run, s)
}

// look asks a service who it is.
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
		Short:   "Show the versions that are installed, and who runs which",
		Example: `  sextant versions`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
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
