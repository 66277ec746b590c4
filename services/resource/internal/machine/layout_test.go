// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// sysfs writes files of a machine below a folder; a line is a path and its text.
func sysfs(t *testing.T, lines string) machine.Host {
	t.Helper()
	root := t.TempDir()
	for line := range strings.Lines(lines) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		file := filepath.Join(root, "sys/devices/system", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return machine.Host{Root: root}
}

// cpus are the files of CPUs: core and socket, and the CPUs that share the cache of level 3.
func cpus(of ...[4]string) string {
	var b strings.Builder
	for id, c := range of {
		dir := fmt.Sprintf("cpu/cpu%d", id)
		fmt.Fprintf(&b, "%s/topology/core_id %s\n%s/topology/physical_package_id %s\n", dir, c[0], dir, c[1])
		fmt.Fprintf(&b, "%s/cache/index0/level 1\n%s/cache/index0/shared_cpu_list %d\n%s/cache/index0/id 9\n", dir, dir, id, dir)
		fmt.Fprintf(&b, "%s/cache/index3/level 3\n%s/cache/index3/shared_cpu_list %s\n%s/cache/index3/id %s\n", dir, dir, c[2], dir, c[3])
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	for name, c := range map[string]struct{ files, want string }{
		"two sockets with threads, one is offline": {
			"cpu/online 0-2\n" + cpus([4]string{"0", "0", "0,2", "0"}, [4]string{"0", "1", "1", "1"}, [4]string{"0", "0", "0,2", "0"}, [4]string{"0", "1", "1", "1"}) +
				"node/node0/cpulist 0,2\nnode/node0/meminfo Node 0 MemTotal: 1024 kB\nnode/node0/distance 10 21\n" +
				"node/node0/hugepages/hugepages-2048kB/nr_hugepages 7\n" +
				"node/node1/cpulist 1,3\nnode/node1/meminfo Node 1 MemTotal: 2048 kB\nnode/node1/distance 21 10\nnode/possible 0-1\n",
			`node 0 bytes 1048576 hugepages 2048=7 distances 10,21
node 1 bytes 2097152 distances 21,10
cpu 0 core 0 cache 0 socket 0 node 0
cpu 1 core 1 cache 1 socket 1 node 1
cpu 2 core 0 cache 0 socket 0 node 0
`,
		},
		"two caches on a node": {
			"cpu/online 0-3\n" + cpus([4]string{"0", "0", "0-1", "4"}, [4]string{"1", "0", "0-1", "4"}, [4]string{"2", "0", "2-3", "5"}, [4]string{"3", "0", "2-3", "5"}) +
				"node/node0/cpulist 0-3\nnode/node0/meminfo Node 0 MemTotal: 1 kB\n",
			`node 0 bytes 1024
cpu 0 core 0 cache 4 socket 0 node 0
cpu 1 core 1 cache 4 socket 0 node 0
cpu 2 core 2 cache 5 socket 0 node 0
cpu 3 core 3 cache 5 socket 0 node 0
`,
		},
		"a kernel without NUMA": {
			"cpu/online 0-1\n" + cpus([4]string{"0", "0", "0", "0"}, [4]string{"0", "1", "1", "1"}),
			`node 0 bytes 0
node 1 bytes 0
cpu 0 core 0 cache 0 socket 0 node 0
cpu 1 core 1 cache 1 socket 1 node 1
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := sysfs(t, c.files).Layout()
			if err != nil {
				t.Fatal(err)
			}
			if l.String() != c.want {
				t.Errorf("got\n%swant\n%s", l, c.want)
			}
		})
	}
}

// TestBadLayout: an error names the CPU or node and the file.
func TestBadLayout(t *testing.T) {
	one := "cpu/online 0\n" + cpus([4]string{"0", "0", "0", "0"})
	for files, want := range map[string]string{
		"cpu/online many\n": "cpus online: ",
		"cpu/online 0\n":    "cpu 0: core_id: ",
		"cpu/online 0\ncpu/cpu0/topology/core_id 0\n":               "cpu 0: physical_package_id: ",
		one + "node/node0/cpulist x\n":                              "numa node 0: cpulist: ",
		one + "node/node0/meminfo Node 0 MemTotal: x kB\n":          "numa node 0: meminfo: ",
		one + "node/node0/distance 10 x\n":                          "numa node 0: distance: ",
		one + "node/node0/hugepages/hugepages-4kB/nr_hugepages x\n": "numa node 0: hugepages: ",
	} {
		if _, err := sysfs(t, files).Layout(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if l, err := (machine.Host{}).Layout(); err != nil {
		t.Errorf("this machine: %v", err)
	} else if l.All().IsEmpty() {
		t.Error("this machine has no CPU")
	}
}
