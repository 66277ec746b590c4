// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/config"
	"github.com/sextant-node/sextant/services/supervisor"
)

// upFlags are the flags of `sextant up` that a kubelet does not have.
type upFlags struct {
	run, state, logDir, logLevel, bus string
	uidBase                           uint32
	detach, getStreams, keepTunables  bool
	kubelet                           bool   // the program is called kubelet
	logFormat                         string // of all parts then
	library, keepSecrets              string
	waitPods                          int
	timeout                           time.Duration
}

func (u *upFlags) set() *pflag.FlagSet {
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	fs.StringVar(&u.run, "run-dir", defaultRun, "sockets and pid files")
	fs.StringVar(&u.state, "state-dir", defaultState, "the services' durable state")
	fs.StringVar(&u.logDir, "service-log-dir", "", "the services' logs (default: log below the state directory)")
	fs.StringVar(&u.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&u.bus, "bus", "", `"off", or the URL of a NATS server to use instead of the node's own`)
	fs.Uint32Var(&u.uidBase, "uid-base", 64200, "first of the nine uids the services run under")
	fs.BoolVar(&u.keepTunables, "keep-kernel-tunables", false, "leave the kernel's tunables as they are, for a node to try on a machine that has other uses")
	fs.BoolVar(&u.getStreams, "get-streams", false, "authorize exec, attach, port-forward and run by GET (every WebSocket) with the verb get, as the kubelet does, instead of create")
	fs.StringVar(&u.keepSecrets, "keep-secrets", "disk", serve.KeepSecrets)
	fs.StringVar(&u.library, "library", "", "folder with a program for each service, for upgrade and rollback (default: every service runs this program)")
	fs.BoolVar(&u.detach, "detach", false, "return when the node is up; it goes on in the background")
	fs.IntVar(&u.waitPods, "wait-pods", 0, "with --detach: wait until this many pods are ready")
	fs.DurationVar(&u.timeout, "timeout", 2*time.Minute, "with --detach: how long to wait")
	return fs
}

// check refuses values that no service takes.
func (u *upFlags) check() error {
	if _, err := service.ParseLevel(u.logLevel); err != nil {
		return usageError(fmt.Errorf("--log-level: %w", err))
	}
	return usageError(config.CheckKeepSecrets(u.keepSecrets))
}

func upCommand() *cobra.Command {
	var u upFlags
	own := u.set()
	kubelet := &kubeletconfig.Flags{}
	c := &cobra.Command{
		Use:   "up [kubelet flags]",
		Short: "Run the whole node: the bus and every service, each a process of its own",
		Long: `Run the whole node: the bus and every service, each a process under a uid of its
own. Takes the kubelet's own flags and configuration beside the ones below; what
Sextant does not honour is refused or warned about by name. Needs root.`,
		Example: `  sextant up --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  sextant up $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
  sextant up --pod-manifest-path /etc/kubernetes/manifests --container-runtime-endpoint unix:///run/containerd/containerd.sock`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			said := kubeletArgs(os.Args[2:], own)
			return up(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), &u, kubelet, said)
		},
	}
	addKubeletFlags(c, kubelet)
	c.Flags().AddFlagSet(own)
	return c
}

// frequent are the kubelet's flags that help shows; the others work too and are in the
// kubelet's reference.
var frequent = map[string]bool{
	"config": true, "config-dir": true, "kubeconfig": true, "bootstrap-kubeconfig": true, "root-dir": true,
	"hostname-override": true, "node-ip": true, "node-labels": true, "container-runtime-endpoint": true,
	"pod-manifest-path": true, "register-with-taints": true,
}

// addKubeletFlags has a verb take a kubelet's flags. Deprecated ones are among the warnings
// of the configuration, and need none of their own on stdout.
func addKubeletFlags(c *cobra.Command, kubelet *kubeletconfig.Flags) {
	kubelet.AddFlags(c.Flags())
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden, f.Deprecated = !frequent[f.Name], "" })
}

// kubeletArgs are the arguments that are not `up`'s own: they are passed to config
// unchanged, which alone interprets them.
func kubeletArgs(args []string, own *pflag.FlagSet) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		f := own.Lookup(name)
		if short := args[i]; f == nil && len(short) > 1 && short[0] == '-' && short[1] != '-' {
			f, joined = own.ShorthandLookup(short[1:2]), len(short) > 2
		}
		if f == nil || !strings.HasPrefix(args[i], "-") {
			rest = append(rest, args[i])
			continue
		}
		if !joined && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return rest
}

