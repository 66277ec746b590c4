// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/test/stallfs"
)

// host lays out a machine's files in a folder.
func host(t *testing.T, files string) machine.Host {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(files)).Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return machine.Host{Root: root}
}

const big = `
-- sys/module/apparmor/parameters/enabled --
Y
-- etc/machine-id --
0123456789abcdef
-- sys/class/dmi/id/product_uuid --
AAAA-BBBB
-- proc/sys/kernel/random/boot_id --
boot-1
-- proc/sys/kernel/osrelease --
6.1.0-42-amd64
-- etc/os-release --
NAME="Debian GNU/Linux"
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
-- sys/fs/cgroup/cgroup.controllers --
cpu memory
-- sys/devices/system/cpu/online --
0-2,5
-- proc/meminfo --
MemTotal:       16384 kB
MemAvailable:    4096 kB
SwapTotal:       1024 kB
HugePages_Total:     2
garbage
-- sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages --
3
-- sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages --
0
-- proc/sys/kernel/pid_max --
4194304
-- proc/sys/kernel/threads-max --
1000
-- proc/loadavg --
0.1 0.2 0.3 2/345 6789
`

func list(l v1.ResourceList) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		all = append(all, string(name)+"="+q.String())
	}
	return strings.Join(all, " ")
}

func TestRead(t *testing.T) {
	f, err := host(t, big).Read()
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]string{
		"machine id": {f.MachineID, "0123456789abcdef"}, "system uuid": {f.SystemUUID, "AAAA-BBBB"}, "boot id": {f.BootID, "boot-1"},
		"kernel": {f.Kernel, "6.1.0-42-amd64"}, "os image": {f.OSImage, "Debian GNU/Linux 12 (bookworm)"},
		"capacity": {list(f.Capacity), "cpu=4 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
		}
	}
	if f.CgroupVersion != 2 || f.Cores != 4 || f.SwapBytes != 1<<20 || !f.AppArmor {
		t.Errorf("cgroup v%d, %d cores, %d bytes of swap, AppArmor %t", f.CgroupVersion, f.Cores, f.SwapBytes, f.AppArmor)
	}
}

const small = `
-- var/lib/dbus/machine-id --
dbus
-- usr/lib/os-release --
PRETTY_NAME='Plain OS'
-- sys/devices/system/cpu/online --
0
-- proc/meminfo --
MemTotal: 1024 kB
`

func TestReadFallsBack(t *testing.T) {
	f, err := host(t, small).Read()
	if err != nil {
		t.Fatal(err)
	}
	if f.MachineID != "dbus" || f.SystemUUID != "dbus" || f.OSImage != "Plain OS" || f.CgroupVersion != 1 {
		t.Errorf("facts %+v", f)
	}
}

