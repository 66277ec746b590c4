// Package cli is the command line: one file per verb, each a thin layer over
// node (which runs processes), serve (which wires one) and the services' own
// sockets. It owns nothing and keeps nothing.
package cli

import (
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

// Root is the whole command.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sextant",
		Short: "The kubelet taken apart: a Kubernetes node agent made of separate services",
		Example: `  sextant up --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  sextant status
  sextant pods -o json
  sextant logs web -f`,
		Version:       service.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), runCommand(), volumeStepsCommand(), superviseCommand(),
		prepareCommand(), startCommand(), gateCommand(), toolsCommand(), upgradeCommand(), rollbackCommand(), versionsCommand(),
		statusCommand(), podsCommand(), whyCommand(), logsCommand(), watchCommand(), profileCommand())
	return root
}

// nodeFlags are what every operator's verb needs to find the node.
type nodeFlags struct{ paths house.Paths }

func (n *nodeFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&n.paths.Run, "run-dir", defaultRun, "the node's run directory (sockets)")
	n.paths.State = defaultState
	mustNot(c.MarkFlagDirname("run-dir"))
}

// serviceNamed is a service by its name.
func serviceNamed(name string) (house.Service, error) {
	if s := house.Service(name); house.IsService(s) {
		return s, nil
	}
	return "", fmt.Errorf("there is no service %q: they are %v", name, house.Services())
}

// setenv sets a variable given as NAME=value.
func setenv(variable string) error {
	name, value, _ := strings.Cut(variable, "=")
	return os.Setenv(name, value)
}

// mustNot is for errors that only a defect in this program can cause.
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
