// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

var (
	image    = flag.String("image", "", "folder made by image.sh")
	packages = flag.String("packages", "", "folder with two packages: previous/sextant_*.deb and this/sextant_*.deb")
	images   = flag.String("images", "", "folder with pause.tar and hello.tar")
	kept     = flag.String("dir", "", "folder that keeps the disk and the console; a disk that is there is gone on with, for -run=TestMachine/STAGE")
	cuts     = flag.Int("cuts", 20, "power cuts")
	seed     = flag.Uint64("seed", 0, "the same moments of power cuts again; new if 0")
)

func TestMain(m *testing.M) { harness.Main(m) }

// limit of each wait: emulation on a machine with other work is slow.
const limit = 30 * time.Minute

// TestMachine: a booted Debian joins a cluster with the package, runs pods, loses
// every part of the node, upgrades, goes down, comes up without the API server,
// loses its power again and again, and is rid of it all.
func TestMachine(t *testing.T) {
	b := start(t)
	b.cluster()
	for _, stage := range []struct {
		name string
		run  func(*bench)
	}{
		{"install", (*bench).join},
		{"kills", (*bench).kills},
		{"upgrade", (*bench).upgrade},
		{"shutdown", (*bench).shutdown},
		{"offline", (*bench).offline},
		{"cuts", (*bench).cuts},
		{"purge", (*bench).purge},
	} {
		passed := t.Run(stage.name, func(t *testing.T) {
			b.T = t
			t.Cleanup(b.dump)
			stage.run(b)
		})
		if !passed {
			return
		}
	}
}

// join puts the first package on the machine, and the slice in the place of a kubelet.
func (b *bench) join() {
	b.install()
	b.app("app")
	b.ready("app")
	if kind := b.do("stat -fc %T /sys/fs/cgroup"); kind != "cgroup2fs" {
		b.Errorf("cgroups are %s", kind)
	}
	if failed := b.do("systemctl list-units --failed --plain --no-legend"); failed != "" {
		b.Errorf("units that failed: %s", failed)
	}
	b.Log("the slice came up on cgroup v2, and runs a static pod and one of the API server")
}

// kills is the short form of the kill matrix: each process once, and all at once.
func (b *bench) kills() {
	b.app("app")
	b.ready("web", "app")
	before := b.snapshot("web", "app")
	parts := []string{string(house.Gate), string(house.Tools)}
	for _, s := range house.Services() {
		parts = append(parts, string(s))
	}
	pids, all := map[string]string{}, []string{}
	for _, s := range parts {
		b.killed(s)
	}
	for _, s := range parts {
		unit := "sextant-" + s + ".service"
		pids[unit] = b.pid(unit)
		all = append(all, pids[unit])
	}
	b.do("kill -9 " + strings.Join(all, " "))
	for unit, pid := range pids {
		b.again(unit, pid)
	}
	b.manifest("after-kills")
	b.ready("web", "app", "after-kills")
	b.same(before, b.snapshot("web", "app"))
	b.Logf("%d parts were killed, one after the other and all at once; no pod noticed, and new ones start", len(parts))
}

// upgrade gives one service the next version and the former one back, and one that
// cannot run, which is undone by itself; then every service gets the next package.
func (b *bench) upgrade() {
	b.app("app")
	b.ready("web", "app")
	before := b.snapshot("web", "app")
	const lib = "/usr/lib/sextant"
	first, next := b.versions[0], b.versions[1]
	b.do(fmt.Sprintf(`mkdir -p /tmp/next %[1]s/versions/%[2]s %[1]s/versions/broken
dpkg -x %[3]s /tmp/next && mv /tmp/next%[1]s/sextant %[1]s/versions/%[2]s/sextant && rm -rf /tmp/next
printf '#!/bin/sh\nexit 1\n' > %[1]s/versions/broken/sextant && chmod 755 %[1]s/versions/broken/sextant`, lib, next, b.packages[1]))
	b.do("sextant upgrade prober " + next + " --limit=5m")
	b.runs("prober", next)
	b.do("sextant rollback prober --limit=5m")
	b.runs("prober", first)
	if out := b.do("sextant upgrade prober broken --limit=2m 2>&1 || true"); !strings.Contains(out, "it runs "+first+" again") {
		b.Errorf("a version that cannot run: %s", out)
	}
	b.runs("prober", first)
	b.do(fmt.Sprintf("rm -r %s/versions/broken; dpkg -i %s", lib, b.packages[1]))
	for _, s := range house.Services() {
		b.runs(string(s), next)
	}
	b.ready("web", "app")
	b.same(before, b.snapshot("web", "app"))
	b.Log("one service was upgraded, rolled back, and kept from a version that cannot run; then the next package came")
}

