// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/measure"
	"github.com/sextant-node/sextant/test/standin"
)

// staticMemory is a configuration of the static managers on the rig's machine, with two NUMA
// nodes of 4 GiB and two CPUs. Of node 0, CPU 0 and 1 GiB are reserved.
func staticMemory(r *rig) func(*kubeletconfig.Config) {
	cpus := static(r)
	for node, list := range []string{"0-1", "2-3"} {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		r.file(dir+"cpulist", list)
		r.file(dir+"meminfo", fmt.Sprintf("Node %d MemTotal: 4194304 kB", node))
	}
	return func(c *kubeletconfig.Config) {
		cpus(c)
		c.Kubelet.MemoryManagerPolicy = "Static"
		c.Kubelet.ReservedMemory = []kubeletv1beta1.MemoryReservation{
			{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: apiresource.MustParse("1Gi")}},
		}
	}
}

// withMemory is a rig with both static policies, after the files of a kubelet's were left.
func withMemory(t *testing.T, files map[string]string, edit func(*kubeletconfig.Config)) *rig {
	r := newRig(t, nil)
	r.stop()
	both := staticMemory(r)
	for name, text := range files {
		r.file(name, text)
	}
	r.start(nil)
	r.configure(func(c *kubeletconfig.Config) {
		both(c)
		if edit != nil {
			edit(c)
		}
	})
	r.answers()
	return r
}

// wide is a Guaranteed pod with one CPU and so much memory.
func wide(uid, memory string) *v1.Pod {
	p := guaranteed(uid, "1")
	list := v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1"), v1.ResourceMemory: apiresource.MustParse(memory)}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

// memoryOf is what a pod's item has: blocks with their nodes, and what the runtime is given.
func (r *rig) memoryOf(uid string) string {
	item, _ := r.pods.Get(uid)
	var all []string
	for _, c := range item.GetContainers() {
		for _, b := range c.GetMemory() {
			q := apiresource.NewQuantity(int64(b.GetSize()), apiresource.BinarySI)
			all = append(all, fmt.Sprintf("%s %s on %v", b.GetType(), q, b.GetNodes()))
		}
		all = append(all, "mems "+c.GetCpusetMems())
	}
	return strings.Join(all, ", ")
}

func (r *rig) state(name string) string {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.machine, name))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// states waits until a state file begins so, or has so much in it.
func (r *rig) states(name string, is func(s, want string) bool, want string) {
	r.Helper()
	var got string
	defer func() {
		if r.Failed() {
			r.Logf("%s is\n%s, want\n%s", name, got, want)
		}
	}()
	r.Eventually(name, func() bool {
		got = r.state(name)
		return is(got, want)
	})
}

func (r *rig) known() {
	r.Helper()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
}

// stateOf is a NUMA node in a state file, of which so many blocks with so many bytes are given.
func stateOf(node, blocks int, total, reserved, given uint64, cells string) string {
	return fmt.Sprintf(`"%d":{"numberOfAssignments":%d,"memoryMap":{"memory":{"total":%d,"systemReserved":%d,"allocatable":%d,"reserved":%d,"free":%d}},"cells":%s}`,
		node, blocks, total, reserved, total-reserved, given, total-reserved-given, cells)
}

const gib = 1 << 30

