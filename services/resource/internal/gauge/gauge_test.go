// SPDX-License-Identifier: Apache-2.0

package gauge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/test/stallfs"
)

// write makes a file of a made-up machine.
func write(t testing.TB, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestACgroupOfEitherVersion(t *testing.T) {
	root := t.TempDir()
	write(t, root, "sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes", "100\n")
	write(t, root, "sys/fs/cgroup/memory/kubepods/cgroup.procs", "7\n9\n")
	write(t, root, "sys/fs/cgroup/cpuacct/kubepods/cpuacct.usage", "5\n")
	write(t, root, "sys/fs/cgroup/blkio/kubepods/blkio.throttle.io_service_bytes_recursive", "8:16 Read 3\n")
	write(t, root, "sys/fs/cgroup/kubepods/cpu.stat", "usage_usec 6\n")
	write(t, root, "sys/fs/cgroup/kubepods/cgroup.procs", "9\n")
	write(t, root, "sys/fs/cgroup/kubepods/pod1/cgroup.procs", "")
	write(t, root, "sys/dev/block/8:16/uevent", "MAJOR=8\nMINOR=16\nDEVNAME=sdb\n")
	write(t, root, "proc/7/fd/0", "")
	write(t, root, "proc/7/fd/1", "")
	write(t, root, "proc/7/limits", "Max open files            1024                 4096                 files\n")
	now := time.Unix(1000, 0)
	one, pids, ok := gauge.Host{Root: root, Version: 1}.NewReader().Cgroup("/kubepods", now)
	if !ok || len(pids) != 2 {
		t.Fatal(one, pids, ok)
	}
	if one.GetPath() != "/kubepods" || !one.GetTime().AsTime().Equal(now) || one.GetMemory().GetUsage() != 100 || one.GetCpu().GetUsage() != 5 {
		t.Errorf("version 1: %v", one)
	}
	if p := one.GetProcesses(); p.GetProcesses() != 2 || p.GetFileDescriptors() != 2 || p.GetOpenFilesLimit() != 1024 {
		t.Errorf("processes: %v", p)
	}
	if len(one.GetIo()) != 1 || one.GetIo()[0].GetDevice() != "/dev/sdb" {
		t.Errorf("devices: %v", one.GetIo())
	}
	reader := gauge.Host{Root: root, Version: 2}.NewReader()
	two, pids, ok := reader.Cgroup("/kubepods", now)
	if !ok || len(pids) != 1 || two.GetCpu().GetUsage() != 6000 || two.GetMemory() != nil {
		t.Error("version 2:", two, pids, ok)
	}
	if got := reader.Children("/kubepods"); len(got) != 1 || got[0] != "pod1" {
		t.Error("children:", got)
	}
	if _, _, ok := reader.Cgroup("/gone", now); ok {
		t.Error("a cgroup that is not there was read")
	}
	if _, _, ok := reader.Cgroup("/kubepods", now); !ok {
		t.Error("a cgroup after one that is not there")
	}
}

// TestALongFile: more than the buffer, and than a page.
func TestALongFile(t *testing.T) {
	root := t.TempDir()
	var pids strings.Builder
	for i := range 9000 {
		fmt.Fprintln(&pids, i+1)
	}
	write(t, root, "sys/fs/cgroup/a/cgroup.procs", pids.String())
	_, got, ok := gauge.Host{Root: root, Version: 2}.NewReader().Cgroup("/a", time.Unix(1, 0))
	if !ok || len(got) != 9000 || got[8999] != 9000 {
		t.Error(len(got), ok)
	}
}

func TestTheNode(t *testing.T) {
	root := t.TempDir()
	write(t, root, "proc/stat", "cpu  100 0 0 1 1 0 0 0 0 0\nbtime 1700000000\n")
	write(t, root, "proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n")
	write(t, root, "proc/self/cgroup", "2:cpu,cpuacct:/one\n0::/two\n")
	for cpu, place := range map[int][2]int{0: {0, 0}, 1: {0, 0}, 2: {0, 1}, 3: {1, 0}} {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		write(t, root, dir+"physical_package_id", fmt.Sprintln(place[0]))
		write(t, root, dir+"core_id", fmt.Sprintln(place[1]))
	}
	one, two := gauge.Host{Root: root, Version: 1}.NewReader(), gauge.Host{Root: root, Version: 2}.NewReader()
	if c, ok := one.NodeCPU(); !ok || c.GetUser() != 1e9 {
		t.Error(c, ok)
	}
	if got := one.BootTime().Unix(); got != 1700000000 {
		t.Error(got)
	}
	if sockets, cores := one.Topology(4); sockets != 2 || cores != 3 {
		t.Error(sockets, cores)
	}
	if one.OwnCgroup() != "/one" || two.OwnCgroup() != "/two" {
		t.Error(one.OwnCgroup(), two.OwnCgroup())
	}
	if two.NodeStalls("cpu").GetSome().GetTotal() != 5 || two.NodeStalls("io") != nil {
		t.Error("pressure")
	}
}

func TestDisks(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "data disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, root, "proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"+
		"2 1 8:1 /sub /again rw shared:1 - ext4 /dev/sda1 rw\n"+
		"3 1 8:2 / /data\\040disk rw - xfs /dev/sda2 rw\n"+
		"4 1 0:9 / /tmp rw - tmpfs tmpfs rw\n5 1 0:8 / /nfs rw - nfs server:/ rw\n")
	write(t, root, "proc/diskstats", "   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n")
	disks := gauge.Host{Root: root, Version: 1}.NewReader().Disks()
	if len(disks) != 2 || disks[0].GetDevice() != "/dev/sda1" || disks[1].GetDevice() != "/dev/sda2" {
		t.Fatal(disks)
	}
	if d := disks[0]; d.GetReads() != 1 || d.GetReadTime() != 4 || d.GetWrites() != 5 || d.GetInProgress() != 9 || d.GetWeightedIoTime() != 11 {
		t.Error(d)
	}
	if disks[1].GetFileSystem().GetCapacity() == 0 || disks[1].GetReads() != 0 {
		t.Error(disks[1])
	}
}

// TestAFileSystemThatDoesNotAnswer is not asked, though it is called like a disk.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "remote"), 0o755); err != nil {
		t.Fatal(err)
	}
	remote := stallfs.MountAt(t, filepath.Join(root, "remote"))
	remote.Stall()
	write(t, root, "proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /remote rw - fuse /dev/fuse rw,user_id=0\n")
	read := make(chan []*resourcev1.Disk, 1)
	go func() { read <- gauge.Host{Root: root, Version: 1}.NewReader().Disks() }()
	select {
	case disks := <-read:
		if len(disks) != 1 || disks[0].GetDevice() != "/dev/sda1" {
			t.Error(disks)
		}
	case <-time.After(time.Minute):
		t.Error("the reading hangs with it")
		remote.Go()
		<-read
	}
}
