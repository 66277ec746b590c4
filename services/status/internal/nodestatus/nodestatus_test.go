// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/version"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// healthy is a node that has been up for an hour.
func healthy() Input {
	return Input{
		Name: "n1", Started: now.Add(-time.Hour), Now: now,
		Runtime: &Runtime{
			Name: "containerd", Version: "2.2.0", Responding: true, Since: now.Add(-time.Hour), Asked: true,
			Conditions: []RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}},
		},
		Resources: &Resources{
			Capacity:    list("cpu", "2", "memory", "4Gi", "pods", "110", "ephemeral-storage", "10Gi"),
			Allocatable: list("cpu", "1900m", "memory", "3Gi", "pods", "110", "ephemeral-storage", "9Gi"),
			BootID:      "boot-1",
		},
		Sources:   []Source{{Name: "api", Complete: true}, {Name: "file"}},
		MaxImages: 50, EphemeralStorage: true,
	}
}

func condition(t v1.NodeConditionType, status v1.ConditionStatus) v1.NodeCondition {
	return v1.NodeCondition{Type: t, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)), Message: "as it was"}
}

func TestReady(t *testing.T) {
	const fine = "kubelet is posting ready status"
	wasReady := []v1.NodeCondition{condition(v1.NodeReady, v1.ConditionTrue)}
	yes, no := true, false
	down := condition(v1.NodeReady, v1.ConditionFalse)
	down.Reason, down.Message = "KubeletNotReady", "node is shutting down"
	wasDown := []v1.NodeCondition{down}
	fresh := func(in *Input) { in.Started = now.Add(-time.Second) }
	tests := []struct {
		name    string
		change  func(*Input)
		status  v1.ConditionStatus
		message string
	}{
		{"healthy", func(*Input) {}, "True", fine},
		{"a manifest folder that cannot be read does not count", func(in *Input) { in.Sources = in.Sources[:2] }, "True", fine},
		{"runtime silent for 29 s", func(in *Input) { in.Runtime.Responding, in.Runtime.Since = false, now.Add(-29*time.Second) }, "True", fine},
		{
			"runtime silent for 30 s",
			func(in *Input) {
				in.Runtime.Responding, in.Runtime.Since, in.Runtime.Error = false, now.Add(-30*time.Second), "deadline exceeded"
			},
			"False", "container runtime is down: deadline exceeded",
		},
		{"runtime not ready", func(in *Input) {
			in.Runtime.Conditions[0] = RuntimeCondition{Type: "RuntimeReady", Reason: "Busy", Message: "starting"}
		}, "False", "container runtime not ready: RuntimeReady=false reason:Busy message:starting"},
		{"network not ready", func(in *Input) {
			in.Runtime.Conditions[1] = RuntimeCondition{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "no CNI"}
		}, "False", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no CNI"},
		{"both", func(in *Input) {
			for i := range in.Runtime.Conditions {
				in.Runtime.Conditions[i].Status = false
			}
		}, "False", "[container runtime not ready: RuntimeReady=false reason: message:, container runtime network not ready: NetworkReady=false reason: message:]"},
		{"capacity missing", func(in *Input) { delete(in.Resources.Capacity, "memory") }, "False", "missing node capacity for resources: memory"},
		{"local storage not accounted for", func(in *Input) {
			delete(in.Resources.Capacity, "ephemeral-storage")
			in.EphemeralStorage = false
		}, "True", fine},
		{"pods of the API server not read", func(in *Input) { in.Sources[0].Complete = false }, "False", "pods of the API server were not read yet"},
		{"config starts anew under a ready node", func(in *Input) {
			in.Sources[0] = Source{Name: "api", Since: now.Add(-time.Minute)}
			in.Old.Conditions = wasReady
		}, "True", "as it was"},
		{"config has started anew and reads nothing", func(in *Input) {
			in.Sources[0] = Source{Name: "api", Since: now.Add(-Grace)}
			in.Old.Conditions = wasReady
		}, "False", "pods of the API server were not read yet"},
		{"pleg starts anew under a ready node, the broker is not there yet", func(in *Input) {
			in.Runtime = &Runtime{Since: now.Add(-time.Second), Error: "no such socket"}
			in.Old.Conditions = wasReady
		}, "True", "as it was"},
		{"pleg has started anew and the runtime stays silent", func(in *Input) {
			in.Runtime = &Runtime{Since: now.Add(-runtimeGrace), Error: "no such socket"}
			in.Old.Conditions = wasReady
		}, "False", "container runtime is down: no such socket"},
		{"network state not told", func(in *Input) { in.Runtime.Conditions = in.Runtime.Conditions[:1] }, "False", "container runtime network not ready: the runtime does not tell"},
		{"new node: no CSINode yet", func(in *Input) { in.CSINode = "CSINode is not yet initialized" }, "False", "CSINode is not yet initialized"},
		{"restart: CSINode not looked at yet", func(in *Input) {
			in.CSINode, in.Old.Conditions = "CSINode is not yet initialized", wasReady
			fresh(in)
		}, "True", "as it was"},
		{"restart: CSINode cannot be made", func(in *Input) {
			in.CSINode, in.Old.Conditions = "failed to initialize CSINode: forbidden", wasReady
		}, "False", "failed to initialize CSINode: forbidden"},
		{"everything at once, in order", func(in *Input) {
			in.Runtime.Conditions[0].Status, in.Runtime.Conditions[1].Status = false, false
			in.CSINode = "CSINode is not yet initialized"
			delete(in.Resources.Capacity, "pods")
			in.ShuttingDown = &yes
		}, "False", "[container runtime not ready: RuntimeReady=false reason: message:, container runtime network not ready: NetworkReady=false reason: message:, " +
			"CSINode is not yet initialized, node is shutting down, missing node capacity for resources: pods]"},
		{"going down", func(in *Input) { in.ShuttingDown, in.Old.Conditions = &yes, wasReady }, "False", "node is shutting down"},
		{"going down, status starts anew", func(in *Input) {
			fresh(in)
			in.Old.Conditions = wasDown
		}, "False", "node is shutting down"},
		{"shutdown cancelled", func(in *Input) { in.ShuttingDown, in.Old.Conditions = &no, wasDown }, "True", fine},
		{"standalone has no such source", func(in *Input) { in.Sources = []Source{{Name: "file", Complete: true}} }, "True", fine},
		{"podworker away for 2 m 59 s", func(in *Input) { in.Away = []Away{{"podworker", now.Add(-Grace + time.Second)}} }, "True", fine},
		{"podworker away for 3 m", func(in *Input) { in.Away = []Away{{"podworker", now.Add(-Grace)}} }, "False", "podworker has not answered for more than 3m0s"},
		{"new node: nothing known", func(in *Input) { *in = Input{Now: now, Started: now} }, "False",
			"[container runtime status check may not have completed yet, missing node capacity for resources: cpu, memory, pods, pod sources were not read yet]"},
		{"restart: nothing known yet", func(in *Input) {
			*in = Input{Now: now, Started: now, Old: v1.NodeStatus{Conditions: wasReady}}
		}, "True", "as it was"},
		{"restart: runtime known, the rest not", func(in *Input) {
			in.Resources, in.Sources, in.Old.Conditions = nil, nil, wasReady
			fresh(in)
		}, "True", "as it was"},
		{"restart: what is known to be wrong counts at once", func(in *Input) {
			in.Resources, in.Old.Conditions = nil, wasReady
			in.Runtime.Conditions[1].Status = false
			fresh(in)
		}, "False", "[container runtime network not ready: NetworkReady=false reason: message:, missing node capacity for resources: cpu, memory, pods, ephemeral-storage]"},
		{"restart: still nothing after the grace", func(in *Input) {
			in.Runtime, in.Old.Conditions = nil, wasReady
			in.Started = now.Add(-Grace)
		}, "False", "container runtime status check may not have completed yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := healthy()
			tt.change(&in)
			got := find(Render(in).Conditions, v1.NodeReady)
			if got.Status != tt.status || got.Message != tt.message {
				t.Errorf("%s %q\nwant %s %q", got.Status, got.Message, tt.status, tt.message)
			}
			if want := map[v1.ConditionStatus]string{"True": "KubeletReady", "False": "KubeletNotReady"}[tt.status]; tt.message != "as it was" && got.Reason != want {
				t.Errorf("reason %s, want %s", got.Reason, want)
			}
		})
	}
}

