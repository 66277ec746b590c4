// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// TestTheKernelHurriesAnEviction: with kernelMemcgNotification a pod that takes the memory
// of all pods is evicted though the next look is not due: the service's clock stands.
func TestTheKernelHurriesAnEviction(t *testing.T) {
	r, _ := hurriedByTheKernel(t)
	r.run("head -c 0")
	r.evicts("u")
}

// TestCacheCrossesAThresholdFirst: what a pod writes to files is in use, and not short; that
// the kernel has told of it keeps it from telling of what is short after it.
func TestCacheCrossesAThresholdFirst(t *testing.T) {
	r, looks := hurriedByTheKernel(t)
	out, in := r.run(fmt.Sprintf("head -c %d /dev/zero > %s; echo written; head -n 1", 110<<20, filepath.Join(t.TempDir(), "file")))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "written\n" {
		t.Fatalf("%q, %v", line, err)
	}
	before := looks.Load()
	r.look()
	r.Eventually("a look", func() bool { return looks.Load() > before })
	if item, _ := r.pods.Get("u"); item.GetEviction() != nil {
		t.Errorf("evicted for cache: %v", item.GetEviction())
	}
	if _, err := in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	r.evicts("u")
}

// hurriedByTheKernel is a rig whose clock stands, but for a microsecond a look, with a pod u.
// Of the 8 GiB that its node began with, 300 MiB are for pods; 200 of them are to be available.
func hurriedByTheKernel(t *testing.T) (r *rig, looks *atomic.Int64) {
	t.Helper()
	if cgrouptest.V2() {
		t.Skip("thresholds of usage are of cgroup version 1")
	}
	looks = &atomic.Int64{}
	began := time.Now()
	r = newRig(t, func(deps *resource.Deps) {
		m := &measures{images: t.TempDir()}
		deps.Gauge, deps.Images, deps.Volumes = gauge.Host{Version: 1}, m, m
		deps.Now = func() time.Time { return began.Add(time.Duration(looks.Add(1)) * time.Microsecond) }
	})
	// The machine as a whole is short of nothing from now on, whatever runs beside the test.
	r.file("proc/meminfo", "MemTotal: 1073741824 kB")
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.KernelMemcgNotification = true
		c.Kubelet.SystemReserved = map[string]string{"memory": "7892Mi"}
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "200Mi"}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	r.admit(burstable("u", "100m"), false)
	return r, looks
}

// run runs a command in the cgroup of the pod u, and then holds 150 MiB there until the test
// ends. The command has in to read from, and out to write to.
func (r *rig) run(command string) (out io.Reader, in io.Writer) {
	r.Helper()
	// tail holds what it may have to print, until its input ends.
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo $$ > %s && { %s; } && { head -c %d /dev/zero; cat; } | tail -c %[3]d > /dev/null",
		filepath.Join("/sys/fs/cgroup/memory", r.kubepods("burstable", "podu").Path(pod.Cgroupfs), "cgroup.procs"), command, 150<<20))
	pipe, err := cmd.StdinPipe()
	if err != nil {
		r.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := pipe.Close(); err != nil {
			r.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			r.Error(err)
		}
	})
	return out, pipe
}

func (r *rig) evicts(uid string) {
	r.Helper()
	r.Eventually(uid+" is evicted", func() bool { item, _ := r.pods.Get(uid); return item.GetEviction() != nil })
	item, _ := r.pods.Get(uid)
	if got := item.GetEviction().GetSignal(); got != "allocatableMemory.available" {
		r.Errorf("evicted for %s", got)
	}
}
