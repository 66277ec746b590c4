package machine

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	image    = flag.String("image", "", "folder made by image.sh")
	packages = flag.String("packages", "", "folder with two packages of rising versions")
	images   = flag.String("images", "", "folder with pause.tar and hello.tar")
	cuts     = flag.Int("cuts", 2, "power cuts")
)

// services in the order they are killed.
var services = []string{"bus", "podworker", "config", "pleg", "prober", "volume", "resource", "status", "nodeapi"}

// limit of each wait: emulation on a machine with other work is slow.
const limit = 30 * time.Minute

type bench struct {
	*testing.T
	m        *Machine
	versions []string
}

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
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	last := ""
	for ctx.Err() == nil {
		out, err := b.m.Do(ctx, script)
		if last = strings.TrimSpace(out); err == nil && satisfied(last) {
			return
		}
		if err != nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // the machine is asked again
		}
	}
	b.Fatalf("%s: not within %s; last:\n%s", what, limit, last)
}

// ready waits until the static pods of these names are ready.
func (b *bench) ready(names ...string) {
	b.Helper()
	b.until(fmt.Sprintf("%v ready", names), "sextant pods", func(out string) bool {
		ready := map[string]bool{}
		for _, line := range strings.Split(out, "\n") {
			if f := strings.Fields(line); len(f) > 3 && f[2] == "1/1" && f[3] == "Running" {
				ready[strings.TrimSuffix(f[1], "-machine")] = true
			}
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !ready[name] })
	})
}

func (b *bench) boot() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	if _, err := b.m.Boot(ctx); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) manifest(name string) {
	b.Helper()
	b.do(fmt.Sprintf(`cat > /etc/kubernetes/manifests/.%[1]s <<'E'
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  terminationGracePeriodSeconds: 20
  containers:
  - name: hello
    image: sextant.local/hello:v1
    imagePullPolicy: Never
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 30}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch, emptyDir: {medium: Memory}}]
E
mv /etc/kubernetes/manifests/.%[1]s /etc/kubernetes/manifests/%[1]s.yaml`, name))
}

// container is the id of the running container of a pod.
func (b *bench) container(pod string) string {
	b.Helper()
	return b.do(`ctr -n k8s.io containers ls -q 'labels."io.kubernetes.pod.name"==` + pod + `-machine,labels."io.kubernetes.container.name"==hello'`)
}

// files is everything on the disk that an installation could have left.
func (b *bench) files() []string {
	b.Helper()
	out := b.do(`find / -xdev \( -path /proc -o -path /sys -o -path /payload -o -path /tmp -o -path /var/tmp -o -path /var/log/journal -o -path /var/lib/dpkg \
 -o -path /var/lib/containerd -o -path /var/lib/cni -o -path /var/lib/systemd -o -path /var/cache -o -path '/etc/*-' -o -path /etc/.pwd.lock \) -prune -o -print
find /run -maxdepth 1 -name 'sextant*'`)
	return strings.Split(out, "\n")
}

// TestMachine: a booted Debian gets the package, runs pods, loses every part of the
// node once, upgrades, goes down, loses its power, and is rid of it all.
func TestMachine(t *testing.T) {
	b := start(t)
	b.boot()
	b.do(`for i in /payload/*.tar; do ctr -n k8s.io images import $i; done; mkdir -p /var/lib/kubelet`)
	before := b.files()
	b.install()
	web := b.container("web")

	for _, s := range append(slices.Clone(services), "gate") {
		b.killed(s)
	}
	b.manifest("after-kills")
	b.ready("web", "after-kills")
	if now := b.container("web"); now != web {
		t.Errorf("the kills cost web its container: %s, then %s", web, now)
	}
	t.Log("every part was killed once")

	b.upgrades()
	if now := b.container("web"); now != web {
		t.Errorf("upgrades cost web its container: %s, then %s", web, now)
	}
	t.Log("one service was upgraded, rolled back, and kept from a version that cannot run")

	b.down()
	t.Log("the machine went down, and its pods came back without an API server")
	for range *cuts {
		pause := time.Duration(rand.IntN(20000)) * time.Millisecond
		t.Logf("power cut after %s", pause)
		<-time.After(pause) // at any moment
		b.m.Cut()
		b.boot()
		b.ready("web", "after-kills")
	}

	b.do("rm /etc/kubernetes/manifests/*.yaml; sextant down --purge; dpkg --purge sextant; rm -f /var/lib/kubelet/config.yaml")
	if left := b.do("ctr -n k8s.io containers ls -q; ls -d /sys/fs/cgroup/kubepods.slice/*pod* 2>/dev/null || true"); left != "" {
		t.Errorf("left: %s", left)
	}
	for _, path := range b.files() {
		if !slices.Contains(before, path) {
			t.Errorf("left: %s", path)
		}
	}
}

