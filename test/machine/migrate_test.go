// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

var release = flag.String("release", "", "folder with the package, sextant_*.deb, and the installer's image of it, image.tar")

// onPath is the API server by a name that its certificate has.
const onPath = "kubernetes:6443"

// TestMigrate: a Debian that kubeadm joined with the kubelet, with ten pods, gets Sextant by
// its package and the kubelet again, then Sextant by the DaemonSet of the release. kubeadm
// upgrades and resets it while kubelet.service is Sextant. On cgroup v2, with systemd as it is.
func TestMigrate(t *testing.T) {
	b := migrant(t)
	t.Cleanup(b.dump)
	b.joined()
	var pods []string
	for i := range 10 {
		pods = append(pods, fmt.Sprintf("app-%d", i))
		b.app(pods[i])
	}
	before := b.standing(pods)

	b.timed("apt-get install --yes /payload/sextant.deb")
	if out := b.timed("sextant check || true"); !strings.Contains(out, "ready for Sextant: 0 block") {
		t.Error("sextant check finds something that blocks")
	}
	b.migrated("migrate", "Sextant", "/journalctl")
	b.unchanged(before)
	b.unit()
	b.timed("kubeadm upgrade node")
	b.unchanged(before)
	b.migrated("migrate --back", "the kubelet", "/kubelet")
	b.unchanged(before)
	b.purged()
	b.unchanged(before)

	b.installed()
	b.unchanged(before)
	for _, name := range pods { // as an operator does; kubeadm gives the runtime two seconds for each
		b.delete(name)
	}
	b.timed("kubeadm reset --force")
	if left := b.do("ls -A /var/lib/kubelet; ls /etc/kubernetes/*.conf 2>/dev/null; grep /var/lib/kubelet /proc/self/mounts; ctr -n k8s.io tasks ls -q; true"); left != "" {
		t.Errorf("left after kubeadm reset:\n%s", left)
	}
	b.purged()
}

