// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"
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
	if cgrouptest.V2() {
		t.Skip("thresholds of usage are of cgroup version 1")
	}
	var looks atomic.Int64
	began := time.Now()
	r := newRig(t, func(deps *resource.Deps) {
		m := &measures{images: t.TempDir()}
		deps.Gauge, deps.Images, deps.Volumes = gauge.Host{Version: 1}, m, m
		deps.Now = func() time.Time { return began.Add(time.Duration(looks.Add(1)) * time.Microsecond) }
	})
	// The machine as a whole is short of nothing from now on, whatever runs beside the test.
	r.file("proc/meminfo", "MemTotal: 1073741824 kB")
	// Of the 8 GiB that it began with, 300 MiB are for pods; 200 of them are to be available.
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.KernelMemcgNotification = true
		c.Kubelet.SystemReserved = map[string]string{"memory": "7892Mi"}
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "200Mi"}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	r.admit(burstable("u", "100m"), false)
	name := r.kubepods("burstable", "podu").Path(pod.Cgroupfs)
	// tail holds what it may have to print, until its input ends.
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo $$ > %s && { head -c %d /dev/zero; cat; } | tail -c %[2]d > /dev/null",
		filepath.Join("/sys/fs/cgroup/memory", name, "cgroup.procs"), 150<<20))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	r.Eventually("u is evicted", func() bool { item, _ := r.pods.Get("u"); return item.GetEviction() != nil })
	item, _ := r.pods.Get("u")
	if got := item.GetEviction().GetSignal(); got != "allocatableMemory.available" {
		t.Errorf("evicted for %s", got)
	}
}
