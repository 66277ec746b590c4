// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// devices is what the container web is given besides its size.
var devices = []*resourcev1.ContainerAllocation{{Name: "other", CdiDevices: []string{"x.example/y=z"}}, {
	Name: "web", CpusetCpus: "2-3", CpusetMems: "1", ExclusiveCpus: true,
	Devices:     []*resourcev1.ContainerDevice{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
	Mounts:      []*resourcev1.ContainerMount{{HostPath: "/lib/a", ContainerPath: "/lib/b", ReadOnly: true}},
	Envs:        map[string]string{"A": "b"},
	Annotations: map[string]string{"example.com/a": "b"},
	CdiDevices:  []string{"example.com/gpu=0"},
}}

// TestAContainerIsMadeOfItsAllocation: nothing is created before the allocation is known
// here, also when the sandbox is there already, and then with all that it holds.
func TestAContainerIsMadeOfItsAllocation(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.given = devices
	release := n.wire.hold(house.ResourcePods.Name)
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("the container waits", func() bool {
		w := n.state(p.UID).GetWait()
		return w.GetOwner() == "resource" && w.GetMessage() == "the pod's allocation has not been read yet"
	})
	if got := n.rt.Count(fakecri.Match{Method: "CreateContainer"}); got != 0 {
		t.Fatalf("%d containers created", got)
	}
	release()
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	config := n.rt.Calls(fakecri.Match{Method: "CreateContainer"})[0].Request.(*runtimeapi.CreateContainerRequest).GetConfig()
	linux := config.GetLinux().GetResources()
	if linux.GetCpusetCpus() != "2-3" || linux.GetCpusetMems() != "1" {
		t.Errorf("cpuset %q, memory %q", linux.GetCpusetCpus(), linux.GetCpusetMems())
	}
	got := &runtimeapi.ContainerConfig{
		Devices: config.GetDevices(), Mounts: config.GetMounts()[:1], Envs: config.GetEnvs()[:1], CDIDevices: config.GetCDIDevices(),
		Annotations: map[string]string{"example.com/a": config.GetAnnotations()["example.com/a"]},
	}
	want := &runtimeapi.ContainerConfig{
		Devices:     []*runtimeapi.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b", Permissions: "rw"}},
		Mounts:      []*runtimeapi.Mount{{HostPath: "/lib/a", ContainerPath: "/lib/b", Readonly: true}},
		Envs:        []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b")}},
		Annotations: map[string]string{"example.com/a": "b"},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// TestAResizeKeepsTheCPUsOfAContainer: what is set beside the sizes is set again with them.
func TestAResizeKeepsTheCPUsOfAContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.given = devices
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	n.desire(sized("a", "2", "128Mi", 2))
	n.resized(p, 1)
	// A container that runs before the answer to its start has come is put on its CPUs once
	// more, which changes nothing.
	again := &runtimeapi.LinuxContainerResources{CpusetCpus: "2-3"}
	resized := 0
	for _, call := range n.rt.Calls(fakecri.Match{Method: "UpdateContainerResources"}) {
		linux := call.Request.(*runtimeapi.UpdateContainerResourcesRequest).GetLinux()
		if proto.Equal(linux, again) {
			continue
		}
		resized++
		if linux.GetCpusetCpus() != "2-3" || linux.GetCpusetMems() != "1" || linux.GetCpuQuota() > 0 {
			t.Errorf("updated to %v", linux)
		}
	}
	if resized == 0 {
		t.Error("not resized")
	}
}

// TestContainersFollowTheSharedCPUs: a container without CPUs of its own is made on what is
// shared, and moved when that changes; one with its own stays.
func TestContainersFollowTheSharedCPUs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.given, n.shared = []*resourcev1.ContainerAllocation{{Name: "other", CpusetCpus: "2-3"}}, "0-1,4"
	n.live()
	p := sized("a", "1", "64Mi", 1)
	n.desire(p)
	n.until("up", func() bool { return n.running("a") && n.settled(p.UID) })
	config := n.rt.Calls(fakecri.Match{Method: "CreateContainer"})[0].Request.(*runtimeapi.CreateContainerRequest).GetConfig()
	if got := config.GetLinux().GetResources().GetCpusetCpus(); got != "0-1,4" {
		t.Errorf("made on %s", got)
	}
	item, _ := n.allocations.Get(string(p.UID))
	item = proto.CloneOf(item)
	item.SharedCpus = "0"
	if _, err := n.allocations.Set(t.Context(), string(p.UID), item); err != nil {
		t.Fatal(err)
	}
	// It may have been put where it was made once more, before the answer to its start came.
	moves := func() (all []string) {
		for _, call := range n.rt.Calls(fakecri.Match{Method: "UpdateContainerResources"}) {
			linux := call.Request.(*runtimeapi.UpdateContainerResourcesRequest).GetLinux()
			if cpus := linux.GetCpusetCpus(); !proto.Equal(linux, &runtimeapi.LinuxContainerResources{CpusetCpus: cpus}) {
				t.Errorf("updated to %v", linux)
			} else if len(all) > 0 || cpus != "0-1,4" {
				all = append(all, cpus)
			}
		}
		return all
	}
	n.until("moved", func() bool { return len(moves()) > 0 && n.settled(p.UID) })
	if got := moves(); len(got) != 1 || got[0] != "0" {
		t.Errorf("moved to %q", got)
	}
}
