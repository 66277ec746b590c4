// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/config"
	"github.com/sextant-node/sextant/services/supervisor"
)

// patience is how long the runtime and the API server have for an answer.
const patience = 10 * time.Second

// Request is what to look at.
type Request struct {
	// Args are the kubelet's flags; those of the kubelet that runs, or of kubeadm's
	// files, when empty.
	Args []string
	// Load reads the configuration that the flags name.
	Load func(*kubeletconfig.Flags) (*kubeletconfig.Config, []kubeletconfig.Warning, error)
	// Running reports whether Sextant runs the node already.
	Running bool
	// Plan is the node that Sextant would be under a configuration, and the addresses it
	// would listen on.
	Plan func(*kubeletconfig.Config) *supervisor.Plan
}

// Gather reads the node. It changes nothing.
func Gather(ctx context.Context, r Request) *Facts {
	f := &Facts{Kernel: kernel(), Cgroup: string(kubeletconfig.ReadHostFacts(os.DirFS("/")).Cgroup)}
	agent, args, source, err := FindArgs(r.Args)
	if err != nil {
		f.unread("kubeadm's files", err)
	}
	f.Agent, f.Source = agent, source
	f.Agent.Sextant = f.Agent.Sextant || r.Running
	f.Systemd = systemdVersion(ctx)
	flags, err := kubeletconfig.ParseFlags(args)
	if err != nil {
		f.Problems = problems(err)
		return f
	}
	conf, warnings, err := r.Load(flags)
	f.Warnings = warnings
	if err != nil {
		f.Problems = problems(err)
	}
	if conf == nil {
		return f
	}
	f.Node = conf.Node.Name
	plan := r.Plan(conf)
	f.Runtime = runtimeOf(ctx, plan)
	f.ports(plan)
	f.disks(plan)
	f.accounts(plan)
	f.manifests(conf)
	f.flexVolume(conf.Kubelet.VolumePluginDir)
	if conf.Node.KubeConfig != "" {
		if err := f.pods(ctx, conf); err != nil {
			f.unread("pods", err)
		}
	}
	return f
}

// FindArgs are the kubelet's flags: those given, or of the kubelet that runs, or in
// kubeadm's files; with the source they are from.
func FindArgs(given []string) (agent Agent, args []string, source string, err error) {
	agent, args = runningAgent("/proc")
	switch {
	case len(given) > 0:
		return agent, given, "the flags given", nil
	case agent.PID > 0:
		return agent, args, fmt.Sprintf("the flags of process %d", agent.PID), nil
	}
	args, err = KubeadmArgs("/")
	return agent, args, "the flags in kubeadm's files", err
}

func (f *Facts) unread(what string, err error) {
	f.Unread = append(f.Unread, Unread{what, err.Error()})
}

func problems(err error) (all []string) {
	for _, p := range kubeletconfig.Problems(err) {
		all = append(all, p.Error())
	}
	if len(all) == 0 {
		all = append(all, err.Error())
	}
	return all
}

// runningAgent finds the process called kubelet that is root's and the machine's own, and
// its flags. Any process can call itself so: what a pod says must not become the flags of
// root's agent.
func runningAgent(proc string) (Agent, []string) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return Agent{}, nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if filepath.Base(args[0]) != "kubelet" || len(args) > 1 && !strings.HasPrefix(args[1], "-") || !ofMachine(proc, e.Name()) {
			continue
		}
		exe, _ := os.Readlink(filepath.Join(proc, e.Name(), "exe")) // only for its name
		return Agent{PID: pid, Sextant: strings.HasSuffix(exe, "/sextant")}, args[1:]
	}
	return Agent{}, nil
}

// ofMachine reports whether a process is this user's, root's, in the machine's PID
// namespace and in no pod's cgroup: a pod with the machine's processes has one, below
// whatever the machine itself is in.
func ofMachine(proc, pid string) bool {
	info, err := os.Stat(filepath.Join(proc, pid))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return false
	}
	space := func(of string) string {
		to, _ := os.Readlink(filepath.Join(proc, of, "ns/pid")) // none of a process that has ended
		return to
	}
	pods := func(of string) int {
		text, _ := os.ReadFile(filepath.Join(proc, of, "cgroup")) // likewise
		return strings.Count(string(text), "kubepods")
	}
	return space(pid) == space("self") && pods(pid) <= pods("1")
}

// kubeadmFiles have the variables of kubeadm's unit of the kubelet, the last one counts: those
// of Debian's package, of the RPM, and Sextant's own.
var kubeadmFiles = []string{"var/lib/kubelet/kubeadm-flags.env", "etc/default/kubelet", "etc/sysconfig/kubelet", "etc/default/sextant"}

// KubeadmArgs are the flags that kubeadm's unit of the kubelet has, as sextant-prepare has
// them.
func KubeadmArgs(root string) ([]string, error) {
	variables := map[string]string{
		"KUBELET_KUBECONFIG_ARGS": "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf",
		"KUBELET_CONFIG_ARGS":     "--config=/var/lib/kubelet/config.yaml",
	}
	var errs []error
	for _, name := range kubeadmFiles {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		maps.Copy(variables, environment(string(data)))
	}
	var args []string
	for _, name := range []string{"KUBELET_KUBECONFIG_ARGS", "KUBELET_CONFIG_ARGS", "KUBELET_KUBEADM_ARGS", "KUBELET_EXTRA_ARGS"} {
		args = append(args, strings.Fields(variables[name])...)
	}
	return args, errors.Join(errs...)
}

