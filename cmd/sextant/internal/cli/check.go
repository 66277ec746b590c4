// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/cmd/sextant/internal/check"
	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/supervisor"
)

func checkCommand() *cobra.Command {
	var o output
	var facts string
	kubelet := &kubeletconfig.Flags{}
	own := pflag.NewFlagSet("check", pflag.ContinueOnError)
	u := upFlags{}
	own.StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
	own.StringVar(&facts, "facts", "", `judge the facts of this file again, or write them to it when it does not exist`)
	own.StringVar(&u.run, "run-dir", defaultRun, "sockets of Sextant, should it run here already")
	own.StringVar(&u.state, "state-dir", defaultState, "the services' durable state")
	own.Uint32Var(&u.uidBase, "uid-base", 64200, "first of the nine uids the services run under")
	c := &cobra.Command{
		Use:   "check [kubelet flags]",
		Short: "Look at a node that a kubelet runs: what blocks Sextant there, and what it will do otherwise",
		Long: `Look at a node before Sextant takes a kubelet's place: flags, configuration files and
drop-ins, static pods, the pods of the node and their persistent volumes, runtime,
network, cgroups, disks, ports, accounts. Nothing is changed. Without kubelet flags,
those of the kubelet that runs are used, else those in kubeadm's files.

"blocks" must be changed first. "differs" works otherwise than in a kubelet. Exits
with 0 when there is neither, with 1 when something differs or could not be looked at,
with 2 when something blocks.`,
		Example: `  sextant check
  sextant check --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
  sextant check -o json | jq '.[] | select(.level == "blocks")'`,
		Args:    cobra.NoArgs,
		PreRunE: asRoot("it reads the node's credential and asks the runtime"),
		RunE: func(c *cobra.Command, _ []string) error {
			known, err := factsOf(c.Context(), facts, &u, kubeletArgs(os.Args[2:], own))
			if err != nil {
				return err
			}
			return printFindings(c.OutOrStdout(), &o, check.Judge(known))
		},
	}
	addKubeletFlags(c, kubelet)
	c.Flags().AddFlagSet(own)
	return c
}

// factsOf reads the facts of the node, or of the file.
func factsOf(ctx context.Context, path string, u *upFlags, args []string) (*check.Facts, error) {
	if path != "" {
		data, err := os.ReadFile(path)
		if err == nil {
			known := &check.Facts{}
			if err := json.Unmarshal(data, known); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return known, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	_, down := helloOf(ctx, house.Paths{Run: u.run}, house.Config)
	known := check.Gather(ctx, check.Request{
		Args: args, Running: down == nil,
		Load: serve.LoadConfig,
		Plan: func(conf *kubeletconfig.Config) *supervisor.Plan {
			return &supervisor.Plan{
				State: u.state, RootDir: conf.Node.RootDir, UIDBase: u.uidBase, Sockets: socketsOf(conf),
				Endpoint: conf.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: conf.Kubelet.ImageServiceEndpoint,
			}
		},
	})
	if path == "" {
		return known, nil
	}
	data, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return nil, err
	}
	return known, os.WriteFile(path, append(data, '\n'), 0o600)
}

func printFindings(w io.Writer, o *output, found []check.Finding) error {
	var cells [][]string
	count := map[check.Level]int{}
	for _, f := range found {
		count[f.Level]++
		cells = append(cells, []string{string(f.Level), f.Subject, f.Message})
	}
	if err := o.print(w, found, []string{"LEVEL", "SUBJECT", "FINDING"}, cells); err != nil {
		return err
	}
	text := fmt.Sprintf("%d block, %d differ, %d unknown", count[check.Blocks], count[check.Differs], count[check.Unknown])
	switch check.Worst(found) {
	case check.Blocks:
		return &codedError{errors.New("not ready for Sextant: " + text), 2}
	case check.Differs:
		return &codedError{errors.New("ready for Sextant: " + text), 1}
	}
	return nil
}
