// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sextant-node/sextant/test/e2e/conformance/report"
	"github.com/sextant-node/sextant/test/e2e/harness"
	nodeimages "github.com/sextant-node/sextant/test/images"
)

var (
	focus    = flag.String("focus", "CPU Manager|Memory Manager|Topology Manager", "which of e2e_node's tests to run: a regular expression")
	leaveOut = flag.String("leave-out", `\[Flaky\]`, "which of them to leave out")
	agents   = flag.String("agents", "reference,sextant", "who is the kubelet that they start, separated by commas")
	threads  = flag.Int("threads", 2, "of each core: with 2 a processor has two cores, with 1 it has four, which tests of a node's alignment ask for")
	small    = flag.Bool("small", false, "a machine of two CPUs and one NUMA node, which is faster in emulation, for tests of memory alone")
	swap     = flag.Bool("swap", false, "the machine has 2 GiB of swap")
	within   = flag.Duration("within", 5*time.Hour, "how long the tests of an agent may take, each time; those that have not ended by then do not count")
	times    = flag.Int("times", 1, "how often all of the tests are run, one time after the other on the same machine")
)

// twoNodes are two processors of four CPUs each, and memory beside each. A guest finds the
// threads of an Intel processor only.
func twoNodes() []string {
	return []string{
		"-cpu", "max,la57=off,vendor=GenuineIntel",
		"-smp", fmt.Sprintf("8,sockets=2,cores=%d,threads=%d", 4 / *threads, *threads), "-m", "6144",
		"-object", "memory-backend-ram,id=left,size=3G", "-object", "memory-backend-ram,id=right,size=3G",
		"-numa", "node,nodeid=0,cpus=0-3,memdev=left", "-numa", "node,nodeid=1,cpus=4-7,memdev=right",
	}
}

// smallMachine is enough for tests that ask for memory and cgroup v2 alone.
func smallMachine() []string {
	return []string{"-cpu", "max,la57=off", "-smp", "2", "-m", "4096"}
}

// endLimit is how long tests may go on after their time is over.
const endLimit = time.Hour

// TestNUMA has upstream's e2e_node test an agent as its kubelet on a machine of two NUMA
// nodes, with SMT unless -threads=1. It fails for each test that the reference kubelet passes and Sextant does not.
func TestNUMA(t *testing.T) {
	lab := harness.The(t)
	if *threads != 1 && *threads != 2 {
		t.Fatalf("-threads=%d: 1 or 2", *threads)
	}
	names := strings.Split(*agents, ",")
	results := map[string]map[string]report.Result{}
	registry := harness.StartRegistry(t)
	files := nodeTestFiles(t, registry)
	for _, agent := range names {
		t.Run(agent, func(t *testing.T) { results[agent] = nodeTests(t, agent, files, registry) })
	}
	if t.Failed() {
		return
	}
	fmt.Print(lab.Header(t), report.Table(names, results), report.Skipped(names, results))
	for _, spec := range report.Worse(results, "reference", "sextant") {
		t.Errorf("the reference passes, Sextant does not: %s\n%s", spec, results["sextant"][spec].Message)
	}
	if len(names) == 1 {
		for _, spec := range report.Failed(results[names[0]]) {
			t.Errorf("%s fails: %s\n%s", names[0], spec, results[names[0]][spec].Message)
		}
	}
}

// nodeTestFiles fills a folder with what the machine's payload is: upstream's tests, both
// agents under the name of kubelet, a runtime and the images.
func nodeTestFiles(t *testing.T, registry *harness.Registry) string {
	lab, dir := harness.The(t), t.TempDir()
	b := &bench{T: t}
	for name, source := range map[string]string{
		"tests/ginkgo":        lab.Tool(t, "conformance", "ginkgo"),
		"tests/e2e_node.test": lab.Tool(t, "conformance", "e2e_node.test"),
		"reference/kubelet":   lab.Tool(t, "kubelet", "kubelet"),
		"sextant/kubelet":     lab.Binary(t),
	} {
		b.run("install", "-D", source, filepath.Join(dir, name))
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		b.run("install", "-D", lab.Tool(t, "runtime", name), filepath.Join(dir, "runtime", name))
	}
	builder, programs := nodeimages.Builder{Source: lab.Source}, filepath.Dir(lab.Tool(t, "conformance", "agnhost"))
	for i, ref := range nodeimages.OfNodes {
		if ref == nodeimages.DevicePlugin {
			continue // of tests that need no machine of this kind
		}
		b.check(builder.SaveUpstream(t.Context(), ref, programs, filepath.Join(dir, fmt.Sprintf("image%d.tar", i))))
		img, err := builder.Upstream(t.Context(), ref, programs)
		b.check(err)
		_, repository, _ := strings.Cut(ref, "/")
		registry.Push(t, repository, img) // for pods that pull always
	}
	b.buildAgent(filepath.Join(dir, "agent"))
	return dir
}

const nodeTestRuntime = `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "registry.k8s.io/pause:3.10.2"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = true
`

