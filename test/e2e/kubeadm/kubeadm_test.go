// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// limit is how long each step may take on a busy machine.
const limit = 4 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	harness.MainBooted(m, harness.Boot{Provide: func(dir string) error {
		script := `set -e; cd ../../..; deploy/package/build.sh "$1"
[ -z "$2" ] || go run ./deploy/package/image -name "$2" -o "$1/image.tar" "$1"/sextant_*.deb
[ -z "$3" ] || deploy/package/build.sh "$1/next" "$(deploy/build.sh version).next" .`
		image, next := "", ""
		if wanted("TestInstaller") {
			image = installerImage
		}
		formats := "deb"
		if wanted("TestUpgrade") {
			next = "yes"
		}
		if wanted("TestRPM") {
			next, formats = "yes", "deb rpm"
		}
		build := exec.Command("sh", "-c", script, "sh", dir, image, next)
		build.Env = append(os.Environ(), "FORMATS="+formats)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the packages: %w\n%s", err, out)
		}
		return nil
	}})
}

// wanted reports whether a test is among those that were asked for.
func wanted(test string) bool {
	matches := func(name string) bool {
		pattern := flag.Lookup(name).Value.String()
		found, err := regexp.MatchString(pattern, test)
		return pattern != "" && (err != nil || found)
	}
	return (flag.Lookup("test.run").Value.String() == "" || matches("test.run")) && !matches("test.skip")
}

// machine is where kubeadm is run.
type machine struct {
	*testing.T
	cp      *harness.ControlPlane
	runtime *harness.Runtime
	dir     string
}

// endpoint is where the runtime's socket usually is.
const endpoint = "unix:///run/containerd/containerd.sock"

// newMachine has a cluster that nodes can join, the runtime and the packages of kubelet and
// Sextant. It returns the arguments of `kubeadm join`.
func newMachine(t *testing.T) (*machine, []string) {
	m, join := newMachineWithout(t)
	m.sextantPackage()
	return m, join
}

// newMachineWithout is newMachine without Sextant's package.
func newMachineWithout(t *testing.T) (*machine, []string) {
	m := &machine{T: t, cp: harness.StartControlPlane(t), runtime: harness.StartRuntime(t, harness.V2), dir: t.TempDir()}
	m.usualSocket()
	m.kubeletPackage()
	m.Cleanup(func() {
		if !m.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		out, err := exec.CommandContext(ctx, "sh", "-c", "sextant status; systemctl status --no-pager 'sextant*' kubelet; systemctl list-jobs").CombinedOutput()
		m.Logf("%s %v\nkubelet.service:\n%s", out, err, m.log("kubelet"))
	})
	m.Cleanup(m.forget)
	cluster := m.write("cluster.yaml", fmt.Sprintf(clusterConfig, endpoint))
	m.kubeadm("init", "phase", "upload-config", "all", "--config="+cluster, "--kubeconfig="+m.cp.KubeConfig)
	m.kubeadm("init", "phase", "bootstrap-token", "--config="+cluster, "--kubeconfig="+m.cp.KubeConfig, "--skip-token-print")
	command := m.kubeadm("token", "create", "--print-join-command", "--kubeconfig="+m.cp.KubeConfig)
	found := regexp.MustCompile(`kubeadm join (\S+) --token (\S+) --discovery-token-ca-cert-hash (\S+)`).FindStringSubmatch(command)
	if found == nil {
		t.Fatalf("no command to join: %q", command)
	}
	config := m.write("join.yaml", fmt.Sprintf(joinConfig, found[1], found[2], found[3], endpoint))
	return m, []string{"join", "--ignore-preflight-errors=" + unmet, "--config=" + config}
}

// forget removes the node and its pods from the cluster, which other tests have too.
func (m *machine) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	now := int64(0)
	if err := errors.Join(
		m.cp.Admin.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
		m.cp.Admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName}),
	); err != nil {
		m.Error(err)
	}
}

// unmet is what kubeadm finds missing here, for whatever agent: cgroups of version 2 and a
// kernel module.
const unmet = "SystemVerification,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

