// SPDX-License-Identifier: Apache-2.0

package kubeadm_test

import (
	"bytes"
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// limit is how long each step may take on a busy machine.
const limit = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	harness.MainAlone(m, "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/sextant", "/var/log", "/run")
}

// machine is where kubeadm is run: a lab with a systemd for it.
type machine struct {
	*testing.T
	cp      *harness.ControlPlane
	runtime *harness.Runtime
	dir     string
}

// TestKubeadm does what an operator does: the cluster's part of `kubeadm init`, a
// token, `kubeadm join`, `kubeadm upgrade node` and in the end `kubeadm reset`.
func TestKubeadm(t *testing.T) {
	m := &machine{T: t, cp: harness.StartControlPlane(t), runtime: harness.StartRuntime(t, harness.V2), dir: t.TempDir()}
	m.provide()
	cluster := m.write("cluster.yaml", fmt.Sprintf(clusterConfig, m.runtime.Endpoint(), m.runtime.CgroupRoot))
	m.kubeadm("init", "phase", "upload-config", "all", "--config="+cluster, "--kubeconfig="+m.cp.KubeConfig)
	m.kubeadm("init", "phase", "bootstrap-token", "--config="+cluster, "--kubeconfig="+m.cp.KubeConfig, "--skip-token-print")
	command := m.kubeadm("token", "create", "--print-join-command", "--kubeconfig="+m.cp.KubeConfig)
	found := regexp.MustCompile(`kubeadm join (\S+) --token (\S+) --discovery-token-ca-cert-hash (\S+)`).FindStringSubmatch(command)
	if found == nil {
		t.Fatalf("no command to join: %q", command)
	}

	out := m.kubeadm("join", "--ignore-preflight-errors=all", "--config="+m.write("join.yaml",
		fmt.Sprintf(joinConfig, found[1], found[2], found[3], m.runtime.Endpoint())))
	if !strings.Contains(out, "This node has joined the cluster") {
		t.Errorf("kubeadm join says:\n%s", out)
	}
	m.files()
	m.node()
	m.pod()

	m.kubeadm("upgrade", "node", "--ignore-preflight-errors=all")
	m.kubeadm("reset", "--force", "--cri-socket="+m.runtime.Endpoint())
	m.nothing()
}

const nodeName = "joined"

// clusterConfig is what the cluster's operator gave `kubeadm init`. The machine's
// runtime makes cgroups itself, in the lab's.
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
cgroupRoot: %s
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

// provide puts the systemctl that kubeadm finds in its place.
func (m *machine) provide() {
	m.Helper()
	script, err := filepath.Abs("testdata/systemctl")
	if err != nil {
		m.Fatal(err)
	}
	if err := os.Symlink(script, filepath.Join(m.dir, "systemctl")); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		// Not the test's context: that has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		sextant := harness.The(m).Binary(m)
		if m.Failed() {
			out, err := exec.CommandContext(ctx, sextant, "status").CombinedOutput()
			m.Logf("sextant status: %s %v\nkubelet.service:\n%s", out, err, harness.Tail(m.log(), 60))
		}
		if out, err := exec.CommandContext(ctx, sextant, "down", "--purge").CombinedOutput(); err != nil {
			m.Errorf("sextant down --purge: %v\n%s", err, out)
		}
	})
}

func (m *machine) log() string { return filepath.Join(m.dir, "kubelet.service.log") }

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
	cmd := m.command(harness.The(m).Tool(m, "kubeadm", "kubeadm"), args...)
	var out, warn bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warn
	err := cmd.Run()
	m.Logf("kubeadm %s\n%s%s", strings.Join(args, " "), &out, &warn)
	if err != nil {
		m.Fatalf("kubeadm %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

func (m *machine) systemctl(args ...string) {
	m.Helper()
	if out, err := m.command(filepath.Join(m.dir, "systemctl"), args...).CombinedOutput(); err != nil {
		m.Fatalf("systemctl %v: %v\n%s", args, err, out)
	}
}

// command is a program that finds this machine's systemctl.
func (m *machine) command(program string, args ...string) *exec.Cmd {
	lab := harness.The(m)
	cmd := exec.CommandContext(m.Context(), program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "PATH="+m.dir+":"+os.Getenv("PATH"), "HOME="+m.dir,
		"LAB_DROPIN="+filepath.Join(lab.Source, "deploy", "systemd", "kubelet.service.d", "20-sextant.conf"),
		"LAB_SEXTANT="+lab.Binary(m), "LAB_LOG="+m.log())
	return cmd
}

// files looks at what kubeadm and the node agent have left for each other.
func (m *machine) files() {
	m.Helper()
	for path, want := range map[string]string{
		"/var/lib/kubelet/kubeadm-flags.env": "--hostname-override=" + nodeName,
		"/var/lib/kubelet/config.yaml":       "containerRuntimeEndpoint: " + m.runtime.Endpoint(),
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
	m.systemctl("restart", "kubelet")
	harness.Eventually(m, limit, "a lease renewed by the new start", func(ctx context.Context) error {
		lease, err := m.cp.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(restarted) {
			err = fmt.Errorf("renewed at %v", lease.Spec.RenewTime)
		}
		return err
	})
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
	if left := harness.Mounts("/var/lib/kubelet"); !slices.Equal(left, []string{"/var/lib/kubelet"}) {
		m.Errorf("mounts after reset: %v", left)
	}
}