// nodeTestSetup makes the machine what the tests ask for. Go programs use two of its eight
// processors at a time, which are emulated by fewer than eight: with all of them a pod takes
// twice as long to start.
const nodeTestSetup = `set -e
resize2fs /dev/vda 2>/dev/null
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo; chmod 755 /usr/local/bin/sudo
systemctl stop containerd
mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\nExecStartPre=\nExecStart=\nExecStart=/payload/runtime/containerd\nEnvironment=PATH=/payload/runtime:/usr/sbin:/usr/bin:/sbin:/bin\n' >/etc/systemd/system/containerd.service.d/tests.conf
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultEnvironment=GOMAXPROCS=2\n' >/etc/systemd/system.conf.d/tests.conf
systemctl daemon-reexec
systemctl start containerd
for i in /payload/*.tar; do /payload/runtime/ctr -n k8s.io images import $i; done
printf 'os: Linux\nkernelSpec: {versions: [".*"]}\n' >/srv/system.yaml
# The tests run in their folder, and write there. What they start of their own program is standIn.
mkdir /srv/tests
mount --bind --make-private /payload/tests /srv/tests
printf '#!/bin/sh
exec 3</payload/tests/e2e_node.test
mount --bind /srv/stand-in /payload/tests/e2e_node.test
exec /proc/self/fd/3 "$@"
' >/srv/e2e_node.test
chmod 755 /srv/e2e_node.test /srv/stand-in
sysctl -qw net.ipv4.conf.all.route_localnet=1
iptables -t nat -A OUTPUT -d 127.0.0.1 -p tcp --dport 6443 -j DNAT --to-destination ` + GuestAPIServer + `
iptables -t nat -A POSTROUTING -d ` + guestHost + ` -s 127.0.0.1 -j MASQUERADE
`

// guestHost is the address of GuestAPIServer.
const guestHost = "10.99.0.100"

// standIn is what upstream's tests start when they start their own program. Their services,
// etcd, an API server and the controller of namespaces, run outside the machine, where they are
// not emulated, as nothing of them is tested: inside they took more than half of its time. It
// tells which token they are to accept.
const standIn = `#!/bin/sh
[ "$1" = --run-services-mode ] || exec /srv/tests/e2e_node.test "$@"
for a; do
	case $a in --bearer-token=*) echo "${a#*=}" >/srv/token.new; mv /srv/token.new /srv/token ;; esac
done
exec sleep infinity
`

// addSwap gives the machine swap.
const addSwap = `set -e
dd if=/dev/zero of=/srv/swap bs=1M count=2048 status=none
chmod 600 /srv/swap
mkswap -q /srv/swap
swapon /srv/swap
`

// nodeTestUnit starts the tests as a unit. All that they write is below /srv of the machine.
const nodeTestUnit = `set -e
systemctl reset-failed node-tests 2>/dev/null || true
umount /payload/tests/e2e_node.test 2>/dev/null || true
rm -rf /srv/report /srv/log /srv/token
mkdir /srv/report
systemd-run --unit=node-tests -p Delegate=yes -p WorkingDirectory=/srv -p StandardOutput=file:/srv/log -p StandardError=file:/srv/log \
 -E HOME=/srv -E PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /payload/tests/ginkgo `

// nodeTests runs the tests on a machine whose disk has seen no agent, and returns what became of each.
func nodeTests(t *testing.T, agent, files string, registry *harness.Registry) map[string]report.Result {
	dir := machineDir(t)
	hardware := twoNodes()
	if *small {
		hardware = smallMachine()
	}
	b := &bench{T: t, m: &Machine{
		Dir: dir, Kernel: filepath.Join(*image, "vmlinuz"), Initrd: filepath.Join(*image, "initrd"), Agent: filepath.Join(files, "agent"), Hardware: hardware,
		Registry: strings.TrimPrefix(registry.URL(), "http://"), APIServer: nodeTestAPIServer, Kubelet: GuestKubelet,
	}}
	b.kubeletAddress()
	t.Cleanup(b.m.Cut)
	b.run("cp", "--sparse=always", filepath.Join(*image, "disk.img"), b.m.Disk())
	b.run("truncate", "-s", "12G", b.m.Disk())
	b.run("mkfs.ext4", "-q", "-F", "-L", "payload", "-d", files, filepath.Join(dir, "payload.img"), "2G")
	b.boot()
	t.Log(b.do("lscpu | grep -E 'CPU|Thread|Core|Socket|NUMA'"))
	b.write("/etc/containerd/config.toml", nodeTestRuntime)
	for _, ref := range nodeimages.OfNodes {
		host, _, _ := strings.Cut(ref, "/")
		b.do("mkdir -p /etc/containerd/certs.d/" + host)
		b.write("/etc/containerd/certs.d/"+host+"/hosts.toml", fmt.Sprintf("server = %q\n", "http://"+GuestRegistry))
	}
	b.write("/srv/stand-in", standIn)
	b.do(nodeTestSetup)
	if *swap {
		b.do(addSwap)
	}
	results := b.runTests(agent, 1)
	for n := 2; n <= *times; n++ {
		again := b.runTests(agent, n)
		if n == 2 {
			once := results
			results = maps.Clone(once)
			report.Repeat(results, once)
		}
		report.Repeat(results, again)
	}
	return results
}

