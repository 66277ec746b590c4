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

	"github.com/sextant-node/sextant/cmd/sextant/internal/node"
	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
)

// unitsSet are the flags of `sextant prepare` that a kubelet does not have.
func (u *upFlags) unitsSet() *pflag.FlagSet {
	all, fs := u.set(), pflag.NewFlagSet("prepare", pflag.ContinueOnError)
	for _, name := range []string{"run-dir", "state-dir", "log-level", "bus", "get-streams"} {
		fs.AddFlag(all.Lookup(name))
	}
	return fs
}

func prepareCommand() *cobra.Command {
	var u upFlags
	own := u.unitsSet()
	kubelet := &kubeconf.Flags{}
	c := &cobra.Command{
		Use:   "prepare [kubelet flags]",
		Short: "Lay out what the systemd units need: folders, keys, the node's plan",
		Long: `Lay out what the services need of root before systemd starts them: their folders,
the bus keys, the certificate folder, and the plan of the node, which says with
what flags each is started. Takes the kubelet's own flags. Services that
"sextant up" started are stopped, and their state is handed over.

With a configuration that cannot be read the plan of the last good start is used.`,
		Example: `  sextant prepare $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return prepare(c.Context(), c.ErrOrStderr(), &u, kubelet, kubeletArgs(os.Args[2:], own))
		},
	}
	kubelet.AddFlags(c.Flags())
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !frequent[f.Name] })
	c.Flags().AddFlagSet(own)
	return c
}

func prepare(ctx context.Context, warn io.Writer, u *upFlags, flags *kubeconf.Flags, said []string) error {
	if os.Geteuid() != 0 {
		return errors.New("prepare needs root: it gives each service its folders")
	}
	accounts, err := node.LookUpAccounts()
	if err != nil {
		return fmt.Errorf("the services' accounts: %w", err)
	}
	plan, err := unitsPlan(warn, u, flags, said)
	if err != nil {
		return err
	}
	plan.Accounts, plan.Units, plan.LogDir, plan.Sockets = accounts, true, "", nil
	plan.Disposable = []string{plan.State}
	if err := node.StopProcesses(ctx, plan.Run); err != nil {
		return fmt.Errorf("stop the services that sextant up started: %w", err)
	}
	return errors.Join(plan.Prepare(), plan.Keep())
}

// unitsPlan is the plan by the configuration, or that of the last good start.
func unitsPlan(warn io.Writer, u *upFlags, flags *kubeconf.Flags, said []string) (*node.Plan, error) {
	if _, err := service.ParseLevel(u.logLevel); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	conf, warnings, err := serve.LoadConfig(flags)
	for _, w := range warnings {
		fmt.Fprintln(warn, "warning:", w)
	}
	if err == nil {
		return planFor(u, conf, said)
	}
	kept, none := node.ReadKeptPlan(u.state)
	if none != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	fmt.Fprintf(warn, "warning: going on with the plan of the last good start; configuration:\n%v\n", err)
	return kept, nil
}

// startCommand is what the units run: how a service is started is in the plan,
// and what that means is this version's affair.
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
			plan, waited, err := node.AwaitPlan(c.Context(), n.paths.Run, supervisorLog(c.ErrOrStderr()))
			if err != nil {
				return err
			}
			if waited && os.Getenv("CREDENTIALS_DIRECTORY") != "" {
				return errors.New("the node has a plan and keys now: systemd starts this anew with them")
			}
			if err := os.Chdir(plan.WorkDir); err != nil {
				return err
			}
			for _, variable := range plan.Environ(s) {
				if err := setenv(variable); err != nil {
					return err
				}
			}
			run := Root()
			run.SetArgs(plan.Args(s))
			return run.ExecuteContext(c.Context())
		},
		ValidArgsFunction: services,
	}
	n.register(c)
	return c
}

// gateCommand is what is left of the supervisor where systemd runs the services.
func gateCommand() *cobra.Command {
	return keepCommand("gate", "Keep the services' gates to the system bus, and the kubeconfig after a bootstrap", (*node.Plan).KeepGates)
}

// toolsCommand is what else is left of it: what runs in the node's own mount
// namespace.
func toolsCommand() *cobra.Command {
	return keepCommand("tools", "Run the distribution's tools for network storage for volume", (*node.Plan).KeepToolsUnit)
}

// keepCommand keeps something for the services of a plan, which it waits for.
func keepCommand(use, short string, keep func(*node.Plan, context.Context, *slog.Logger) error) *cobra.Command {
	var n nodeFlags
	c := &cobra.Command{
		Use:    use,
		Short:  short,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			log := supervisorLog(c.ErrOrStderr())
			plan, _, err := node.AwaitPlan(c.Context(), n.paths.Run, log)
			if err != nil {
				return err
			}
			return keep(plan, c.Context(), log)
		},
	}
	n.register(c)
	return c
}