func up(ctx context.Context, out, warn io.Writer, u *upFlags, flags *kubeletconfig.Flags, said []string) error {
	if err := needRoot("up", "it gives each service a uid of its own"); err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return err
	}
	progress := &progress{out: out, start: time.Now()}
	conf, warnings, err := serve.LoadConfig(flags)
	say := func(w string) { fmt.Fprintln(warn, "warning:", w) }
	if u.kubelet {
		progress.out = io.Discard
		if conf != nil {
			u.logFormat = conf.Kubelet.Logging.Format
		}
		log := service.NewLogger(warn, u.logFormat, "supervisor", slog.LevelInfo)
		say = func(w string) { log.Warn(w) }
	}
	for _, w := range warnings {
		say(w.String())
	}
	if err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	if !u.keepTunables {
		if err := ensureTunables(say, conf); err != nil {
			return err
		}
	}
	plan, err := planFor(u, conf, said)
	if err != nil {
		return err
	}
	if active, err := supervisor.SliceActive(ctx, plan.Run); err != nil {
		return err
	} else if active {
		return fmt.Errorf("systemd runs this node's services: systemctl stop %s first", supervisor.Slice)
	}
	if err := supervisor.StopProcesses(ctx, plan.Run); err != nil {
		return fmt.Errorf("stop the services of an earlier start: %w", err)
	}
	if err := progress.step("folders, uids and keys", func() (string, error) { return plan.Run, plan.Prepare() }); err != nil {
		return err
	}
	log := service.NewLogger(warn, plan.LogFormat, "supervisor", slog.LevelInfo)
	// What this process starts has them from it, the supervisor in the background, too.
	if err := supervisor.AdjustOOMScore(int(*conf.Kubelet.OOMScoreAdj)); err != nil {
		log.Warn("oomScoreAdj is not set", service.KeyError, err.Error())
	}
	if err := supervisor.LimitOpenFiles(uint64(conf.Kubelet.MaxOpenFiles)); err != nil {
		log.Warn("maxOpenFiles is not set", service.KeyError, err.Error())
	}
	if !u.detach {
		if name := conf.Kubelet.KubeletCgroups; name != "" {
			if err := supervisor.JoinCgroup(name); err != nil {
				log.Warn("kubeletCgroups is not joined", service.KeyError, err.Error())
			}
		}
		tell := func(text string) { fmt.Fprintln(out, text) }
		if u.kubelet {
			tell = func(text string) { log.Info(text) }
		}
		var telling sync.WaitGroup
		defer telling.Wait()
		starting, end := context.WithCancel(ctx)
		defer end()
		telling.Go(func() { narrate(starting, plan, progress.start, tell) })
		return plan.Supervise(ctx, log)
	}
	if err := plan.Detach(); err != nil {
		return err
	}
	return awaitNode(ctx, out, progress, plan, u)
}

// ensureTunables sets the kernel's tunables, or looks at them, as the configuration says.
func ensureTunables(say func(string), conf *kubeletconfig.Config) error {
	warnings, err := supervisor.EnsureTunables(conf.Kubelet.ProtectKernelDefaults)
	for _, w := range warnings {
		say(w)
	}
	return err
}

func planFor(u *upFlags, conf *kubeletconfig.Config, said []string) (*supervisor.Plan, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	abs := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	plan := &supervisor.Plan{
		Run: abs(u.run), State: abs(u.state),
		RootDir: conf.Node.RootDir, PodLogsDir: conf.Kubelet.PodLogsDir,
		LinksDir: filepath.Join(filepath.Dir(conf.Kubelet.PodLogsDir), "containers"),
		LogDir:   abs(u.logDir),
		Endpoint: conf.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: conf.Kubelet.ImageServiceEndpoint,
		NodeName: conf.Node.Name, KubeConfig: conf.Node.KubeConfig, Bootstrap: conf.Node.BootstrapKubeConfig, CertDir: conf.Node.CertDir,
		Bus: u.bus, LogLevel: u.logLevel, UIDBase: u.uidBase,
		CgroupRoot: conf.CgroupRoot(), Kubelet: said, WorkDir: dir,
		Sockets: socketsOf(conf), GetStreams: u.getStreams, Library: u.library,
		LockFile: conf.Node.LockFile, ExitOnLockContention: conf.Node.ExitOnLockContention,
	}
	plan.Chains = conf.Kubelet.MakeIPTablesUtilChains == nil || *conf.Kubelet.MakeIPTablesUtilChains
	if u.keepSecrets != "disk" { // the default; versions before the flag do not know it
		plan.KeepSecrets = u.keepSecrets
	}
	if u.library != "" {
		plan.Library = abs(u.library)
	}
	plan.LogFormat = u.logFormat
	switch {
	case u.logDir == "" && u.kubelet:
		plan.LogDir = ""
	case u.logDir == "":
		plan.LogDir = filepath.Join(plan.State, "log")
	}
	return plan, nil
}

// socketsOf are the addresses nodeapi will listen on.
func socketsOf(conf *kubeletconfig.Config) map[string]string {
	k, sockets := conf.Kubelet, map[string]string{}
	add := func(name, host string, port int32) {
		if port > 0 {
			sockets[name] = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
	}
	if k.HealthzPort != nil {
		add("healthz", k.HealthzBindAddress, *k.HealthzPort)
	}
	if k.EnableServer == nil || *k.EnableServer {
		add("https", k.Address, k.Port)
		add("read-only", k.Address, k.ReadOnlyPort)
	}
	return sockets
}

func awaitNode(ctx context.Context, out io.Writer, progress *progress, plan *supervisor.Plan, u *upFlags) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	err := progress.step("services", func() (string, error) { return awaitServices(ctx, plan) })
	if err == nil && u.waitPods > 0 {
		err = progress.step("pods", func() (string, error) { return awaitPods(ctx, plan, u.waitPods) })
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	rows, rowsErr := serviceRows(ctx, plan.Paths(), 200*time.Millisecond)
	pods, podsErr := podRows(ctx, plan.Paths())
	o := output{format: "table"}
	return errors.Join(err, rowsErr, podsErr,
		blankLine(out), printServices(out, &o, rows, time.Now()),
		blankLine(out), printPods(out, &o, pods, time.Now()))
}

func blankLine(w io.Writer) error { _, err := fmt.Fprintln(w); return err }
