// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/supervisor"
)

func downCommand() *cobra.Command {
	var n nodeFlags
	var purge bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop the services; the pods go on running",
		Long: `Stop the services. The pods go on running, and the next start adopts them.

--purge also removes pods, sandboxes, mounts, cgroups and, of a node that systemd ran,
the node's state.`,
		Example: `  sextant down
  sextant down --purge`,
		Args:    cobra.NoArgs,
		PreRunE: asRoot("it ends processes of other users"),
		RunE: func(c *cobra.Command, _ []string) error {
			toTheEnd()
			plan, err := planToEnd(n.paths, purge)
			if errors.Is(err, supervisor.ErrNoNode) && purge {
				return nil // purged already
			}
			if errors.Is(err, supervisor.ErrNoNode) {
				return notWell("there is nothing to stop: %w", err)
			}
			if err != nil {
				return err
			}
			p := &progress{out: c.OutOrStdout(), start: time.Now()}
			var pods []string
			if purge {
				pods = plan.PodUIDs(c.Context())
			}
			if err := p.step("services stopped", func() (string, error) { return "", supervisor.Stop(c.Context(), plan) }); err != nil {
				return err
			}
			if !purge {
				return nil
			}
			return p.step("traces removed", func() (string, error) { return "", plan.Purge(c.Context(), pods) })
		},
	}
	n.register(c)
	c.Flags().BoolVar(&purge, "purge", false, "also remove every pod, cgroup and mount, and what the package keeps")
	return c
}

// planToEnd is the plan of the node. For a purge the one of the last good start serves, too:
// a node that was switched off and has booted since has no other.
func planToEnd(paths house.Paths, purge bool) (*supervisor.Plan, error) {
	plan, err := supervisor.ReadPlan(paths.Run)
	if !purge || !errors.Is(err, supervisor.ErrNoNode) {
		return plan, err
	}
	kept, keptErr := supervisor.ReadKeptPlan(paths.State)
	switch {
	case keptErr != nil && !errors.Is(keptErr, supervisor.ErrNoNode):
		return nil, keptErr
	case keptErr != nil || kept.Run != paths.Run: // none, or another node's
		return nil, err
	}
	return kept, nil
}

func superviseCommand() *cobra.Command {
	var n nodeFlags
	c := &cobra.Command{
		Use:    "supervise",
		Short:  "Keep the services of a planned node running",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			plan, err := supervisor.ReadPlan(n.paths.Run)
			if err != nil {
				return err
			}
			return plan.Supervise(c.Context(), supervisorLog(c.ErrOrStderr()))
		},
	}
	n.register(c)
	return c
}
