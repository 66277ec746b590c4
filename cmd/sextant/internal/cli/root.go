// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: one file per verb, each a thin layer over
// node (which runs processes), serve (which wires one) and the services' own
// sockets. It owns nothing and keeps nothing.
package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
)

// Default folders of a node.
const (
	defaultRun   = "/run/sextant"
	defaultState = "/var/lib/sextant"
)

// part is the verb of a process of the node, or nil for other verbs. The process runs for as
// long as the node does and needs no other verb: the flags of all take a third of a MiB.
func part(args []string) *cobra.Command {
	if len(args) == 0 {
		return nil
	}
	switch args[0] {
	case "run":
		return runCommand(args[1:])
	case "start":
		return startCommand()
	case "supervise":
		return superviseCommand()
	case string(house.Gate):
		return gateCommand()
	case string(house.Tools):
		return toolsCommand()
	}
	return nil
}

// Root is the command for the arguments of the program: one part of the node if their
// first is its verb, else all verbs, as without arguments.
func Root(args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "sextant",
		Short: "The kubelet taken apart: a Kubernetes node agent made of separate services",
		Long: `The kubelet taken apart: a Kubernetes node agent made of separate services.

Exit codes: 0 done, and well; 1 it could not be done; 2 a wrong verb, flag or argument,
or not root; 3 what was to be shown is not well: no node runs, a service is down or
failing. "sextant check" and "sextant migrate" exit with 2 also where something blocks
Sextant, "sextant check" with 1 where something will differ.`,
		Example: `  sextant up --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  sextant status
  sextant pods -o json
  sextant logs web -f`,
		Version:       service.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SuggestionsMinimumDistance = 2
	// A verb that does not exist comes to the root.
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("there is no verb %q", args[0])
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			text += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return errors.New(text)
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	root.SetOut(onTerminal(os.Stdout))
	root.SetErr(onTerminal(os.Stderr))
	if c := part(args); c != nil {
		root.AddCommand(c)
	} else {
		root.AddCommand(upCommand(), downCommand(), runCommand(nil), volumeStepsCommand(), superviseCommand(),
			prepareCommand(), startCommand(), gateCommand(), toolsCommand(), upgradeCommand(), rollbackCommand(), versionsCommand(),
			statusCommand(), podsCommand(), devicesCommand(), whyCommand(), logsCommand(), watchCommand(), profileCommand(), configCommand(), checkCommand(), migrateCommand(), installCommand())
	}
	usageErrors(root)
	return root
}

// nodeFlags are what every operator's verb needs to find the node.
type nodeFlags struct{ paths house.Paths }

func (n *nodeFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&n.paths.Run, "run-dir", defaultRun, "the node's run directory (sockets)")
	n.paths.State = defaultState
	mustNot(c.MarkFlagDirname("run-dir"))
}

// asks registers the flags of a verb that asks the services.
func (n *nodeFlags) asks(c *cobra.Command) {
	n.register(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return checkAnswers(c.Name(), n.paths) }
}

// serviceNamed is a service by its name.
func serviceNamed(name string) (house.Service, error) {
	if s := house.Service(name); house.IsService(s) {
		return s, nil
	}
	return "", usageError(fmt.Errorf("there is no service %q: they are %v", name, house.Services()))
}

// setenv sets a variable given as NAME=value.
func setenv(variable string) error {
	name, value, _ := strings.Cut(variable, "=")
	return os.Setenv(name, value)
}

// mustNot panics on an error that only a defect in this program can cause.
func mustNot(err error) {
	if err != nil {
		panic(err)
	}
}

// services completes an argument with the services' names.
func services(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range house.Services() {
		names = append(names, string(s))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
