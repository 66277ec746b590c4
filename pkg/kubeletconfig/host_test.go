// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
)

func TestCheckHost(t *testing.T) {
	v1, v2 := HostFacts{Cgroup: CgroupV1}, HostFacts{Cgroup: CgroupV2}
	swap := HostFacts{Cgroup: CgroupV2, Swap: []string{"/dev/sda2", "/swap"}}
	for _, tc := range []struct {
		name string
		in   string
		host HostFacts
		want []string
	}{
		{"nothing known", "", HostFacts{}, nil},
		{"v2", "", v2, nil},
		{"v1 by default", "", v1, []string{
			"default: failCgroupV1: Forbidden: this host uses cgroup v1, on which the kubelet does not start by default; move the host to cgroup v2 or set failCgroupV1: false"}},
		{"v1 refused in the file", "failCgroupV1: true\n", v1, []string{
			"/etc/kubelet/config.yaml:3: failCgroupV1: Forbidden: this host uses cgroup v1, on which the kubelet does not start by default; move the host to cgroup v2 or set failCgroupV1: false"}},
		{"v1 allowed", "failCgroupV1: false\n", v1, nil},
		{"v1 cannot kill a cgroup", "failCgroupV1: false\nsingleProcessOOMKill: false\n", v1, []string{
			"/etc/kubelet/config.yaml:4: singleProcessOOMKill: Forbidden: must not be false on a host with cgroup v1, which cannot kill a cgroup as a whole"}},
		{"v1 kills one process", "failCgroupV1: false\nsingleProcessOOMKill: true\n", v1, nil},
		{"v2 can kill a cgroup", "singleProcessOOMKill: false\n", v2, nil},
		{"v1 has no swap limit", "failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}\n", v1, []string{
			"/etc/kubelet/config.yaml:4: memorySwap.swapBehavior: Forbidden: LimitedSwap needs cgroup v2, and this host uses cgroup v1"}},
		{"swap by default", "", swap, []string{
			"default: failSwapOn: Forbidden: swap is on (/dev/sda2, /swap); turn it off or set failSwapOn: false"}},
		{"swap allowed", "failSwapOn: false\n", swap, nil},
		{"reserved CPU offline", "reservedSystemCPUs: 0,9\n", HostFacts{OnlineCPUs: cpuset.New(0, 1, 2, 3)}, []string{
			"/etc/kubelet/config.yaml:3: reservedSystemCPUs: Forbidden: 0,9 are not all online; online are 0-3"}},
		{"reserved CPU online", "reservedSystemCPUs: 0,3\n", HostFacts{OnlineCPUs: cpuset.New(0, 1, 2, 3)}, nil},
		{"all at once", "memorySwap: {swapBehavior: LimitedSwap}\n", HostFacts{Cgroup: CgroupV1, Swap: []string{"/s"}}, []string{
			"default: failCgroupV1: Forbidden: this host uses cgroup v1, on which the kubelet does not start by default; move the host to cgroup v2 or set failCgroupV1: false",
			"/etc/kubelet/config.yaml:3: memorySwap.swapBehavior: Forbidden: LimitedSwap needs cgroup v2, and this host uses cgroup v1",
			"default: failSwapOn: Forbidden: swap is on (/s); turn it off or set failSwapOn: false"}},
	} {
		c, _ := setup{args: withAPI(), config: new(tc.in)}.mustLoad(t)
		if d := cmp.Diff(tc.want, problemLines(CheckHost(c, tc.host))); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}

func TestCheckHostNUMA(t *testing.T) {
	c, _ := setup{args: withAPI()}.mustLoad(t)
	f, err := ParseFlags([]string{"--reserved-memory=0:memory=1Gi;2:memory=1Gi"})
	if err != nil {
		t.Fatal(err)
	}
	target := newTarget(&c.Kubelet)
	f.apply(target, c.Origins)
	want := []string{"--reserved-memory: reservedMemory[1].numaNode: Not found: 2"}
	if d := cmp.Diff(want, problemLines(CheckHost(c, HostFacts{NUMANodes: []int{0, 1}}))); d != "" {
		t.Error(d)
	}
	if err := CheckHost(c, HostFacts{}); err != nil {
		t.Errorf("unknown nodes are judged: %v", err)
	}
}

func TestReadHostFacts(t *testing.T) {
	f := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for _, tc := range []struct {
		name  string
		files fstest.MapFS
		want  HostFacts
	}{
		{"nothing", fstest.MapFS{}, HostFacts{}},
		{"v2", fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": f("cpu"), "proc/swaps": f(heading)}, HostFacts{Cgroup: CgroupV2}},
		{"hybrid is v1", fstest.MapFS{"sys/fs/cgroup/unified/cgroup.controllers": f(""), "sys/fs/cgroup/memory/tasks": f("")}, HostFacts{Cgroup: CgroupV1}},
		{"swap", fstest.MapFS{"proc/swaps": f(heading + "/dev/sda2                               partition\t1\t0\t-2\n/swap file 1 0 -3\n")}, HostFacts{Swap: []string{"/dev/sda2", "/swap"}}},
		{"cpus", fstest.MapFS{"sys/devices/system/cpu/online": f("0-1,3\n"), "sys/devices/system/node/online": f("0-1\n")},
			HostFacts{OnlineCPUs: cpuset.New(0, 1, 3), NUMANodes: []int{0, 1}}},
		{"nonsense", fstest.MapFS{"sys/devices/system/cpu/online": f("many"), "sys/devices/system/node/online": f("")}, HostFacts{}},
	} {
		got := ReadHostFacts(tc.files)
		if got.Cgroup != tc.want.Cgroup || !got.OnlineCPUs.Equals(tc.want.OnlineCPUs) ||
			!cmp.Equal(got.Swap, tc.want.Swap) || !cmp.Equal(got.NUMANodes, tc.want.NUMANodes) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// On the machine at hand: facts are readable and the node loads.
func TestHost(t *testing.T) {
	in, err := Host()
	if err != nil {
		t.Fatal(err)
	}
	if h := ReadHostFacts(in.Files); h.Cgroup == CgroupUnknown || h.OnlineCPUs.Size() == 0 {
		t.Errorf("facts of this machine: %+v", h)
	}
	c, _, err := Load(&Flags{}, in)
	if err != nil || c.Node.Name == "" {
		t.Errorf("%+v, %v", c, err)
	}
}