func TestReadNeedsCoresAndMemory(t *testing.T) {
	for want, files := range map[string]string{
		"cores online": "-- proc/meminfo --\nMemTotal: 1024 kB\n",
		"memory":       "-- sys/devices/system/cpu/online --\n0\n",
		"no MemTotal":  "-- sys/devices/system/cpu/online --\n0\n-- proc/meminfo --\nx\n",
	} {
		if _, err := host(t, files).Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestThisMachine(t *testing.T) {
	f, err := machine.Host{}.Read()
	if err != nil {
		t.Fatal(err)
	}
	if f.Cores < 1 || f.Capacity.Memory().IsZero() || f.Kernel == "" || f.BootID == "" {
		t.Errorf("facts %+v", f)
	}
	most, now, err := machine.Host{}.Processes()
	if err != nil || now < 1 || most < now {
		t.Errorf("%d processes of %d, %v", now, most, err)
	}
	disk, err := machine.DiskOf(t.TempDir())
	if err != nil || disk.Bytes < disk.Available || disk.Available <= 0 || disk.Inodes < disk.InodesFree {
		t.Errorf("disk %+v, %v", disk, err)
	}
	if _, err := machine.DiskOf("/no/such/folder"); err == nil || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("no folder: %v", err)
	}
}

// TestADiskThatIsBestReadInLargePieces is not larger for that.
func TestADiskThatIsBestReadInLargePieces(t *testing.T) {
	disk, err := machine.DiskOf(stallfs.Mount(t).Dir)
	if want := (machine.Disk{Bytes: 1024 * 4096, Available: 512 * 4096}); err != nil || disk != want {
		t.Errorf("%+v, %v, want %+v", disk, err, want)
	}
}

func TestProcesses(t *testing.T) {
	most, now, err := host(t, big).Processes()
	if most != 1000 || now != 345 || err != nil {
		t.Errorf("%d of %d, %v", now, most, err)
	}
	for _, bad := range []string{"", "-- proc/sys/kernel/pid_max --\n1\n", "-- proc/sys/kernel/pid_max --\n1\n-- proc/loadavg --\n1 2 3 x/y z\n"} {
		if _, _, err := host(t, bad).Processes(); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestAllocatable(t *testing.T) {
	f, err := host(t, big).Read()
	if err != nil {
		t.Fatal(err)
	}
	disk := machine.Disk{Bytes: 1000 << 20}
	off := false
	for name, test := range map[string]struct {
		conf        kubeletv1beta1.KubeletConfiguration
		capacity    string
		allocatable string
	}{
		"plain": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 110},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=110",
		},
		"reserved": {
			kubeletv1beta1.KubeletConfiguration{
				MaxPods: 110, KubeReserved: map[string]string{"cpu": "500m", "memory": "1Mi", "pid": "100"}, SystemReserved: map[string]string{"cpu": "1", "ephemeral-storage": "100Mi"},
				EvictionHard: map[string]string{"memory.available": "1Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"},
			},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=2500m ephemeral-storage=838860799 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=8Mi pods=110",
		},
		"thresholds that are switched off": {
			kubeletv1beta1.KubeletConfiguration{
				MaxPods:      110,
				EvictionHard: map[string]string{"memory.available": "100%", "nodefs.available": "0%", "pid.available": "100%"},
			},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=110",
		},
		"a soft threshold reserves nothing": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 110, EvictionSoft: map[string]string{"memory.available": "5Mi"}},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=110",
		},
		"more reserved than there is": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 110, KubeReserved: map[string]string{"cpu": "9", "memory": "1Gi"}},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=0 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=0 pods=110",
		},
		"a set of cores": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 110, ReservedSystemCPUs: "0,2", KubeReserved: map[string]string{"cpu": "3"}, SystemReserved: map[string]string{"cpu": "1"}},
			"cpu=4 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=110",
			"cpu=2 ephemeral-storage=1000Mi hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=110",
		},
		"pods per core, no local storage": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 110, PodsPerCore: 2, LocalStorageCapacityIsolation: &off},
			"cpu=4 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=8",
			"cpu=4 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=8",
		},
		"more pods per core than pods": {
			kubeletv1beta1.KubeletConfiguration{MaxPods: 5, PodsPerCore: 2, LocalStorageCapacityIsolation: &off},
			"cpu=4 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=16Mi pods=5",
			"cpu=4 hugepages-1Gi=0 hugepages-2Mi=6Mi memory=10Mi pods=5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			capacity := machine.Capacity(f, disk, &test.conf)
			if got := list(capacity); got != test.capacity {
				t.Errorf("capacity %s, want %s", got, test.capacity)
			}
			reserved, err := machine.Reserved(capacity, &test.conf, thresholds(test.conf))
			if err != nil {
				t.Fatal(err)
			}
			if got := list(machine.Allocatable(capacity, reserved)); got != test.allocatable {
				t.Errorf("allocatable %s, want %s", got, test.allocatable)
			}
			if got := list(capacity); got != test.capacity {
				t.Errorf("capacity became %s", got)
			}
		})
	}
}

func thresholds(k kubeletv1beta1.KubeletConfiguration) []kubeletconfig.Threshold {
	return (&kubeletconfig.Config{Kubelet: k}).EvictionThresholds()
}

func TestReservedErrorsNameTheField(t *testing.T) {
	capacity := v1.ResourceList{"memory": resource.MustParse("1Gi")}
	for want, conf := range map[string]kubeletv1beta1.KubeletConfiguration{
		"kubeReserved[cpu]":      {KubeReserved: map[string]string{"cpu": "much"}},
		"systemReserved[memory]": {SystemReserved: map[string]string{"memory": "x"}},
		"reservedSystemCPUs":     {ReservedSystemCPUs: "a"},
	} {
		if _, err := machine.Reserved(capacity, &conf, nil); err == nil || !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