// usualSocket puts the runtime's socket where units may see it, which is not below /tmp,
// and gives it the group that containerd gives it by default.
func (m *machine) usualSocket() {
	m.Helper()
	path := strings.TrimPrefix(endpoint, "unix://")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600),
		unix.Mount(strings.TrimPrefix(m.runtime.Endpoint(), "unix://"), path, "", unix.MS_BIND, ""),
		os.Chown(path, 0, 0)); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			m.Error(err)
		}
	})
}

// kubeletPackage puts in place what the kubelet's and kubeadm's packages have.
func (m *machine) kubeletPackage() {
	m.Helper()
	m.run("install", "-D", harness.The(m).Tool(m, "kubelet", "kubelet"), "/usr/bin/kubelet")
	m.run("install", "-D", "-m644", "testdata/kubelet.service", "/usr/lib/systemd/system/kubelet.service")
	m.run("install", "-D", "-m644", "testdata/10-kubeadm.conf", "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf")
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "enable", "kubelet")
}

// sextantPackage installs the package of this source.
func (m *machine) sextantPackage() {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(harness.BootFiles, "sextant_*.deb"))
	if err != nil || len(found) != 1 {
		m.Fatalf("packages %v, %v", found, err)
	}
	m.run("dpkg", "-i", found[0])
}

// TestKubeadm does what an operator does: the cluster's part of `kubeadm init`, a
// token, `kubeadm join`, `kubeadm upgrade node` and in the end `kubeadm reset`, on a
// machine where kubelet.service is Sextant.
func TestKubeadm(t *testing.T) {
	m, join := newMachine(t)
	if out := m.run("sextant", "migrate"); !strings.Contains(out, "there is no configuration of a kubelet here yet") {
		m.Errorf("sextant migrate says:\n%s", out)
	}
	if out := m.kubeadm(join...); !strings.Contains(out, "This node has joined the cluster") {
		m.Errorf("kubeadm join says:\n%s", out)
	}
	m.files()
	m.node()
	m.pod()

	m.kubeadm("upgrade", "node", "--ignore-preflight-errors="+unmet)
	m.kubeadm("reset", "--force", "--cri-socket="+endpoint)
	m.nothing()
	m.purge()
}

const nodeName = "joined"

// clusterConfig is what the cluster's operator gave `kubeadm init`. The machine's
// runtime makes cgroups itself.
const clusterConfig = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  criSocket: %s
localAPIEndpoint:
  advertiseAddress: 192.0.2.2
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking:
  serviceSubnet: 10.255.0.0/24
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
evictionHard: {memory.available: 50Mi} # the machine's disk may be nearly full
`

// joinConfig is what the node's operator gives `kubeadm join`.
const joinConfig = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: %s
    token: %s
    caCertHashes: ["%s"]
nodeRegistration:
  name: ` + nodeName + `
  criSocket: %s
  taints:
  - {key: dedicated, value: test, effect: NoSchedule}
  kubeletExtraArgs:
  - {name: node-labels, value: "disk=ssd,topology.kubernetes.io/zone=here"}
  - {name: node-ip, value: 192.0.2.2}
timeouts:
  kubeletHealthCheck: 2m
  tlsBootstrap: 2m
`

// log is the journal of a unit.
func (m *machine) log(unit string) string {
	m.Helper()
	// Not the test's context: it may have ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--output=short-precise", "-u", unit).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("journalctl -u %s: %v", unit, err)
	}
	return string(out)
}

func (m *machine) write(name, text string) string {
	m.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	return path
}

// kubeadm runs the real one to its end and returns what it said.
func (m *machine) kubeadm(args ...string) string {
	m.Helper()
	return m.run(harness.The(m).Tool(m, "kubeadm", "kubeadm"), args...)
}

