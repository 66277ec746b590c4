// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// nodeName is the host name of the machine.
const nodeName = "machine"

// bench is the machine, its cluster and the stage that is on.
type bench struct {
	*testing.T
	m        *Machine
	cp       *harness.ControlPlane
	way      *harness.BlackHole
	ns       string
	versions []string
	// packages are the files of their packages on the machine.
	packages []string
	// fresh: the disk has seen nothing yet.
	fresh bool
	// before are the files on the disk before the package.
	before []string
}

// start makes the disks, or takes those that are there.
func start(t *testing.T) *bench {
	t.Helper()
	var found []string
	for _, version := range []string{"previous", "this"} {
		one, err := filepath.Glob(filepath.Join(*packages, version, "sextant_*.deb"))
		if err != nil || len(one) != 1 {
			t.Fatalf("want a package in %s/%s: %v, %v (make machine runs this)", *packages, version, one, err)
		}
		found = append(found, one...)
	}
	archives, err := filepath.Glob(filepath.Join(*images, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no images in %q: %v", *images, err)
	}
	dir := *kept
	if dir == "" {
		dir = machineDir(t)
	}
	payload := filepath.Join(dir, "payload")
	b := &bench{T: t, m: &Machine{
		Dir: dir, Kernel: filepath.Join(*image, "vmlinuz"), Initrd: filepath.Join(*image, "initrd"), Agent: filepath.Join(payload, "agent"),
	}}
	for _, p := range found {
		b.packages = append(b.packages, filepath.Join("/payload", filepath.Base(p)))
		// dpkg's ~ is what semver.org writes as -.
		b.versions = append(b.versions, strings.Replace(strings.Split(filepath.Base(p), "_")[1], "~", "-", 1))
	}
	t.Cleanup(b.m.Cut)
	b.run("rm", "-rf", payload)
	b.run("mkdir", "-p", payload)
	b.run("cp", append(append(found, archives...), payload)...)
	b.buildAgent(b.m.Agent)
	b.run("mkfs.ext4", "-q", "-F", "-L", "payload", "-d", payload, filepath.Join(dir, "payload.img"), "400M")
	if _, err := os.Stat(b.m.Disk()); err != nil {
		b.fresh = true
		b.run("cp", "--sparse=always", filepath.Join(*image, "disk.img"), b.m.Disk())
	}
	return b
}

// cluster gives the machine an API server, switches it on, and has it ready for the
// package: with images, and with what kubeadm would have written.
func (b *bench) cluster() {
	b.Helper()
	b.cp = harness.StartControlPlane(b)
	// Emulation is slow: a Lease that comes late must make no pod unready, so that
	// whatever does is the node's doing.
	b.cp.StopControllers(b)
	b.cp.StartControllers(b, "--node-monitor-grace-period="+limit.String())
	b.way, b.ns = b.cp.StartBlackHole(b), b.cp.Namespace(b)
	b.m.APIServer = strings.TrimPrefix(b.way.Server, "https://")
	b.boot()
	list := filepath.Join(b.m.Dir, "before")
	if b.fresh {
		b.until("the runtime is up", "systemctl is-active containerd || true", func(out string) bool { return out == "active" })
		b.do(`for i in /payload/*.tar; do ctr -n k8s.io images import $i || exit; done`)
		b.configure()
		b.before = b.files()
		b.check(os.WriteFile(list, []byte(strings.Join(b.before, "\n")), 0o600))
		return
	}
	b.configure()
	b.do("systemctl try-restart sextant-prepare 'sextant-*.service'")
	// This API server is another: a pod of a node that it does not know is deleted by its garbage collector.
	b.eventually("the node registered", func(ctx context.Context) error {
		_, err := b.cp.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err
	})
	text, err := os.ReadFile(list)
	b.check(err)
	b.before = strings.Split(string(text), "\n")
}

// machineDir is a folder for a machine, or for what runs beside it. It is the lab's: the next
// run ends the machine that a killed one has left.
func machineDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(harness.The(t).Dir, "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// dump shows, when a stage has failed, what the machine has to say.
func (b *bench) dump() {
	if !b.Failed() {
		return
	}
	// Not the test's context: that has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := b.m.Do(ctx, "sextant status; sextant pods; systemctl list-units --failed --no-pager --plain; systemctl list-jobs --no-pager; journalctl -b -n 200 --no-pager -o short-monotonic 2>&1")
	b.Logf("the machine says (%v):\n%s", err, out)
	text, err := os.ReadFile(b.m.Console())
	b.Logf("console (%v):\n%s", err, text[max(0, len(text)-4000):])
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) run(name string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// buildAgent builds what does inside the machine as the tests say.
func (b *bench) buildAgent(to string) {
	b.Helper()
	b.run("go", "build", "-o", to, "./agent")
}

const configuration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
shutdownGracePeriod: 120s
shutdownGracePeriodCriticalPods: 20s
`

// configure gives the machine what kubeadm would.
func (b *bench) configure() {
	b.Helper()
	credentials, err := clientcmd.LoadFromFile(b.cp.NodeCredentials(b, nodeName))
	b.check(err)
	for _, c := range credentials.Clusters {
		c.Server, c.TLSServerName = "https://"+GuestAPIServer, "localhost"
	}
	text, err := clientcmd.Write(*credentials)
	b.check(err)
	ca, err := os.ReadFile(b.cp.ClientCA())
	b.check(err)
	b.do("mkdir -p /var/lib/kubelet /etc/kubernetes/manifests /etc/kubernetes/pki")
	b.write("/etc/kubernetes/kubelet.conf", string(text))
	b.write("/etc/kubernetes/pki/ca.crt", string(ca))
	b.write("/var/lib/kubelet/config.yaml", configuration+"authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}")
}

// install puts the first package on the machine and starts the slice with a static
// pod; without a cluster the node stands alone.
func (b *bench) install() {
	b.Helper()
	b.do("dpkg -i " + b.packages[0])
	if b.cp == nil {
		b.do("echo KUBELET_KUBECONFIG_ARGS= >>/etc/default/sextant")
		b.write("/var/lib/kubelet/config.yaml", configuration+"authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}")
	}
	b.manifest("web")
	b.do("systemctl enable --now sextant.slice")
	b.ready("web")
}

func (b *bench) write(path, text string) {
	b.Helper()
	b.do(fmt.Sprintf("cat > %[1]s.new <<'END-OF-FILE'\n%[2]s\nEND-OF-FILE\nmv %[1]s.new %[1]s", path, text))
}

func (b *bench) boot() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	if _, err := b.m.Boot(ctx); err != nil {
		b.Fatal(err)
	}
}

// do runs a script inside, which has to succeed.
func (b *bench) do(script string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	out, err := b.m.Do(ctx, script)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// until runs a script again and again until its output satisfies.
func (b *bench) until(what, script string, satisfied func(string) bool) {
	b.Helper()
	b.eventually(what, func(ctx context.Context) error {
		out, err := b.m.Do(ctx, script)
		if err == nil && !satisfied(strings.TrimSpace(out)) {
			err = errors.New(out)
		}
		return err
	})
}

// eventually looks again and again, until there is no error.
func (b *bench) eventually(what string, look func(context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-time.After(time.Second): // the machine is asked again
		}
	}
}

// files is everything on the disk that an installation could have left.
func (b *bench) files() []string {
	b.Helper()
	out := b.do(`find / -xdev \( -path /proc -o -path /sys -o -path /payload -o -path /tmp -o -path /var/tmp -o -path /var/log/journal -o -path /var/lib/dpkg \
 -o -path /var/lib/containerd -o -path /var/lib/cni -o -path /var/lib/systemd -o -path /var/cache -o -path '/etc/*-' -o -path /etc/.pwd.lock \) -prune -o -print
find /run -maxdepth 1 -name 'sextant*'`)
	return strings.Split(out, "\n")
}