func TestConditionsOrderAndTimes(t *testing.T) {
	in := healthy()
	in.Resources.DiskPressure = true
	in.Old.Conditions = []v1.NodeCondition{
		condition(v1.NodeMemoryPressure, v1.ConditionFalse),
		condition(v1.NodeDiskPressure, v1.ConditionFalse),
		condition(v1.NodeReady, v1.ConditionTrue),
		condition(v1.NodeNetworkUnavailable, v1.ConditionFalse),
	}
	got := Render(in).Conditions
	var names []string
	for _, c := range got {
		names = append(names, string(c.Type)+"="+c.Reason)
	}
	want := []string{
		"NetworkUnavailable=", "MemoryPressure=KubeletHasSufficientMemory", "DiskPressure=KubeletHasDiskPressure",
		"PIDPressure=KubeletHasSufficientPID", "Ready=KubeletReady",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatal(diff)
	}
	before := metav1.NewTime(now.Add(-time.Minute))
	for i, changed := range []bool{false, false, true, true, false} {
		if got[i].LastTransitionTime.Equal(&before) == changed {
			t.Errorf("%s: transition at %s, changed %v", got[i].Type, got[i].LastTransitionTime, changed)
		}
	}
	if got[0].LastHeartbeatTime.Equal(&metav1.Time{Time: now}) || !got[4].LastHeartbeatTime.Equal(&metav1.Time{Time: now}) {
		t.Error("heartbeat belongs to the node's own conditions, and to all of them")
	}
}

