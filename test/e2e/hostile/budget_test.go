// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// logsPerMinute is how many bytes all logs of a node may grow by in a minute.
const logsPerMinute = 1 << 20

// budget is what a node may take while others do their worst.
type budget struct {
	n      *harness.Node
	began  time.Time
	logs   int64 // bytes, when it began
	pids   map[house.Service]int
	limits map[house.Service]int64 // MemoryMax of the units, in bytes
}

// limited puts each process of a node under the memory limit of its unit, as
// systemd does, and begins to count.
func limited(t *testing.T, n *harness.Node) *budget {
	t.Helper()
	b := &budget{n: n, began: time.Now(), pids: map[house.Service]int{}, limits: map[house.Service]int64{}}
	for _, s := range house.Services() {
		b.pids[s], b.limits[s] = n.PID(t, string(s)), memoryMax(t, s)
		confine(t, filepath.Join(n.Runtime.CgroupRoot+"-limited", string(s)), b.pids[s], b.limits[s])
	}
	b.logs = b.logged(t)
	return b
}

// memoryMax reads the limit from the unit.
func memoryMax(t *testing.T, s house.Service) int64 {
	t.Helper()
	file := filepath.Join(harness.The(t).Source, "deploy", "systemd", "sextant-"+string(s)+".service")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "MemoryMax="); ok {
			q, err := resource.ParseQuantity(value + "i")
			if err != nil {
				t.Fatalf("%s: MemoryMax: %v", file, err)
			}
			return q.Value()
		}
	}
	t.Fatalf("%s has no MemoryMax", file)
	return 0
}

// confine moves a process into a memory cgroup of that size until the test ends.
func confine(t *testing.T, group string, pid int, limit int64) {
	t.Helper()
	base, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(base); err != nil {
		base, file = "/sys/fs/cgroup", "memory.max"
	}
	dir := filepath.Join(base, group)
	home := filepath.Join(base, "cgroup.procs")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o644),
		os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(home, fmt.Append(nil, pid), 0o644); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
		if err := errors.Join(os.Remove(dir), removeEmpty(filepath.Dir(dir))); err != nil {
			t.Error(err)
		}
	})
}

// removeEmpty removes a folder unless something is in it.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// judge says what the node lost: processes, memory, room on the disk. It returns which
// service is nearest to its limit of memory, and by how many KiB a minute the logs grew.
func (b *budget) judge(t *testing.T) (fullest string, logs float64) {
	t.Helper()
	most := 0.0
	for _, s := range house.Services() {
		if now := b.n.Process(s); now != b.pids[s] {
			t.Errorf("%s was process %d and is %d", s, b.pids[s], now)
			continue
		}
		peak, err := peakMemory(b.pids[s])
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if peak > b.limits[s] {
			t.Errorf("%s took %d MiB, its unit allows %d", s, peak>>20, b.limits[s]>>20)
		}
		if part := float64(peak) / float64(b.limits[s]); part > most {
			most, fullest = part, fmt.Sprintf("%s %d of %d MiB", s, peak>>20, b.limits[s]>>20)
		}
	}
	minutes := max(1, time.Since(b.began).Minutes())
	grown := b.logged(t) - b.logs
	if float64(grown) > minutes*logsPerMinute {
		t.Errorf("the logs grew by %d KiB in %.1f minutes", grown>>10, minutes)
	}
	return fullest, float64(grown) / 1024 / minutes
}

// peakMemory is the most memory a process had, in bytes: VmHWM of proc(5).
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// logged is the size of all logs of the node's services, in bytes. Logs that were
// rotated away count no more, so it may shrink.
func (b *budget) logged(t *testing.T) (size int64) {
	t.Helper()
	files, err := os.ReadDir(b.n.Logs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
