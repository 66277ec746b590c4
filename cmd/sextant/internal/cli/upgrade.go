// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

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
		Long: `Switch a service, or one of prepare, gate and tools, which are root's, to another
installed version, restart it, and watch it. If it does not answer, speaks a protocol the others do not understand, is restarted again
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
		PreRunE: asRoot("it switches programs of root and restarts services"),
		RunE: func(c *cobra.Command, args []string) error {
			toTheEnd()
			if u.all {
				return u.every(c.Context(), c.OutOrStdout(), args[len(args)-1])
			}
			s, err := u.subjectNamed(args[0])
			if err != nil {
				return err
			}
			return u.try(c.Context(), c.OutOrStdout(), s, args[1], true)
		},
		ValidArgsFunction: subjects,
	}
	u.register(c)
	c.Flags().BoolVar(&u.all, "all", false, "every service, one after the other")
	return c
}

func rollbackCommand() *cobra.Command {
	var u upgradeFlags
	c := &cobra.Command{
		Use:   "rollback SERVICE | --all",
		Short: "Switch a service back to the version it ran before",
		Example: `  sextant rollback prober
  sextant rollback --all`,
		Args: func(_ *cobra.Command, args []string) error {
			if u.all != (len(args) == 0) || len(args) > 1 {
				return errors.New("give a service, or --all")
			}
			return nil
		},
		PreRunE: asRoot("it switches programs of root and restarts services"),
		RunE: func(c *cobra.Command, args []string) error {
			toTheEnd()
			if u.all {
				return u.everyBack(c.Context(), c.OutOrStdout())
			}
			s, err := u.subjectNamed(args[0])
			if err != nil {
				return err
			}
			former := u.lib().Previous(s.name)
			if former == "" {
				return fmt.Errorf("%s has no former version (sextant versions lists what is installed)", s.name)
			}
			return u.try(c.Context(), c.OutOrStdout(), s, former, false)
		},
		ValidArgsFunction: subjects,
	}
	u.register(c)
	c.Flags().BoolVar(&u.all, "all", false, "all that have a former version, one after the other")
	return c
}

func (u *upgradeFlags) lib() versions.Library { return versions.Library{Dir: u.library} }

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
		PreRunE: asRoot("the services of a node answer no other user"),
		RunE: func(c *cobra.Command, _ []string) error {
			lib := versions.Library{Dir: library}
			installed, err := lib.Installed()
			if err != nil {
				return err
			}
			u := upgradeFlags{node: n}
			var rows []versionRow
			var cells [][]string
			for _, s := range u.subjects() {
				r := versionRow{s.name, s.look(c.Context()).Version, lib.Current(s.name), lib.Previous(s.name)}
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