func TestRender(t *testing.T) {
	in := healthy()
	yes := true
	in.Old.Capacity = list("example.com/dongle", "3", "hugepages-1Gi", "1Gi", "cpu", "1")
	in.Old.VolumesAttached = []v1.AttachedVolume{{Name: "pv"}}
	in.Resources.SwapCapacity = 1 << 30
	in.Resources.Allocatable["example.com/gpu"] = resource.MustParse("1")
	in.Runtime.Handlers = []v1.NodeRuntimeHandler{{Name: "runc"}, {Name: ""}}
	in.Runtime.SupplementalGroupsPolicy = &yes
	in.Port, in.MaxImages = 10250, 2
	in.Images = []Image{{[]string{"small"}, 1}, {[]string{"1", "2", "3", "4", "5", "6"}, 30}, {[]string{"mid"}, 20}}
	got := Render(in)
	if q := got.Capacity["example.com/dongle"]; q.String() != "3" {
		t.Errorf("another's resource has capacity %s", q.String())
	}
	if q := got.Allocatable["example.com/dongle"]; q.String() != "3" {
		t.Errorf("another's resource has allocatable %s", q.String())
	}
	if _, ok := got.Capacity["hugepages-1Gi"]; ok {
		t.Error("huge pages that are gone are still listed")
	}
	if q := got.Allocatable["example.com/gpu"]; !q.IsZero() {
		t.Errorf("a resource without capacity has allocatable %s", q.String())
	}
	if got.NodeInfo.ContainerRuntimeVersion != "containerd://2.2.0" || *got.NodeInfo.Swap.Capacity != 1<<30 {
		t.Errorf("node info %+v", got.NodeInfo)
	}
	if len(got.Images) != 2 || got.Images[0].SizeBytes != 30 || len(got.Images[0].Names) != 5 || got.Images[1].Names[0] != "mid" {
		t.Errorf("images %+v", got.Images)
	}
	if got.RuntimeHandlers[0].Name != "" || got.Features == nil || got.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("handlers %v, features %v, port %d", got.RuntimeHandlers, got.Features, got.DaemonEndpoints.KubeletEndpoint.Port)
	}
	if len(got.VolumesAttached) != 1 {
		t.Error("what the attach controller wrote is gone")
	}
	if in.Runtime.Handlers[0].Name != "runc" {
		t.Error("the input was written to")
	}
	again := in
	again.Old, again.Now = got, now.Add(10*time.Second)
	if !Same(got, Render(again)) {
		t.Error("the same facts ten seconds later say something else")
	}
	again.Resources.PID = true
	if Same(got, Render(again)) {
		t.Error("another condition says the same")
	}
}