// environment reads a file of NAME=value lines, the values perhaps quoted.
func environment(text string) map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		variables[strings.TrimSpace(name)] = value
	}
	return variables
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// systemdVersion is 0 where systemd does not run the machine.
func systemdVersion(ctx context.Context) int {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return 0
	}
	out, err := exec.CommandContext(ctx, "systemctl", "--version").Output()
	if err != nil {
		return 0
	}
	words := strings.Fields(string(out)) // systemd 252 (252.39-1~deb12u1)
	if len(words) < 2 {
		return 0
	}
	version, _ := strconv.Atoi(words[1])
	return version
}

// runtimeOf asks the runtime, and whether podworker would be let in.
func runtimeOf(ctx context.Context, plan *supervisor.Plan) Runtime {
	r := Runtime{Endpoint: plan.Endpoint}
	if err := plan.Startable("podworker"); err != nil {
		r.Refused = err.Error()
	}
	fail := func(err error) Runtime {
		r.Error, r.Refused = err.Error(), ""
		return r
	}
	socket := strings.TrimPrefix(plan.Endpoint, "unix://")
	if _, err := os.Stat(socket); err != nil {
		return fail(err)
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Timeout: patience})
	if err != nil {
		return fail(err)
	}
	defer conn.Close() //nolint:errcheck // nothing was left to send
	client := runtimeapi.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fail(err)
	}
	r.Name, r.Version = version.GetRuntimeName(), version.GetRuntimeVersion()
	status, err := client.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fail(err)
	}
	r.Ready, r.Network = "it does not say so", "it does not say so"
	for _, c := range status.GetStatus().GetConditions() {
		text := ""
		if !c.GetStatus() {
			text = strings.TrimSpace(c.GetReason() + " " + c.GetMessage())
		}
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
			r.Ready = text
		case runtimeapi.NetworkReady:
			r.Network = text
		}
	}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	pods, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{State: ready}})
	if err != nil {
		return fail(err)
	}
	for _, p := range pods.GetItems() {
		if p.GetAnnotations()[pod.ConfigSourceAnnotation] == pod.SourceFile {
			r.Static = append(r.Static, p.GetMetadata().GetNamespace()+"/"+p.GetMetadata().GetName())
		}
	}
	slices.Sort(r.Static)
	return r
}

func (f *Facts) ports(plan *supervisor.Plan) {
	for _, name := range slices.Sorted(maps.Keys(plan.Sockets)) {
		address := plan.Sockets[name]
		l, err := net.Listen("tcp", address)
		if err == nil {
			_ = l.Close() // nothing was accepted
			continue
		}
		f.Ports = append(f.Ports, Port{name, address, err.Error()})
	}
}

func (f *Facts) disks(plan *supervisor.Plan) {
	for _, path := range []string{plan.State, plan.RootDir} {
		folder := path
		for {
			var s unix.Statfs_t
			err := unix.Statfs(folder, &s)
			if errors.Is(err, unix.ENOENT) && folder != "/" { // it will be made
				folder = filepath.Dir(folder)
				continue
			}
			if err != nil {
				f.unread(path, err)
			} else {
				f.Disks = append(f.Disks, Disk{path, s.Bavail * uint64(mounts.BlockSize(&s))})
			}
			break
		}
	}
}

// accounts finds those that have the uids of the services; the package's own are meant.
func (f *Facts) accounts(plan *supervisor.Plan) {
	uids := slices.Sorted(maps.Values(plan.Identities()))
	for _, uid := range slices.Compact(uids) {
		if found, err := user.LookupId(fmt.Sprint(uid)); err == nil && uid != 0 && !strings.HasPrefix(found.Username, "sextant-") {
			f.Accounts = append(f.Accounts, Account{uid, found.Username})
		}
	}
}

// flexVolume finds the FlexVolume plugins in a folder: vendor~driver/driver.
func (f *Facts) flexVolume(dir string) {
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.unread("volumePluginDir", err)
	}
	for _, e := range entries {
		name := e.Name()
		driver := name[strings.LastIndex(name, "~")+1:]
		if info, err := os.Stat(filepath.Join(dir, name, driver)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			f.FlexVolume = append(f.FlexVolume, strings.Replace(name, "~", "/", 1))
		}
	}
}

func (f *Facts) manifests(conf *kubeletconfig.Config) {
	if conf.Kubelet.StaticPodPath == "" {
		return
	}
	all, err := config.ReadManifests(conf.Kubelet.StaticPodPath, conf.Node.Name)
	if err != nil {
		f.unread("manifests", err)
	}
	for _, m := range all {
		if m.Problem != "" || m.Ignored != "" {
			f.Manifests = append(f.Manifests, Manifest{m.Path, m.Problem, m.Ignored})
		}
		if m.Pod == nil {
			continue
		}
		f.Pods = append(f.Pods, podOf(m.Pod))
	}
}