// TestMemoryOfItsOwn: a Guaranteed pod has NUMA nodes for its memory, which no restart takes
// from it, and which are in the kubelet's files and in the PodResources API; one too many is
// refused; what is released is given again.
func TestMemoryOfItsOwn(t *testing.T) {
	r := withMemory(t, nil, nil)
	r.known()
	if got := decision(r.admit(wide("one", "2Gi"), false)); !strings.HasPrefix(got, "admitted") {
		t.Fatal(got)
	}
	const one = "memory 2Gi on [0], mems 0"
	r.Eventually("memory is in the item", func() bool { return r.memoryOf("one") == one })
	before, _, _, _ := r.pods.State()
	r.stop()
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("a pod gets the other node", func() bool {
		return strings.HasPrefix(decision(r.admit(wide("two", "2Gi"), false)), "admitted")
	})
	r.Eventually("both have theirs", func() bool { return r.memoryOf("one") == one && r.memoryOf("two") == "memory 2Gi on [1], mems 1" })
	for name, want := range map[string]string{
		"memory_manager_state": `{"policyName":"Static","machineState":{` +
			stateOf(0, 1, 4*gib, gib, 2*gib, "[0]") + `,` + stateOf(1, 1, 4*gib, 0, 2*gib, "[1]") +
			`},"entries":{"one":{"c":[{"numaAffinity":[0],"type":"memory","size":2147483648}]},"two":{"c":[{"numaAffinity":[1],"type":"memory","size":2147483648}]}},"checksum":`,
		"cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0,3","entries":{"one":{"c":"1"},"two":{"c":"2"}},"checksum":`,
	} {
		r.states(name, strings.HasPrefix, want)
	}
	const refused = "rejected UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, " +
		"no NUMA nodes with enough memory is available, which is unexpected"
	if got := decision(r.admit(wide("three", "2560Mi"), false)); got != refused {
		t.Errorf("%s, want %s", got, refused)
	}
	for metric, want := range map[string]float64{
		"kubelet_memory_manager_pinning_requests_total": 2,
		"kubelet_memory_manager_pinning_errors_total":   1,
	} {
		if got := measure.Value(t, r.kit.Metrics, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	want := &podresourcesv1.ListPodResourcesResponse{}
	if err := prototext.Unmarshal([]byte(`
		pod_resources: {name: "name-one" namespace: "ns" containers: {name: "c" cpu_ids: 1 memory: {memory_type: "memory" size: 2147483648 topology: {nodes: {ID: 0}}}}}
		pod_resources: {name: "name-two" namespace: "ns" containers: {name: "c" cpu_ids: 2 memory: {memory_type: "memory" size: 2147483648 topology: {nodes: {ID: 1}}}}}
	`), want); err != nil {
		t.Fatal(err)
	}
	api := podResourcesOf(r)
	if got, err := api.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	free, err := api.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil || fmt.Sprint(len(free.GetMemory()), free.GetMemory()[0].GetSize(), free.GetMemory()[1].GetSize()) != fmt.Sprint(2, 3*gib, 4*gib) {
		t.Errorf("allocatable: %v, %v", free.GetMemory(), err)
	}
	r.release("one")
	r.Eventually("the files have it no more", func() bool {
		return !strings.Contains(r.state("memory_manager_state")+r.state("cpu_manager_state"), `"one"`)
	})
	r.Eventually("another has what it had", func() bool {
		return strings.HasPrefix(decision(r.admit(wide("three", "2560Mi"), false)), "admitted")
	})
	r.Eventually("on node 0", func() bool { return r.memoryOf("three") == "memory 2560Mi on [0], mems 0" })
}

// TestABootWithLessMemory: after a boot a pod is refused that has memory of its own on a NUMA
// node which has no such memory any more; one on another node keeps what it has.
func TestABootWithLessMemory(t *testing.T) {
	r := withMemory(t, nil, nil)
	r.known()
	for _, uid := range []string{"one", "two"} {
		if got := decision(r.admit(wide(uid, "2Gi"), false)); !strings.HasPrefix(got, "admitted") {
			t.Fatal(got)
		}
	}
	before, _, _, _ := r.pods.State()
	r.stop()
	r.file("proc/sys/kernel/random/boot_id", "b2")
	r.file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1048576 kB")
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	r.Eventually("two is refused", func() bool {
		item, _ := r.pods.Get("two")
		return item.GetEviction().GetReason() == "UnexpectedAdmissionError" && item.GetEviction().GetMessage() ==
			"Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected"
	})
	r.Eventually("one may start", func() bool {
		item, _ := r.pods.Get("one")
		return item.GetEviction() == nil && item.GetUnready() == "" && r.memoryOf("one") == "memory 2Gi on [0], mems 0"
	})
}

// TestARunningPodKeepsAKubeletsMemory: the files that a kubelet left say what a pod that runs
// has. What they have of pods that are yet to be taken over stays in them, until it is known
// that there are no such pods.
func TestARunningPodKeepsAKubeletsMemory(t *testing.T) {
	block := `{"c":[{"numaAffinity":[1],"type":"memory","size":3221225472}]}`
	r := withMemory(t, map[string]string{
		"cpu_manager_state":    `{"policyName":"static","defaultCpuSet":"0-1","entries":{"was":{"c":"2"},"late":{"c":"3"}},"checksum":0}`,
		"memory_manager_state": `{"policyName":"Static","machineState":{},"entries":{"was":` + block + `,"late":` + strings.Replace(block, "3221225472", "1024", 1) + `},"checksum":0}`,
	}, nil)
	r.known()
	r.admit(wide("was", "3Gi"), true)
	r.admit(wide("shared", "1Gi"), true)
	r.Eventually("the nodes are as before", func() bool { return r.memoryOf("was") == "memory 3Gi on [1], mems 1" })
	if got := r.memoryOf("shared"); got != "" {
		t.Errorf("a pod that runs without memory of its own has got %s", got)
	}
	for name, want := range map[string]string{
		"cpu_manager_state":    `{"policyName":"static","defaultCpuSet":"0-1","entries":{"late":{"c":"3"},"was":{"c":"2"}},"checksum":`,
		"memory_manager_state": stateOf(1, 2, 4*gib, 0, 3*gib+1024, "[1]"),
	} {
		r.states(name, strings.Contains, want)
	}
	standin.Set(r.House, r.desired, "was", &configv1.DesiredPod{})
	r.desired.SetComplete(r.Context(), true)
	r.Eventually("the files have only what there is", func() bool {
		r.admit(wide("next", "1Mi"), false)
		return !strings.Contains(r.state("memory_manager_state")+r.state("cpu_manager_state"), `"late"`)
	})
}

// TestMemoryOfAPodThatIsNotToldOf: a new pod does not get the memory that a kubelet's file has
// of a running one. What the checkpoint has of a pod that is not in the file does not keep a
// running pod from its own.
func TestMemoryOfAPodThatIsNotToldOf(t *testing.T) {
	r := withMemory(t, nil, nil)
	r.known()
	r.admit(wide("old", "3Gi"), false)
	r.Eventually("it has node 0", func() bool { return r.memoryOf("old") == "memory 3Gi on [0], mems 0" })
	before, _, _, _ := r.pods.State()
	r.stop()
	r.file("memory_manager_state", `{"policyName":"Static","machineState":{},"entries":{`+
		`"runs":{"c":[{"numaAffinity":[0],"type":"memory","size":3221225472}]},"also":{"c":[{"numaAffinity":[1],"type":"memory","size":3221225472}]}},"checksum":0}`)
	r.start(nil)
	r.Eventually("the second life", func() bool { now, complete, _, _ := r.pods.State(); return now.Epoch != before.Epoch && complete })
	const waits = "not yet: waiting for what becomes of pods that had CPUs or memory of their own with the kubelet: also, runs"
	r.Eventually("a new pod waits", func() bool { return decision(r.admit(wide("new", "2Gi"), false)) == waits })
	r.admit(wide("runs", "3Gi"), true)
	r.admit(wide("also", "3Gi"), true)
	r.Eventually("both have theirs", func() bool {
		return r.memoryOf("runs") == "memory 3Gi on [0], mems 0" && r.memoryOf("also") == "memory 3Gi on [1], mems 1"
	})
}

// TestDamagedStateFiles: a kubelet's file that cannot be read is set aside and written again.
func TestDamagedStateFiles(t *testing.T) {
	r := withMemory(t, map[string]string{"memory_manager_state": `{"policyName":"Static","machineState":{},"checksum":1}`}, nil)
	r.known()
	r.Eventually("a new file", func() bool {
		return strings.HasPrefix(r.state("memory_manager_state"), `{"policyName":"Static","machineState":{"0"`)
	})
	if aside, err := filepath.Glob(filepath.Join(r.machine, "memory_manager_state.*")); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

// TestStateFilesOfNone: with the policies none the files say so, for a kubelet that takes the
// node over starts only with the policy that its file has.
func TestStateFilesOfNone(t *testing.T) {
	r := newRig(t, nil)
	r.settle()
	for name, want := range map[string]string{
		"cpu_manager_state":    `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`,
		"memory_manager_state": `{"policyName":"None","machineState":{},"checksum":4236770233}`,
	} {
		r.states(name, strings.HasPrefix, want)
	}
}

// TestReservedMemoryThatDoesNotAddUp: nothing is admitted with it, and the answer names the
// field.
func TestReservedMemoryThatDoesNotAddUp(t *testing.T) {
	r := withMemory(t, nil, func(c *kubeletconfig.Config) { c.Kubelet.SystemReserved = map[string]string{"memory": "1Gi"} })
	const want = `not yet: the node's resources are not known yet: reservedMemory: the total amount "1Gi" of type "memory" ` +
		`is not equal to the value "2Gi" determined by Node Allocatable feature`
	r.Eventually("says why", func() bool { return decision(r.admit(wide("a", "1Gi"), false)) == want })
}

// TestMemoryAtEachWrite kills the service at each write of its checkpoint while a pod with
// memory of its own comes and goes: the pod beside it keeps its own, and no memory is given
// twice.
func TestMemoryAtEachWrite(t *testing.T) {
	s := newSiege(t, 20)
	s.process.Kill()
	s.configure(staticMemory(s.rig))
	s.live("")
	whole := func(uid string) []byte {
		data, err := wide(uid, "3Gi").Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	s.insist(&resourcev1.AdmitRequest{Pod: whole("stays")})
	s.Eventually("one has node 0", func() bool { return s.memoryOf("stays") == "memory 3Gi on [0], mems 0" })
	kills := s.eachWrite([]any{&resourcev1.AdmitRequest{Pod: whole("u")}, &resourcev1.ReleaseRequest{Uid: "u"}}, func() {
		s.insist(&resourcev1.AdmitRequest{Pod: whole("u")})
		s.Eventually("each has a node", func() bool {
			return s.memoryOf("u") == "memory 3Gi on [1], mems 1" && s.memoryOf("stays") == "memory 3Gi on [0], mems 0"
		})
		s.insist(&resourcev1.ReleaseRequest{Uid: "u"})
	})
	if kills < 6 {
		t.Errorf("only %d kills: the checkpoint has more writes", kills)
	}
}