func TestVersionIsAccepted(t *testing.T) {
	v, err := version.ParseSemantic(KubeletVersion)
	if err != nil || fmt.Sprint(v.Major()) != Major || fmt.Sprint(v.Minor()) != Minor {
		t.Errorf("%v, %v", v, err)
	}
	if same, err := version.MustParseSemantic("v1.36.3").Compare(KubeletVersion); err != nil || same != 0 {
		t.Errorf("v1.36.3 compares %d, %v", same, err)
	}
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAddresses(t *testing.T) {
	host := Host{
		Interfaces: addrs("127.0.0.1", "10.0.0.5", "10.0.0.6", "fd00::5", "fe80::1", "::1"),
		Resolved:   addrs("127.0.1.1", "fd00::5", "10.0.0.6"),
		Route4:     netip.MustParseAddr("10.0.0.5"), Route6: netip.MustParseAddr("fd00::5"),
	}
	unresolved := host
	unresolved.Resolved = nil
	cloud := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"}}
	tests := []struct {
		name string
		in   AddressInput
		want string
		err  string
	}{
		{"resolved name", AddressInput{Hostname: "n1", Host: host}, "InternalIP=10.0.0.6 Hostname=n1", ""},
		{"resolved name, v6 preferred", AddressInput{Hostname: "n1", NodeIPs: []string{"::"}, Host: host}, "InternalIP=fd00::5 Hostname=n1", ""},
		{"default route", AddressInput{Hostname: "n1", Host: unresolved}, "InternalIP=10.0.0.5 Hostname=n1", ""},
		{"default route, v6 preferred", AddressInput{Hostname: "n1", NodeIPs: []string{"::"}, Host: unresolved}, "InternalIP=fd00::5 Hostname=n1", ""},
		{"name is an address", AddressInput{Hostname: "10.9.9.9", Host: host}, "InternalIP=10.9.9.9 Hostname=10.9.9.9", ""},
		{"given", AddressInput{Hostname: "n1", NodeIPs: []string{"10.0.0.5"}, Host: host}, "InternalIP=10.0.0.5 Hostname=n1", ""},
		{"given both", AddressInput{Hostname: "n1", NodeIPs: []string{"fd00::5", "10.0.0.5"}, Host: host}, "InternalIP=fd00::5 InternalIP=10.0.0.5 Hostname=n1", ""},
		{"given, not here", AddressInput{Hostname: "n1", NodeIPs: []string{"10.0.0.7"}, Host: host}, "", "not an address of this machine"},
		{"given loopback", AddressInput{Hostname: "n1", NodeIPs: []string{"127.0.0.1"}, Host: host}, "", "loopback"},
		{"given nonsense", AddressInput{Hostname: "n1", NodeIPs: []string{"ten"}, Host: host}, "", `--node-ip "ten"`},
		{"cloud sets them", AddressInput{Hostname: "n1", External: true, Host: host}, "Hostname=n1", ""},
		{"cloud will set them, v6 until then", AddressInput{Hostname: "n1", External: true, NodeIPs: []string{"::"}, Host: unresolved}, "InternalIP=fd00::5 Hostname=n1", ""},
		{"cloud has set them", AddressInput{Hostname: "n1", External: true, NodeIPs: []string{"10.0.0.5"}, Existing: cloud, Host: host}, "", ""},
		{"cloud will set them", AddressInput{Hostname: "n1", External: true, NodeIPs: []string{"10.0.0.5"}, Host: host}, "InternalIP=10.0.0.5 Hostname=n1", ""},
		{"nothing", AddressInput{Hostname: "n1"}, "", "give --node-ip"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Addresses(tt.in)
			if (err != nil) != (tt.err != "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			var parts []string
			for _, a := range got {
				parts = append(parts, string(a.Type)+"="+a.Address)
			}
			if text := strings.Join(parts, " "); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
}

func TestHostIPs(t *testing.T) {
	a := func(kind v1.NodeAddressType, ip string) v1.NodeAddress {
		return v1.NodeAddress{Type: kind, Address: ip}
	}
	tests := []struct {
		in   []v1.NodeAddress
		want []string
	}{
		{nil, nil},
		{[]v1.NodeAddress{a(v1.NodeHostName, "n1")}, nil},
		{[]v1.NodeAddress{a(v1.NodeExternalIP, "198.51.100.1"), a(v1.NodeInternalIP, "10.0.0.5"), a(v1.NodeInternalIP, "10.0.0.6"), a(v1.NodeInternalIP, "fd00::5")}, []string{"10.0.0.5", "fd00::5"}},
		{[]v1.NodeAddress{a(v1.NodeExternalIP, "198.51.100.1")}, []string{"198.51.100.1"}},
	}
	for _, tt := range tests {
		if got := HostIPs(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.in, got, tt.want)
		}
	}
}

func registration() Registration {
	return Registration{
		Name: "n1", OS: "linux", Arch: "amd64", ControllerAttach: true, ProviderID: "cloud://1",
		Labels: map[string]string{"team": "blue", v1.LabelTopologyZone: "z1"},
		Taints: []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}},
	}
}

func TestObject(t *testing.T) {
	r := registration()
	n := Object(r)
	want := map[string]string{
		"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "team": "blue", "topology.kubernetes.io/zone": "z1",
	}
	if diff := cmp.Diff(want, n.Labels); diff != "" {
		t.Error(diff)
	}
	if n.Annotations[controllerAttachAnnotation] != "true" || n.Spec.ProviderID != "cloud://1" || len(n.Spec.Taints) != 1 {
		t.Errorf("%+v", n)
	}
	r.External, r.NodeIPs = true, []string{"fd00::5", "10.0.0.5"}
	n = Object(r)
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != "node.cloudprovider.kubernetes.io/uninitialized" {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	if n.Annotations[providedIPAnnotation] != "fd00::5,10.0.0.5" {
		t.Errorf("annotations %v", n.Annotations)
	}
	if len(r.Taints) != 1 {
		t.Error("the registration was written to")
	}
}

func TestReconcile(t *testing.T) {
	existing := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        "n1",
		Labels:      map[string]string{"kubernetes.io/hostname": "old", "mine": "kept", v1.LabelTopologyRegion: "r1"},
		Annotations: map[string]string{providedIPAnnotation: "10.1.1.1", "other": "kept"},
	}}
	got := Reconcile(existing, registration())
	for key, want := range map[string]string{"kubernetes.io/hostname": "n1", "mine": "kept", "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "team": ""} {
		if got.Labels[key] != want {
			t.Errorf("label %s=%q, want %q", key, got.Labels[key], want)
		}
	}
	if _, ok := got.Annotations[providedIPAnnotation]; ok || got.Annotations["other"] != "kept" || got.Annotations[controllerAttachAnnotation] != "true" {
		t.Errorf("annotations %v", got.Annotations)
	}
	if existing.Labels["kubernetes.io/hostname"] != "old" {
		t.Error("the existing Node was written to")
	}
}