// runTests runs the tests for the nth time, keeps what they wrote, and returns what became of each.
func (b *bench) runTests(agent string, n int) map[string]report.Result {
	b.Helper()
	arguments := []string{ // the seed has both agents meet the tests in the same order
		"--no-color", "--procs=1", "--seed=1", "--timeout=" + within.String(), "--output-dir=/srv/report", "--json-report=report.json",
		"--focus='" + *focus + "'", "--skip='" + *leaveOut + "'", "/srv/e2e_node.test", "--",
		"--k8s-bin-dir=/payload/" + agent, "--node-name=" + agent, "--report-dir=/srv/report", "--system-spec-file=/srv/system.yaml", "--prepull-images=false", "--server-start-timeout=15m",
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--container-runtime-pid-file=",
		"--kubelet-flags='--fail-swap-on=false --cgroup-driver=systemd'",
	}
	to := filepath.Join(cmp.Or(os.Getenv("SEXTANT_ARTIFACTS"), b.m.Dir), agent)
	if *times > 1 {
		to = filepath.Join(to, strconv.Itoa(n))
	}
	b.check(os.MkdirAll(to, 0o755))
	b.do(nodeTestUnit + strings.Join(arguments, " "))
	end := b.services(agent, filepath.Join(to, "services.log"))
	ended := b.watchTests()
	end()
	for _, name := range []string{"log", "report/report.json", "report/kubelet.log"} {
		text := b.do("test ! -e /srv/" + name + " || tail -c 20000000 /srv/" + name)
		b.check(os.WriteFile(filepath.Join(to, filepath.Base(name)), []byte(text), 0o644))
	}
	raw, err := os.ReadFile(filepath.Join(to, "report.json"))
	b.check(err)
	got, err := report.Read(raw)
	maps.DeleteFunc(got, func(_ string, r report.Result) bool { // the one that ran when the time was over
		return r.State == "timedout" && strings.Contains(r.Message, "suite timeout")
	})
	if err != nil || len(got) == 0 {
		b.Fatalf("no test was run to its end: %v (%s)\n%s", err, ended, harness.Tail(filepath.Join(to, "log"), 50))
	}
	return got
}

// nodeTestAPIServer is where the API server of upstream's services listens, and always does.
const nodeTestAPIServer = "127.0.0.1:6443"

// kubeletAddress lets the API server outside reach the machine's kubelet by the address that
// its node has. Connections come from another one: the machine drops what comes from its own.
// The route of a run that was killed is there already.
func (b *bench) kubeletAddress() {
	b.Helper()
	host, _, err := net.SplitHostPort(GuestKubelet)
	b.check(err)
	b.run("ip", "route", "replace", "local", host+"/32", "dev", "lo", "src", "127.0.0.1")
	b.Cleanup(func() {
		if out, err := exec.Command("ip", "route", "del", "local", host+"/32", "dev", "lo").CombinedOutput(); err != nil {
			b.Errorf("%v: %s", err, out)
		}
	})
}

// services waits until the tests start their services and starts them here, with the node of a
// name, until the end that it returns.
func (b *bench) services(name, log string) (end func()) {
	b.Helper()
	b.until("the tests start their services", "sleep 5; cat /srv/token 2>/dev/null || true", func(out string) bool { return out != "" })
	token := b.do("cat /srv/token")
	out, err := os.Create(log)
	b.check(err)
	cmd := exec.Command(harness.The(b).Tool(b, "conformance", "e2e_node.test"), "--run-services-mode", "--bearer-token="+token)
	cmd.Dir, cmd.Stdout, cmd.Stderr = machineDir(b.T), out, out
	b.check(cmd.Start())
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // gone already is as good
		_ = cmd.Wait()         // it was killed
		_ = out.Close()        // only a log
	})
	b.Cleanup(end)
	b.node(name, token)
	return end
}

// node makes the node that the tests' kubelet is to be. The reference's stays NotReady for longer
// than the tests wait when its node is registered later than it looks for it, as in emulation.
func (b *bench) node(name, token string) {
	b.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + nodeTestAPIServer, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	b.check(err)
	b.eventually("the node is there", func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer before did not come
			return nil
		}
		return err
	})
}

// watchTests waits for the end of the unit and returns the state it is in then.
func (b *bench) watchTests() string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), *within+endLimit)
	defer cancel()
	ended := ""
	for {
		state := b.do("systemctl is-active node-tests || true")
		if state != "active" {
			return state
		}
		if now := b.do("grep -o '•' /srv/log | wc -l"); now != ended { // ginkgo's sign of a test that was run
			ended = now
			b.Logf("%s tests have ended", ended)
		}
		select {
		case <-ctx.Done():
			b.Fatalf("the tests have not ended within %s, nor an hour later", *within)
		case <-time.After(10 * time.Second): // asked again
		}
	}
}
