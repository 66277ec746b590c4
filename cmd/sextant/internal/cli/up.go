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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/cmd/sextant/internal/node"
	"github.com/sextant-node/sextant/cmd/sextant/internal/serve"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
)

// upFlags are the flags of `sextant up` that a kubelet does not have.
type upFlags struct {
	run, state, logDir, logLevel, bus string
	uidBase                           uint32
	demo, detach, getStreams          bool
	images, examples, library         string
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
	fs.BoolVar(&u.demo, "demo", false, "a node to look at: everything below the state directory, a containerd of its own unless an endpoint is given, example pods")
	fs.StringVar(&u.images, "demo-images", "", "folder of image archives for the demo's containerd")
	fs.StringVar(&u.examples, "demo-manifests", "", "folder of manifests the demo starts with")
	fs.BoolVar(&u.getStreams, "get-streams", false, "exec, attach, port-forward and run by GET (every WebSocket) need the verb get, as in the kubelet, and not create")
	fs.StringVar(&u.library, "library", "", "folder with a program for each service, for upgrade and rollback (default: every service runs this program)")
	fs.BoolVar(&u.detach, "detach", false, "return when the node is up; it goes on in the background")
	fs.IntVar(&u.waitPods, "wait-pods", 0, "with --detach: wait until so many pods are ready")
	fs.DurationVar(&u.timeout, "timeout", 2*time.Minute, "with --detach: how long to wait")
	return fs
}

func upCommand() *cobra.Command {
	var u upFlags
	own := u.set()
	kubelet := &kubeconf.Flags{}
	c := &cobra.Command{
		Use:   "up [kubelet flags]",
		Short: "Run the whole node: the bus and every service, each a process of its own",
		Long: `Run the whole node: the bus and every service, each a process under a uid of its
own. Takes the kubelet's own flags and configuration beside the ones below; what
Sextant does not honour is refused or warned about by name. Needs root.`,
		Example: `  sextant up --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  sextant up $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
  sextant up --pod-manifest-path /etc/kubernetes/manifests --container-runtime-endpoint unix:///run/containerd/containerd.sock
  sextant up --demo --detach`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			said := kubeletArgs(os.Args[2:], own)
			return up(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), &u, kubelet, said)
		},
	}
	kubelet.AddFlags(c.Flags())
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !frequent[f.Name] })
	c.Flags().AddFlagSet(own)
	return c
}

// frequent are the kubelet's flags that help shows; the others work as well and
// are in the kubelet's own reference.
var frequent = map[string]bool{
	"config": true, "config-dir": true, "kubeconfig": true, "bootstrap-kubeconfig": true, "root-dir": true,
	"hostname-override": true, "node-ip": true, "node-labels": true, "container-runtime-endpoint": true,
	"pod-manifest-path": true, "register-with-taints": true,
}

// kubeletArgs are the arguments that are not `up`'s own: they go to config as
// they came, so that it alone interprets them.
func kubeletArgs(args []string, own *pflag.FlagSet) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		f := own.Lookup(name)
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

func up(ctx context.Context, out, warn io.Writer, u *upFlags, flags *kubeconf.Flags, said []string) error {
	if os.Geteuid() != 0 {
		return errors.New("up needs root: it gives each service a uid of its own")
	}
	if _, err := service.ParseLevel(u.logLevel); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	progress := &progress{out: out, start: time.Now()}
	if u.demo {
		added, err := demo(u, flags)
		if err != nil {
			return err
		}
		said = append(added, said...)
		if flags, err = kubeconf.ParseFlags(said); err != nil {
			return err
		}
	}
	conf, warnings, err := serve.LoadConfig(flags)
	for _, w := range warnings {
		fmt.Fprintln(warn, "warning:", w)
	}
	if err != nil {
		return fmt.Errorf("configuration:\n%w", err)
	}
	plan, err := planFor(u, conf, said)
	if err != nil {
		return err
	}
	if active, err := node.SliceActive(ctx, plan.Run); err != nil {
		return err
	} else if active {
		return fmt.Errorf("systemd runs this node's services: systemctl stop %s first", node.Slice)
	}
	if err := node.StopProcesses(ctx, plan.Run); err != nil {
		return fmt.Errorf("stop the services of an earlier start: %w", err)
	}
	if plan.Local != nil {
		if err := progress.step("containerd", func() (string, error) { return plan.EnsureRuntime(ctx, u.images) }); err != nil {
			return err
		}
	}
	if err := progress.step("folders, uids and keys", func() (string, error) { return plan.Run, plan.Prepare() }); err != nil {
		return err
	}
	if !u.detach {
		return plan.Supervise(ctx, service.NewLogger(warn, "supervisor", slog.LevelInfo))
	}
	if err := plan.Detach(); err != nil {
		return err
	}
	return awaitNode(ctx, out, progress, plan, u)
}

func planFor(u *upFlags, conf *kubeconf.Config, said []string) (*node.Plan, error) {
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
	plan := &node.Plan{
		Run: abs(u.run), State: abs(u.state),
		RootDir: conf.Node.RootDir, PodLogsDir: conf.Kubelet.PodLogsDir,
		LinksDir: filepath.Join(filepath.Dir(conf.Kubelet.PodLogsDir), "containers"),
		LogDir:   abs(u.logDir),
		Endpoint: conf.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: conf.Kubelet.ImageServiceEndpoint,
		NodeName: conf.Node.Name, KubeConfig: conf.Node.KubeConfig, Bootstrap: conf.Node.BootstrapKubeConfig, CertDir: conf.Node.CertDir,
		Bus: u.bus, LogLevel: u.logLevel, UIDBase: u.uidBase,
		CgroupRoot: conf.CgroupRoot(), Kubelet: said, WorkDir: dir,
		Sockets: socketsOf(conf), GetStreams: u.getStreams, Library: u.library,
	}
	if u.library != "" {
		plan.Library = abs(u.library)
	}
	if u.logDir == "" {
		plan.LogDir = filepath.Join(plan.State, "log")
	}
	if u.demo {
		plan.Disposable = []string{plan.State}
		if private := filepath.Join(plan.State, "containerd"); strings.HasPrefix(plan.Endpoint, "unix://"+private+"/") {
			plan.Local = &node.LocalRuntime{
				Dir: private, SocketGID: int(plan.Identities()["podworker"]), CgroupRoots: []string{plan.CgroupRoot},
				SystemdCgroup: conf.Kubelet.CgroupDriver == string(pod.Systemd),
			}
		}
	}
	return plan, nil
}

// socketsOf are the addresses nodeapi will listen on.
func socketsOf(conf *kubeconf.Config) map[string]string {
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

func awaitNode(ctx context.Context, out io.Writer, progress *progress, plan *node.Plan, u *upFlags) error {
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