// TestFresh: a new machine under an old name has none of the old one's devices.
func TestFresh(t *testing.T) {
	existing := &v1.Node{Status: v1.NodeStatus{
		Capacity:    list("cpu", "8", "example.com/gpu", "4", "hugepages-2Mi", "1Gi", "attachable-volumes-x", "3"),
		Allocatable: list("cpu", "8", "example.com/gpu", "4"),
	}}
	r := registration()
	if n := Reconcile(existing, r); n.Status.Capacity.Name("example.com/gpu", resource.DecimalSI).Value() != 4 {
		t.Errorf("a restart took the devices: %v", n.Status.Capacity)
	}
	r.Fresh = true
	n := Reconcile(existing, r)
	want := list("cpu", "8", "example.com/gpu", "0", "hugepages-2Mi", "1Gi", "attachable-volumes-x", "3")
	if diff := cmp.Diff(want, n.Status.Capacity); diff != "" {
		t.Error(diff)
	}
	if q := n.Status.Allocatable["example.com/gpu"]; !q.IsZero() {
		t.Errorf("allocatable %v", n.Status.Allocatable)
	}
}

// TestMaintain: what somebody takes away comes back with the next write.
func TestMaintain(t *testing.T) {
	r := registration()
	r.External, r.NodeIPs = true, []string{"10.0.0.5"}
	existing := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/os": "plan9", "mine": "kept"}}}
	n := Maintain(existing, r)
	if n.Labels["kubernetes.io/os"] != "linux" || n.Labels["kubernetes.io/arch"] != "amd64" || n.Labels["mine"] != "kept" || n.Annotations[providedIPAnnotation] != "10.0.0.5" {
		t.Errorf("%v %v", n.Labels, n.Annotations)
	}
	if existing.Labels["kubernetes.io/os"] != "plan9" || existing.Annotations != nil {
		t.Error("the existing Node was written to")
	}
	if n.Labels["kubernetes.io/hostname"] != "" {
		t.Error("a label that is set at registration only")
	}
}

