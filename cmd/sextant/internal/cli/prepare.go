// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/supervisor"
)

// unitsSet are the flags of `sextant prepare` that a kubelet does not have.
func (u *upFlags) unitsSet() *pflag.FlagSet {
	all, fs := u.set(), pflag.NewFlagSet("prepare", pflag.ContinueOnError)
	for _, name := range []string{"run-dir", "state-dir", "log-level", "bus", "get-streams", "keep-secrets"} {
		fs.AddFlag(all.Lookup(name))
	}
	return fs
}

func prepareCommand() *cobra.Command {
	var u upFlags
	own := u.unitsSet()
	kubelet := &kubeletconfig.Flags{}
	c := &cobra.Command{
		Use:   "prepare [kubelet flags]",
		Short: "Create what the systemd units need: folders, keys, the node's plan",
		Long: `Create what only root can create before systemd starts the services: their folders,
the bus keys, the certificate folder, and the plan of the node, which has
the flags of each service. Takes the kubelet's own flags. Services that
"sextant up" started are stopped, and their state is handed over.

If the configuration cannot be read, the plan of the last good start is used.`,
		Example: `  sextant prepare $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return prepare(c.Context(), c.ErrOrStderr(), &u, kubelet, kubeletArgs(os.Args[2:], own))
		},
	}
	addKubeletFlags(c, kubelet)
	c.Flags().AddFlagSet(own)
	return c
}

func prepare(ctx context.Context, warn io.Writer, u *upFlags, flags *kubeletconfig.Flags, said []string) error {
	if err := needRoot("prepare", "it gives each service its folders"); err != nil {
		return err
	}
	accounts, err := supervisor.LookUpAccounts()
	if err != nil {
		return fmt.Errorf("the services' accounts: %w", err)
	}
	plan, err := unitsPlan(warn, u, flags, said)
	if err != nil {
		return err
	}
	plan.Accounts, plan.Units, plan.LogDir, plan.Sockets = accounts, true, "", nil
	plan.Disposable = []string{plan.State}
	if err := supervisor.StopProcesses(ctx, plan.Run); err != nil {
		return fmt.Errorf("stop the services that sextant up started: %w", err)
	}
	return errors.Join(plan.Prepare(), plan.Keep())
}

// unitsPlan is the plan made from the configuration, or that of the last good start.
func unitsPlan(warn io.Writer, u *upFlags, flags *kubeletconfig.Flags, said []string) (*supervisor.Plan, error) {
	if err := u.check(); err != nil {
		return nil, err
	}
	conf, warnings, err := serve.LoadConfig(flags)
	for _, w := range warnings {
		fmt.Fprintln(warn, "warning:", w)
	}
	if err == nil && conf.Node.LockFile != "" {
		err = errors.New("--lock-file: no unit holds it; `sextant up` and the program called kubelet do")
	}
	if err == nil {
		if err := ensureTunables(func(w string) { fmt.Fprintln(warn, "warning:", w) }, conf); err != nil {
			return nil, err
		}
		return planFor(u, conf, said)
	}
	kept, none := supervisor.ReadKeptPlan(u.state)
	if none != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	fmt.Fprintf(warn, "warning: the configuration cannot be used; the plan of the last good start is used instead:\n%v\n", err)
	return kept, nil
}

// startCommand is what the units run. The arguments of a service are in the plan; this
// version interprets them.
func startCommand() *cobra.Command {
	var n nodeFlags
	c := &cobra.Command{
		Use:    "start SERVICE",
		Short:  "Run one service as the node's plan says",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := serviceNamed(args[0])
			if err != nil {
				return err
			}
			plan, waited, err := supervisor.AwaitPlan(c.Context(), n.paths.Run, supervisorLog(c.ErrOrStderr()))
			if err != nil {
				return err
			}
			if waited && os.Getenv("CREDENTIALS_DIRECTORY") != "" {
				return errors.New("the plan and the keys were not there when systemd started this process; they are now: exiting, so that systemd starts it with them")
			}
			if err := plan.Confine(s); err != nil {
				supervisorLog(c.ErrOrStderr()).Info("not confined to its own files", "process", string(s), "error", err.Error())
			}
			if err := os.Chdir(plan.WorkDir); err != nil {
				return err
			}
			for _, variable := range plan.Environ(s) {
				if err := setenv(variable); err != nil {
					return err
				}
			}
			run := Root(plan.Args(s)...)
			run.SetArgs(plan.Args(s))
			return run.ExecuteContext(c.Context())
		},
		ValidArgsFunction: services,
	}
	n.register(c)
	return c
}

// gateCommand is one of the two parts of the supervisor that run where systemd runs the
// services.
func gateCommand() *cobra.Command {
	return keepCommand(house.Gate, "Keep the services' gates to the system bus, and the kubeconfig after a bootstrap", (*supervisor.Plan).KeepGates)
}

// toolsCommand is the other one, in the node's own mount namespace.
func toolsCommand() *cobra.Command {
	return keepCommand(house.Tools, "Run the distribution's tools for network storage for volume", (*supervisor.Plan).KeepToolsUnit)
}

// keepCommand waits for the plan, then runs keep until the process is ended.
func keepCommand(part house.RootPart, short string, keep func(*supervisor.Plan, context.Context, *slog.Logger) error) *cobra.Command {
	var n nodeFlags
	c := &cobra.Command{
		Use:    string(part),
		Short:  short,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log := supervisorLog(c.ErrOrStderr())
			plan, _, err := supervisor.AwaitPlan(c.Context(), n.paths.Run, log)
			if err != nil {
				return err
			}
			return keep(plan, c.Context(), log)
		},
	}
	n.register(c)
	return c
}
