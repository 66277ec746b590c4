// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/util"
	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/cmd/sextant/internal/check"
	"github.com/sextant-node/sextant/cmd/sextant/internal/migrate"
	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/supervisor"
)

// migrateFlags are those of `sextant migrate`.
type migrateFlags struct {
	up    upFlags
	back  bool
	force bool
	limit time.Duration
}

func migrateCommand() *cobra.Command {
	m := migrateFlags{up: upFlags{run: defaultRun, state: defaultState, uidBase: 64200}}
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make kubelet.service Sextant; with --back, the kubelet again",
		Long: `Give this node Sextant as its agent, in the place of the kubelet that systemd runs.
kubelet.service becomes the handle of Sextant's units: systemctl start, stop, restart
and status kubelet, and journalctl -u kubelet, act on all of them, for kubeadm too. The
pods run on.

First the node is checked as "sextant check" does. If the node is not as before within
--timeout, its agent healthy, its lease renewed and Ready if it was, it gets its former
agent again, and the command fails. On a node that has not joined a cluster yet,
kubelet.service changes, and kubeadm join starts it.`,
		Example: `  sextant check && sextant migrate
  sextant migrate --back`,
		Args:    cobra.NoArgs,
		PreRunE: asRoot("it changes kubelet.service"),
		RunE:    func(c *cobra.Command, _ []string) error { return m.run(c.Context(), c.OutOrStdout()) },
	}
	c.Flags().BoolVar(&m.back, "back", false, "give the node the kubelet again")
	c.Flags().BoolVar(&m.force, "force", false, "also where something blocks Sextant")
	c.Flags().DurationVar(&m.limit, "timeout", 2*time.Minute, "how long the node may take to be as before")
	return c
}

func (m *migrateFlags) run(ctx context.Context, out io.Writer) error {
	toTheEnd()
	files := migrate.HostFiles()
	unlock, err := files.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	unfinished, err := files.Unfinished()
	if err != nil {
		return err
	}
	switch {
	case !util.IsRunningSystemd():
		return errors.New("systemd does not run this machine: run sextant up in the place of the kubelet")
	case !m.back && !files.Installed():
		return fmt.Errorf("the package is not installed: %s is missing (apt install ./sextant_VERSION_ARCH.deb)", files.Package)
	case m.back != files.Sextant() && unfinished == nil:
		to := map[bool]migrate.Agent{false: migrate.Sextant, true: migrate.Kubelet}[m.back]
		fmt.Fprintf(out, "%s is %s already\n", migrate.Unit, to)
		return nil
	}
	p := &progress{out: out, start: time.Now()}
	change := &migrate.Change{Files: files, To: migrate.Sextant, Limit: m.limit, Step: p.step}
	var args []string
	if m.back {
		change.To = migrate.Kubelet
		if plan, err := supervisor.ReadPlan(m.up.run); err == nil {
			args = plan.Kubelet
		}
	}
	agent, args, source, err := check.FindArgs(args)
	if err != nil {
		return err
	}
	if unfinished != nil && agent.PID == 0 && len(unfinished.Args) > 0 {
		args, source = unfinished.Args, "the flags of the agent that an earlier change ended"
	}
	change.Ran = args
	return m.begin(ctx, out, change, args, source)
}

// begin checks the node, if it gets Sextant, and makes the change, which it watches where
// the kubelet's configuration says what to watch.
func (m *migrateFlags) begin(ctx context.Context, out io.Writer, change *migrate.Change, args []string, source string) error {
	conf, err := configuration(args)
	switch {
	case notYet(err):
		fmt.Fprintf(out, "there is no configuration of a kubelet here yet (%s): kubeadm join writes it and starts %s\n", source, migrate.Unit)
		return change.Run(ctx)
	case m.back && err != nil: // the kubelet may understand it all the same
		fmt.Fprintf(out, "the node is not watched: %s cannot be used: %s\n", source, strings.ReplaceAll(err.Error(), "\n", "; "))
		return change.Run(ctx)
	case !m.back:
		if err := change.Step("node checked", func() (string, error) { return m.check(ctx, args) }); err != nil {
			return err
		}
		if change.Args, err = pinned(args); err != nil {
			return err
		}
		if change.Args != nil {
			fmt.Fprintln(out, "the kubelet's flags are not those in kubeadm's files: they are kept in a drop-in of sextant-prepare.service")
		}
	}
	if conf == nil { // --force
		return change.Run(ctx)
	}
	change.Joined = true
	change.Node = nodeOf(conf)
	return m.watched(ctx, out, change)
}

// configuration is that of the kubelet. The error is why Sextant cannot use it.
func configuration(args []string) (*kubeletconfig.Config, error) {
	flags, err := kubeletconfig.ParseFlags(args)
	if err != nil {
		return nil, err
	}
	conf, _, err := serve.LoadConfig(flags)
	return conf, err
}

// notYet reports whether a configuration cannot be used only because files of it are not
// there, as on a node that has not joined a cluster.
func notYet(err error) bool {
	problems := kubeletconfig.Problems(err)
	return len(problems) > 0 && !slices.ContainsFunc(problems, func(p *kubeletconfig.Problem) bool { return !errors.Is(p, fs.ErrNotExist) })
}

// check is `sextant check`; what blocks is an error.
func (m *migrateFlags) check(ctx context.Context, args []string) (string, error) {
	known, err := factsOf(ctx, "", &m.up, args)
	if err != nil {
		return "", err
	}
	found := check.Judge(known)
	count := map[check.Level]int{}
	var blocks []string
	for _, f := range found {
		count[f.Level]++
		if f.Level == check.Blocks {
			blocks = append(blocks, f.Subject+": "+f.Message)
		}
	}
	if len(blocks) > 0 && !m.force {
		return "", &codedError{fmt.Errorf("not ready for Sextant: %s (sextant check; --force goes on)", strings.Join(blocks, "; ")), exitUsage}
	}
	return fmt.Sprintf("%d block, %d differ, %d unknown", count[check.Blocks], count[check.Differs], count[check.Unknown]), nil
}

// pinned are the flags if sextant-prepare.service would not find them in kubeadm's files.
func pinned(args []string) ([]string, error) {
	kubeadm, err := check.KubeadmArgs("/")
	if err != nil {
		return nil, err
	}
	if slices.Equal(args, kubeadm) {
		return nil, nil
	}
	return args, nil
}

func nodeOf(conf *kubeletconfig.Config) migrate.Node {
	n := migrate.Node{Name: conf.Node.Name, KubeConfig: conf.Node.KubeConfig, Runtime: conf.Kubelet.ContainerRuntimeEndpoint}
	if address := socketsOf(conf)["healthz"]; address != "" {
		n.Healthz = "http://" + address + "/healthz"
	}
	return n
}

// watched makes the change and says which containers ended meanwhile.
func (m *migrateFlags) watched(ctx context.Context, out io.Writer, change *migrate.Change) error {
	before, err := change.Node.Containers(ctx)
	if err != nil {
		return fmt.Errorf("the containers of the node: %w", err)
	}
	if err := change.Run(ctx); err != nil {
		return err
	}
	after, err := change.Node.Containers(ctx)
	if err != nil {
		return fmt.Errorf("the containers of the node: %w", err)
	}
	var ended []string
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if _, runs := after[id]; !runs {
			ended = append(ended, before[id])
		}
	}
	fmt.Fprintf(out, "%s is %s; %d of %d containers run on\n", migrate.Unit, change.To, len(before)-len(ended), len(before))
	for _, name := range ended {
		fmt.Fprintln(out, "ended meanwhile:", name)
	}
	return nil
}