func TestRuntimeVersion(t *testing.T) {
	for in, want := range map[string]string{"v2.4.2": "2.4.2", "2.2.0-rc.1": "2.2.0-rc.1", "1.6.20~ds1": "1.6.20", "": "Unknown", "head": "Unknown"} {
		if got := plain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestPatch applies patches as an API server does.
func TestPatch(t *testing.T) {
	old := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1.NodeSpec{Unschedulable: true}, Status: Render(healthy())}
	old.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "n1"}}
	want := old.DeepCopy()
	want.Spec.Unschedulable = false
	want.Status.Addresses = []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeInternalIP, Address: "fd00::1"}, {Type: v1.NodeHostName, Address: "n1"},
	}
	want.Status.Conditions[0].Status = v1.ConditionTrue
	want.Labels = map[string]string{"a": "b"}
	body, err := Patch(old, want)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, v1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	got := &v1.Node{}
	if err := json.Unmarshal(after, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Status.Addresses, got.Status.Addresses); diff != "" {
		t.Error(diff)
	}
	if got.Status.Conditions[0].Status != v1.ConditionTrue || got.Labels["a"] != "b" || !got.Spec.Unschedulable {
		t.Errorf("patched to %s", after)
	}
	if strings.Contains(string(body), "capacity") {
		t.Errorf("patch repeats what is there: %s", body)
	}
	if body, err = Patch(old, old.DeepCopy()); err != nil || body != nil {
		t.Errorf("nothing to say, but %s, %v", body, err)
	}
}

func TestTransitions(t *testing.T) {
	with := func(boot string, conditions ...v1.NodeCondition) v1.NodeStatus {
		return v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: boot}, Conditions: conditions}
	}
	yes, no := condition(v1.NodeReady, "True"), condition(v1.NodeReady, "False")
	full, free := condition(v1.NodeDiskPressure, "True"), condition(v1.NodeDiskPressure, "False")
	tests := []struct {
		name     string
		old, new v1.NodeStatus
		want     string
	}{
		{"nothing", with("b", yes), with("b", yes), ""},
		{"new node, not ready", with(""), with("b", no), ""},
		{"new node, ready", with(""), with("b", yes, free), "NodeHasNoDiskPressure NodeReady"},
		{"not ready", with("b", yes), with("b", no), "NodeNotReady"},
		{"from unknown", with("b", condition(v1.NodeReady, "Unknown")), with("b", yes), "NodeReady"},
		{"pressure", with("b", free), with("b", full), "NodeHasDiskPressure"},
		{"reboot", with("b", yes), with("c", yes), "Rebooted"},
		{"boot not known yet", with("b", yes), with("", yes), ""},
	}
	for _, tt := range tests {
		var reasons []string
		for _, e := range Transitions("n1", tt.old, tt.new) {
			reasons = append(reasons, e.Reason)
		}
		if got := strings.Join(reasons, " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if e := Transitions("n1", with("b", yes), with("b", no))[0]; e.Type != "Normal" || e.Message != "Node n1 status is now: NodeNotReady" {
		t.Errorf("%+v", e)
	}
}

func TestDriversOfVolumes(t *testing.T) {
	existing := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "mine", v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}}}
	r := Registration{OS: "linux", Arch: "amd64"}
	const key = "csi.volume.kubernetes.io/nodeid"
	if n := Maintain(existing, r); n.Annotations[key] != "" || len(n.Labels) != 3 {
		t.Errorf("before drivers are known: %v %v", n.Annotations, n.Labels)
	}
	r.Drivers = &Drivers{NodeIDs: map[string]string{"b": "2", "a": "1"}, Topology: map[string]string{"zone": "theirs", "rack": "r1"}}
	n := Maintain(existing, r)
	if n.Annotations[key] != `{"a":"1","b":"2"}` || n.Labels["zone"] != "mine" || n.Labels["rack"] != "r1" {
		t.Errorf("%v %v", n.Annotations, n.Labels)
	}
	if len(existing.Labels) != 3 || existing.Annotations[key] != "" {
		t.Errorf("the one there is was changed: %v", existing)
	}
	r.Drivers = &Drivers{}
	if n := Maintain(n, r); n.Annotations[key] != "" || n.Labels["rack"] != "r1" {
		t.Errorf("without drivers: %v %v", n.Annotations, n.Labels)
	}
	status := Render(Input{Old: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"old"}}})
	if len(status.VolumesInUse) != 1 {
		t.Errorf("volumes in use forgotten: %v", status.VolumesInUse)
	}
	status = Render(Input{Old: status, VolumesInUse: []v1.UniqueVolumeName{}})
	if len(status.VolumesInUse) != 0 {
		t.Errorf("volumes in use kept: %v", status.VolumesInUse)
	}
}
