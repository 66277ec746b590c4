// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// TestDevices: who has what on which NUMA node, which plugins there are, and what pods wait
// for.
func TestDevices(t *testing.T) {
	sys := t.TempDir()
	for name, cpus := range map[string]string{"node0": "0-1", "node1": "2-3"} {
		if err := os.MkdirAll(filepath.Join(sys, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, name, "cpulist"), []byte(cpus+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := numaNodes(sys)
	if err != nil {
		t.Fatal(err)
	}
	report := devicesOf(&resourcev1.NodeResources{
		Capacity: map[string]string{"example.com/gpu": "2"}, Allocatable: map[string]string{"example.com/gpu": "0"},
		DevicePlugins: []*resourcev1.DevicePlugin{{Resource: "example.com/gpu", State: "away", Since: ago(time.Minute), Message: "it has ended"}},
	}, map[string]*resourcev1.PodAllocation{
		"u": {Namespace: "ns", Name: "web", Containers: []*resourcev1.ContainerAllocation{{
			Name: "app", CpusetCpus: "1-2", CpusetMems: "0,1",
			Memory:        []*resourcev1.MemoryBlock{{Type: "memory", Size: 3 << 29, Nodes: []int64{0, 1}}, {Type: "hugepages-2Mi", Nodes: []int64{0, 1}}},
			CdiDevices:    []string{"example.com/gpu=a", "example.com/nic=c"},
			PluginDevices: []*resourcev1.PluginDevices{{Resource: "example.com/gpu", Devices: []*resourcev1.PluginDevice{{Id: "a", Nodes: []int64{1}}, {Id: "b"}}}},
		}}, DeviceHealth: []*resourcev1.DeviceHealth{
			{Container: "app", Resource: "example.com/gpu", Id: "a", Health: "Unknown"},
			{Container: "app", Resource: "claim:nic", Id: "example.com/nic=c", Health: "Unhealthy", Message: "the link is down"},
		}},
		"v": {Namespace: "ns", Name: "plain"},
	}, map[string]*podworkerv1.PodState{
		"w": {Namespace: "ns", Name: "next", Wait: &podworkerv1.Wait{Owner: "resource", Message: "waiting for the device plugin of example.com/gpu: it has ended", Since: ago(time.Hour)}},
		"x": {Namespace: "ns", Name: "pulls", Wait: &podworkerv1.Wait{Owner: "runtime", Message: "x"}},
	}, nodes)
	var table, text strings.Builder
	if err := printDevices(&table, &output{"table"}, report, noon); err != nil {
		t.Fatal(err)
	}
	want := `PLUGIN OF        STATE  SINCE  CAPACITY  ALLOCATABLE  HELD  WHY
example.com/gpu  away   60s    2         0            2     it has ended

POD     CONTAINER  RESOURCE         ID                 NUMA  HEALTH     WHY
ns/web  app        cdi              example.com/gpu=a  -     -          -
ns/web  app        claim:nic        example.com/nic=c  -     Unhealthy  the link is down
ns/web  app        cpu              1-2                0,1   -          -
ns/web  app        example.com/gpu  a                  1     Unknown    -
ns/web  app        example.com/gpu  b                  -     -          -
ns/web  app        memory           1536Mi             0,1   -          -

WAITING POD  SINCE  WHY
ns/next      60m    waiting for the device plugin of example.com/gpu: it has ended
`
	if d := cmp.Diff(want, table.String()); d != "" {
		t.Error(d)
	}
	if err := printDevices(&text, &output{"json"}, report, noon); err != nil {
		t.Fatal(err)
	}
	var read deviceReport
	if err := json.Unmarshal([]byte(text.String()), &read); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*report, read); d != "" {
		t.Error(d)
	}
}