// migrant boots a machine with a runtime, kubeadm and the kubelet's package, and an API
// server that nodes can join.
func migrant(t *testing.T) *bench {
	found, err := filepath.Glob(filepath.Join(*release, "sextant_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("want a package in %q: %v, %v (make machine-migrate runs this)", *release, found, err)
	}
	archives, err := filepath.Glob(filepath.Join(*images, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no images in %q: %v", *images, err)
	}
	lab, dir := harness.The(t), machineDir(t)
	payload := filepath.Join(dir, "payload")
	b := &bench{T: t, m: &Machine{
		Dir: dir, Kernel: filepath.Join(*image, "vmlinuz"), Initrd: filepath.Join(*image, "initrd"), Agent: filepath.Join(payload, "agent"),
		Hardware: []string{"-cpu", "max,la57=off", "-smp", "2", "-m", "4096"},
	}}
	t.Cleanup(b.m.Cut)
	for name, source := range map[string]string{
		"kubelet": lab.Tool(t, "kubelet", "kubelet"), "kubeadm": lab.Tool(t, "kubeadm", "kubeadm"),
		"kubelet.service": "../e2e/kubeadm/testdata/kubelet.service", "10-kubeadm.conf": "../e2e/kubeadm/testdata/10-kubeadm.conf",
		"sextant.deb": found[0], "images/installer.tar": filepath.Join(*release, "image.tar"),
	} {
		b.run("install", "-D", source, filepath.Join(payload, name))
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		b.run("install", "-D", lab.Tool(t, "runtime", name), filepath.Join(payload, "runtime", name))
	}
	b.run("cp", append(slices.Clone(archives), filepath.Join(payload, "images"))...)
	b.buildAgent(b.m.Agent)
	b.run("mkfs.ext4", "-q", "-F", "-L", "payload", "-d", payload, filepath.Join(dir, "payload.img"), "1G")
	b.run("cp", "--sparse=always", filepath.Join(*image, "disk.img"), b.m.Disk())
	b.run("truncate", "-s", "8G", b.m.Disk())

	b.cp = harness.StartControlPlane(b)
	b.cp.StopControllers(b)
	// Emulation is slow: whatever makes a node or a pod unready is to be the agent's doing,
	// and a certificate is to last longer than a stall.
	b.cp.StartControllers(b, "--node-monitor-grace-period="+limit.String(), "--cluster-signing-duration=2h")
	b.cp.StartScheduler(b)
	b.ns = b.cp.Namespace(b)
	b.m.APIServer = strings.TrimPrefix(b.cp.Server, "https://")
	b.boot()
	b.write("/etc/containerd/config.toml", strings.Replace(nodeTestRuntime, "registry.k8s.io/pause:3.10.2", "sextant.local/pause:v1", 1))
	b.do(`set -e
resize2fs /dev/vda 2>/dev/null
echo 10.99.0.100 kubernetes >>/etc/hosts
modprobe br_netfilter && sysctl -q net.bridge.bridge-nf-call-iptables=1 net.ipv4.ip_forward=1
install -D -m755 /payload/kubelet /usr/bin/kubelet
install -D -m755 /payload/kubeadm /usr/bin/kubeadm
install -D -m644 /payload/kubelet.service /usr/lib/systemd/system/kubelet.service
install -D -m644 /payload/10-kubeadm.conf /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
systemctl stop containerd
for i in containerd containerd-shim-runc-v2 ctr runc; do install -m755 /payload/runtime/$i /usr/bin/$i; done
rm -f /usr/sbin/runc
systemctl start containerd
systemctl daemon-reload && systemctl enable kubelet
for i in /payload/images/*.tar; do ctr -n k8s.io images import $i; done`)
	return b
}

// migrantCluster is what the cluster's operator gave `kubeadm init`.
const migrantCluster = `
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking: {serviceSubnet: 10.255.0.0/24}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
`

// migrantNode is what the node's operator gives `kubeadm join`.
const migrantNode = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: "` + onPath + `", token: %s, caCertHashes: ["%s"]}
nodeRegistration:
  name: ` + nodeName + `
  criSocket: unix:///run/containerd/containerd.sock
timeouts: {kubeletHealthCheck: 30m, tlsBootstrap: 30m, discovery: 30m}`

// joined has kubeadm join the machine with the kubelet.
func (b *bench) joined() {
	b.Helper()
	config := filepath.Join(b.m.Dir, "cluster.yaml")
	b.check(os.WriteFile(config, []byte(migrantCluster), 0o600))
	kubeadm := func(args ...string) string {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), harness.The(b).Tool(b, "kubeadm", "kubeadm"), append(args, "--kubeconfig="+b.cp.KubeConfig)...)
		cmd.Env = append(os.Environ(), "HOME="+b.m.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("kubeadm %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	kubeadm("init", "phase", "upload-config", "all", "--config="+config)
	kubeadm("init", "phase", "bootstrap-token", "--config="+config, "--skip-token-print")
	b.known()
	command := kubeadm("token", "create", "--print-join-command")
	found := regexp.MustCompile(`--token (\S+) --discovery-token-ca-cert-hash (\S+)`).FindStringSubmatch(command)
	if found == nil {
		b.Fatalf("no command to join: %q", command)
	}
	b.write("/srv/join.yaml", fmt.Sprintf(migrantNode, found[1], found[2]))
	b.timed("kubeadm join --config=/srv/join.yaml")
}

// known has the cluster tell nodes the API server's name as they see it.
func (b *bench) known() {
	b.Helper()
	maps := b.cp.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic)
	info, err := maps.Get(b.Context(), "cluster-info", metav1.GetOptions{})
	b.check(err)
	config, err := clientcmd.Load([]byte(info.Data["kubeconfig"]))
	b.check(err)
	for _, c := range config.Clusters {
		c.Server = "https://" + onPath
	}
	text, err := clientcmd.Write(*config)
	b.check(err)
	info.Data["kubeconfig"] = string(text)
	_, err = maps.Update(b.Context(), info, metav1.UpdateOptions{})
	b.check(err)
}

// timed is do, and logs what was said and how long it took.
func (b *bench) timed(script string) string {
	b.Helper()
	began := time.Now()
	out := b.do("export HOME=/root; " + script + " 2>&1")
	b.Logf("%s took %.0f s of an emulated machine:\n%s", script, time.Since(began).Seconds(), out)
	return out
}

// standing waits until the pods are Ready, and returns what must not change: their
// containers, and since when they and the node are Ready.
func (b *bench) standing(pods []string) map[string]string {
	b.Helper()
	now := map[string]string{}
	for _, name := range pods {
		b.reported(name)
		p := b.pod(name)
		s := p.Status.ContainerStatuses[0]
		now[name] = fmt.Sprintf("%s restarted %d times, Ready since %s", s.ContainerID, s.RestartCount, podReady(p).LastTransitionTime)
	}
	node, err := b.cp.Admin.CoreV1().Nodes().Get(b.Context(), nodeName, metav1.GetOptions{})
	b.check(err)
	ready := nodeReady(node)
	now["node"] = fmt.Sprintf("%s since %s", ready.Status, ready.LastTransitionTime)
	return now
}

func (b *bench) unchanged(before map[string]string) {
	b.Helper()
	names := slices.Sorted(maps.Keys(before))
	now := b.standing(slices.DeleteFunc(names, func(name string) bool { return name == "node" }))
	if !maps.Equal(now, before) {
		b.Errorf("it was %v\nit is %v", before, now)
	}
}

// migrated has sextant migrate, and looks at which agent kubelet.service is.
func (b *bench) migrated(verb, agent, program string) {
	b.Helper()
	out := b.timed("sextant " + verb + " --timeout=" + limit.String())
	if want := "kubelet.service is " + agent + "; 10 of 10 containers run on"; !strings.Contains(out, want) {
		b.Errorf("sextant %s does not say %q", verb, want)
	}
	if exe := b.do("readlink /proc/$(systemctl show -p MainPID --value kubelet)/exe"); !strings.HasSuffix(exe, program) {
		b.Errorf("kubelet.service runs %s", exe)
	}
}

// unit does with kubelet.service what an operator does, while it is Sextant.
func (b *bench) unit() {
	b.Helper()
	if state := b.do("systemctl is-enabled kubelet"); state != "enabled" {
		b.Errorf("kubelet.service is %s", state)
	}
	if log := b.do("journalctl --no-pager --quiet -u kubelet"); !strings.Contains(log, `"service":"podworker"`) {
		b.Error("journalctl -u kubelet has nothing of podworker")
	}
	if out := b.do("systemctl status --no-pager kubelet"); !strings.Contains(out, "active (running)") {
		b.Errorf("systemctl status kubelet:\n%s", out)
	}
	b.do("systemctl stop kubelet")
	if left := b.do("systemctl list-units --no-legend --plain --type=service --state=active,activating,reloading 'sextant*'"); left != "" {
		b.Errorf("after systemctl stop kubelet there run\n%s", left)
	}
	for _, verb := range []string{"start", "restart"} {
		asked := b.lease().Spec.RenewTime
		b.do("systemctl " + verb + " kubelet")
		b.eventually("the Lease renewed after systemctl "+verb+" kubelet", func(context.Context) error {
			if now := b.lease().Spec.RenewTime; !asked.Before(now) {
				return fmt.Errorf("it was at %s", now)
			}
			return nil
		})
	}
}

// purged removes the package and looks for what is left of it, but for image.sh's drop-in.
func (b *bench) purged() {
	b.Helper()
	b.timed("apt-get purge --yes sextant")
	if left := b.do(`find /etc /run /usr/bin /usr/lib /var/lib -xdev -iname '*sextant*' -not -path '/var/lib/systemd/*' -not -path '/var/lib/kubelet/*' \
 -not -path '/var/lib/containerd/*' -not -path '/run/containerd/*' -not -path '/etc/systemd/system/sextant-.service.d'
systemctl list-units --all --no-legend --plain 'sextant*'`); left != "" {
		b.Errorf("left by the package:\n%s", left)
	}
}

// installed has the DaemonSet of the release install the package and make kubelet.service
// Sextant.
func (b *bench) installed() {
	b.Helper()
	dir := b.TempDir()
	for _, name := range []string{"daemonset.yaml", "kustomization.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/installer", name))
		b.check(err)
		manifest := strings.ReplaceAll(string(text), "VERSION", "test")
		if head, patch, ok := strings.Cut(manifest, "# patches:"); ok { // with --migrate
			manifest = head + strings.ReplaceAll("# patches:"+patch, "# ", "")
		}
		b.check(os.WriteFile(filepath.Join(dir, name), []byte(manifest), 0o600))
	}
	b.cp.Kubectl(b, "apply", "-k", dir)
	b.cp.Kubectl(b, "label", "node", nodeName, "sextant-install=true")
	b.eventually("the installer Ready", func(ctx context.Context) error {
		pods, err := b.cp.Admin.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=sextant-installer"})
		if err != nil || len(pods.Items) == 0 {
			return cmp.Or(err, fmt.Errorf("no pod"))
		}
		if ready := podReady(&pods.Items[0]); ready.Status != corev1.ConditionTrue {
			return fmt.Errorf("%+v", pods.Items[0].Status)
		}
		return nil
	})
	if exe := b.do("readlink /proc/$(systemctl show -p MainPID --value kubelet)/exe"); !strings.HasSuffix(exe, "/journalctl") {
		b.Errorf("kubelet.service runs %s", exe)
	}
	b.cp.Kubectl(b, "delete", "-n", metav1.NamespaceSystem, "daemonset", "sextant-installer")
	b.eventually("the installer gone", func(ctx context.Context) error {
		pods, err := b.cp.Admin.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=sextant-installer"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
	b.Log("the DaemonSet installed the package and made kubelet.service Sextant")
}