// shutdown switches the machine off in an orderly way, and on again.
func (b *bench) shutdown() {
	b.app("app")
	b.ready("web", "app")
	uid := b.pod("app").UID
	b.off()
	app := b.pod("app")
	// Succeeded, as of any pod whose containers all end well.
	if app.UID != uid || app.Status.Phase != corev1.PodSucceeded || app.Status.Reason != "Terminated" {
		b.Errorf("after the shutdown the API server has %s %s: %s (%s)", app.Name, app.Status.Phase, app.Status.Reason, app.Status.Message)
	}
	for _, s := range app.Status.ContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			b.Errorf("container %s did not end in its own time: %+v", s.Name, s.State)
		}
	}
	b.boot()
	b.ready("web")
	if b.container("app") != "" {
		b.Error("a pod that ended with the node runs again")
	}
	b.delete("app")
	b.Log("the machine went down after its pods had, and the API server knows how they ended; static pods came back")
}

// offline loses its power and comes up while the API server is out of reach.
func (b *bench) offline() {
	for _, name := range []string{"stays", "goes"} {
		b.app(name)
	}
	b.ready("web", "stays", "goes")
	uids := []string{string(b.pod("stays").UID), string(b.pod("goes").UID)}
	b.way.Shut()
	b.m.Cut()
	on := time.Now()
	b.boot()
	booted := time.Since(on)
	b.ready("web", "stays", "goes")
	b.Logf("without an API server, what ran runs again: %.0f s after the power came, %.0f s of them the boot", time.Since(on).Seconds(), booted.Seconds())
	if err := b.cp.Admin.CoreV1().Pods(b.ns).Delete(b.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	if b.container("goes") == "" {
		b.Error("a pod ended because of what cannot be known")
	}
	stays := b.container("stays")
	b.way.Open()
	b.gone("goes")
	if b.container("goes") != "" {
		b.Error("the API server forgot a pod whose container runs")
	}
	b.ready("stays")
	if now := b.container("stays"); now != stays {
		b.Errorf("the reconnection cost a pod its container: %s, then %s", stays, now)
	}
	if now := string(b.pod("stays").UID); now != uids[0] {
		b.Errorf("the pod that stays is another: %s, then %s", uids[0], now)
	}
	b.Log("what was deleted meanwhile ended on reconnection; the rest went on")
}

// cuts takes the power away at random moments: in the boot, while pods start, and
// when all is well.
func (b *bench) cuts() {
	b.app("stays")
	b.ready("web", "stays")
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	b.Logf("moments of power cuts: -seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	for i := range *cuts {
		pause := time.Duration(random.IntN(40000)) * time.Millisecond
		whole := i%2 == 1 || i == *cuts-1
		if whole {
			b.ready("web", "stays")
			pause /= 4
		}
		b.Logf("power cut %d, %s after %s", i+1, pause.Round(time.Millisecond), map[bool]string{true: "everything was ready", false: "the agent of the machine answered"}[whole])
		<-time.After(pause) // at any moment
		b.m.Cut()
		b.boot()
	}
	b.ready("web", "stays")
	for _, name := range []string{"web", "stays"} {
		if n := len(strings.Fields(b.container(name))); n != 1 {
			b.Errorf("%d containers of %s run", n, name)
		}
	}
	if damaged := b.do("find /var/lib/sextant -name '*.damaged-*'"); damaged != "" {
		b.Errorf("state was set aside, so something was lost: %s", damaged)
	}
	b.reported("stays")
	b.Logf("after %d power cuts the pods run, once each, and the API server knows", *cuts)
}

// purge removes everything and looks for what is left.
func (b *bench) purge() {
	b.do("rm /etc/kubernetes/manifests/*.yaml; sextant down --purge; dpkg --purge sextant")
	if left := b.do("ctr -n k8s.io containers ls -q; ctr -n k8s.io tasks ls -q; ls -d /sys/fs/cgroup/kubepods.slice 2>/dev/null; ip -o link show type veth; ls -d /sys/fs/cgroup/sextant.slice 2>/dev/null; grep -E 'kubelet|sextant' /proc/self/mounts; true"); left != "" {
		b.Errorf("left: %s", left)
	}
	for _, path := range b.files() {
		if !slices.Contains(b.before, path) {
			b.Errorf("left: %s", path)
		}
	}
	b.Log("no trace is left")
}

// off switches the machine off, and sees the node say so.
func (b *bench) off() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	_, _ = b.m.Do(ctx, "systemctl poweroff") // it may be off before it answers
	said := ""
	for {
		if node, err := b.cp.Admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}); err == nil {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && strings.Contains(c.Message, "shutting down") {
					said = c.Message
				}
			}
		}
		select {
		case <-ctx.Done():
			b.Fatal("the machine does not switch itself off")
		case <-b.m.Off():
			if said == "" {
				b.Error("the node did not say that it goes down")
			}
			return
		case <-time.After(time.Second): // asked again
		}
	}
}