// install puts the first package on the machine and starts the slice with a pod.
func (b *bench) install() {
	b.Helper()
	b.do("dpkg -i /payload/sextant_" + b.versions[0] + "_*.deb")
	b.do(`cat > /var/lib/kubelet/config.yaml <<'E'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: /etc/kubernetes/manifests
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 20s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
E
echo KUBELET_KUBECONFIG_ARGS= >> /etc/default/sextant`)
	b.manifest("web")
	b.do("systemctl enable --now sextant.slice")
	b.ready("web")
	if kind := b.do("stat -fc %T /sys/fs/cgroup"); kind != "cgroup2fs" {
		b.Errorf("cgroups are %s", kind)
	}
	b.Log("the slice came up and runs a pod")
}

// killed kills one unit's process and waits for the next one.
func (b *bench) killed(s string) {
	b.Helper()
	unit := "sextant-" + s + ".service"
	pid := b.do("systemctl show -p MainPID --value " + unit)
	b.do("kill -9 " + pid)
	b.until(s+" comes back", "systemctl show -p MainPID -p ActiveState "+unit, func(out string) bool {
		return strings.Contains(out, "ActiveState=active") && !strings.Contains(out+"\n", "MainPID="+pid+"\n") && !strings.Contains(out, "MainPID=0")
	})
}

// running is the version that prober says it runs.
func (b *bench) running() string {
	b.Helper()
	var rows []struct{ Service, Running string }
	if err := json.Unmarshal([]byte(b.do("sextant versions -o json")), &rows); err != nil {
		b.Fatal(err)
	}
	for _, row := range rows {
		if row.Service == "prober" {
			return row.Running
		}
	}
	return ""
}

// upgrades gives one service the next version and the former one back, and one that
// cannot run, which is undone by itself.
func (b *bench) upgrades() {
	b.Helper()
	const lib = "/usr/lib/sextant"
	next := b.versions[1]
	b.do(fmt.Sprintf(`mkdir -p /tmp/next %[1]s/versions/%[2]s %[1]s/versions/broken
dpkg -x /payload/sextant_%[2]s_*.deb /tmp/next && mv /tmp/next%[1]s/sextant %[1]s/versions/%[2]s/sextant && rm -rf /tmp/next
printf '#!/bin/sh\nexit 1\n' > %[1]s/versions/broken/sextant && chmod 755 %[1]s/versions/broken/sextant`, lib, next))
	b.do("sextant upgrade prober " + next + " --limit=4m")
	if got := b.running(); got != next {
		b.Errorf("after the upgrade prober runs %q", got)
	}
	b.do("sextant rollback prober --limit=4m")
	if got := b.running(); got != b.versions[0] {
		b.Errorf("after the rollback prober runs %q", got)
	}
	if out := b.do("sextant upgrade prober broken --limit=4m 2>&1 || true"); !strings.Contains(out, "it runs "+b.versions[0]+" again") {
		b.Errorf("a version that cannot run: %s", out)
	}
}

// down switches the machine off in an orderly way, and on again.
func (b *bench) down() {
	b.Helper()
	b.do("systemctl poweroff")
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	if err := b.m.Off(ctx); err != nil {
		b.Fatal(err)
	}
	b.boot()
	if told := b.do("journalctl -b -1 -u sextant-podworker -o cat | grep -ci shutdown || true"); told == "0" {
		b.Error("podworker heard of no shutdown")
	}
	b.ready("web", "after-kills")
}

func start(t *testing.T) *bench {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*packages, "sextant_*.deb"))
	if err != nil || len(found) != 2 {
		t.Fatalf("want two packages in %q: %v, %v (make machine runs this)", *packages, found, err)
	}
	archives, err := filepath.Glob(filepath.Join(*images, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no images in %q: %v", *images, err)
	}
	dir := t.TempDir()
	payload := filepath.Join(dir, "payload")
	b := &bench{T: t, m: &Machine{Dir: dir, Kernel: filepath.Join(*image, "vmlinuz"), Initrd: filepath.Join(*image, "initrd")}}
	for _, p := range found {
		b.versions = append(b.versions, strings.Split(filepath.Base(p), "_")[1])
	}
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("mkdir", payload)
	run("cp", append(append(found, archives...), payload)...)
	run("go", "build", "-o", filepath.Join(payload, "agent"), "./agent")
	run("mkfs.ext4", "-q", "-L", "payload", "-d", payload, filepath.Join(dir, "payload.img"), "400M")
	run("cp", "--sparse=always", filepath.Join(*image, "disk.img"), filepath.Join(dir, "disk.img"))
	t.Cleanup(func() {
		b.m.Cut()
		if t.Failed() {
			if text, err := os.ReadFile(b.m.Console()); err == nil {
				t.Logf("console:\n%s", text[max(0, len(text)-8000):])
			}
		}
	})
	return b
}