// run runs a program to its end and returns what it said.
func (m *machine) run(program string, args ...string) string {
	m.Helper()
	out, err := m.try(program, args...)
	if err != nil {
		m.Fatalf("%s %s: %v", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out
}

// try runs a program, which may fail.
func (m *machine) try(program string, args ...string) (string, error) {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "HOME="+m.dir)
	out, err := cmd.CombinedOutput()
	m.Logf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	return string(out), err
}

// files looks at what kubeadm and the node agent have left for each other.
func (m *machine) files() {
	m.Helper()
	for path, want := range map[string]string{
		"/var/lib/kubelet/kubeadm-flags.env": "--hostname-override=" + nodeName,
		"/var/lib/kubelet/config.yaml":       "containerRuntimeEndpoint: " + endpoint,
		"/etc/kubernetes/pki/ca.crt":         "BEGIN CERTIFICATE",
	} {
		text, err := os.ReadFile(path)
		if m.Logf("%s:\n%s", path, text); err != nil || !strings.Contains(string(text), want) {
			m.Errorf("%s is without %q (%v)", path, want, err)
		}
	}
	if _, err := os.Stat("/etc/kubernetes/bootstrap-kubelet.conf"); !errors.Is(err, fs.ErrNotExist) {
		m.Errorf("kubeadm has not removed the bootstrap kubeconfig: %v", err)
	}
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	config, err := clientcmd.LoadFromFile("/etc/kubernetes/kubelet.conf")
	if err != nil {
		m.Fatal(err)
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if user.ClientCertificate != current || user.ClientKey != current || user.Token != "" {
		m.Errorf("kubelet.conf has the user %+v", user)
	}
	if _, err := os.Stat(current); err != nil {
		m.Error(err)
	}
}

// node looks at what the flags that kubeadm wrote have become.
func (m *machine) node() {
	m.Helper()
	var node *corev1.Node
	harness.Eventually(m, limit, "the node to be Ready", func(ctx context.Context) (err error) {
		if node, err = m.cp.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}); err != nil {
			return err
		}
		if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("conditions %+v", node.Status.Conditions)
		}
		return nil
	})
	if node.Labels["disk"] != "ssd" || node.Labels[corev1.LabelTopologyZone] != "here" {
		m.Errorf("labels %v", node.Labels)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "dedicated" && t.Value == "test" && t.Effect == corev1.TaintEffectNoSchedule
	}) {
		m.Errorf("taints %+v", node.Spec.Taints)
	}
	if !slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}) {
		m.Errorf("addresses %+v", node.Status.Addresses)
	}
}

const namespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// pod runs one with a service account, and looks into it through the node's API;
// a restart of kubelet.service, for which there is no bootstrap kubeconfig any
// more, leaves it alone.
func (m *machine) pod() {
	m.Helper()
	pods := m.cp.Admin.CoreV1().Pods("default")
	if _, err := pods.Create(m.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "web", Image: images.Hello}}},
	}, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	var before corev1.ContainerStatus
	harness.Eventually(m, limit, "the pod to run", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("status %+v", pod.Status)
		}
		before = pod.Status.ContainerStatuses[0]
		return nil
	})
	if got := m.cp.Kubectl(m, "exec", "web", "--", "/hello", "cat", namespace); got != "default" {
		m.Errorf("the service account's namespace is %q", got)
	}

	restarted := time.Now()
	m.run("systemctl", "restart", "kubelet")
	m.renewed(restarted)
	harness.Eventually(m, limit, "an answer from the pod", func(ctx context.Context) error {
		if got := m.cp.TryKubectl(ctx, "exec", "web", "--", "/hello", "cat", namespace); got != "default" {
			return errors.New(got)
		}
		return nil
	})
	pod, err := pods.Get(m.Context(), "web", metav1.GetOptions{})
	if err != nil {
		m.Fatal(err)
	}
	if now := pod.Status.ContainerStatuses[0]; now.ContainerID != before.ContainerID || now.RestartCount != 0 {
		m.Errorf("the container was %+v, is %+v", before, now)
	}
}

// nothing looks at what is left after kubeadm reset.
func (m *machine) nothing() {
	m.Helper()
	list, err := m.runtime.Runtimes.ListPodSandbox(m.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.GetItems()) > 0 {
		m.Errorf("sandboxes after reset: %v %v", list.GetItems(), err)
	}
	for _, pattern := range []string{"/var/lib/kubelet/*", "/etc/kubernetes/*.conf"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			m.Errorf("left after reset: %v %v", left, err)
		}
	}
	if left := harness.Mounts("/var/lib/kubelet"); len(left) > 0 {
		m.Errorf("mounts after reset: %v", left)
	}
}
