// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
	"github.com/sextant-node/sextant/test/standin"
)

// emitted waits for an event about the node.
func (r *rig) emitted(reason, message string) {
	r.Helper()
	r.Eventually("event "+reason+": "+message, func() bool {
		for _, e := range r.events.Items() {
			if e.GetReason() == reason && strings.HasPrefix(e.GetMessage(), message) {
				return true
			}
		}
		return false
	})
}

// TestReservationsAreEnforced: the administrator's cgroups get the bounds of what is
// reserved for them, those that are compressible of CPU only. While one is not there no pod
// is admitted, and it is not made.
func TestReservationsAreEnforced(t *testing.T) {
	r := newRig(t, nil)
	system, kube := r.cgroup.Child("system"), r.cgroup.Child("kube")
	paths := map[string]string{"system": system.Path(pod.Cgroupfs), "kube": kube.Path(pod.Cgroupfs)}
	make := func(name pod.CgroupName) {
		if err := (cgroup.Tree{Driver: pod.Cgroupfs}).Ensure(name, cgroup.Values{}); err != nil {
			t.Fatal(err)
		}
	}
	make(r.cgroup)
	make(system)
	r.configure(func(c *kubeletconfig.Config) {
		k := &c.Kubelet
		k.EnforceNodeAllocatable = []string{"pods", "system-reserved", "kube-reserved-compressible"}
		k.SystemReserved = map[string]string{"cpu": "500m", "memory": "64Mi", "pid": "77"}
		k.KubeReserved = map[string]string{"cpu": "250m", "memory": "32Mi", "pid": "55"}
		k.SystemReservedCgroup, k.KubeReservedCgroup = paths["system"], paths["kube"]
	})
	r.answers()
	r.emitted("NodeAllocatableEnforced", "Updated limits on system reserved cgroup "+paths["system"])
	r.emitted("FailedNodeAllocatableEnforcement", `Failed to enforce Kube Reserved Compressible Cgroup Limits on "`+paths["kube"]+`": cgroup `+paths["kube"])
	r.Eventually("pods wait", func() bool {
		return strings.Contains(decision(r.admit(burstable("u", "1"), false)), "kubeReservedCgroup: cgroup "+paths["kube"])
	})
	if cgrouptest.Exists(t, kube) {
		t.Error("it was made")
	}
	make(kube)
	unbounded := cgrouptest.Value(t, kube, "memory/memory.limit_in_bytes", "memory.max")
	standin.Set(r.House, r.worker, "node", &podworkerv1.NodeState{Reclaimed: timestamppb.Now()}) // has it look
	r.Eventually("admitted", func() bool { return strings.HasPrefix(decision(r.admit(burstable("u", "1"), false)), "admitted") })
	for _, value := range []struct {
		of            pod.CgroupName
		v1, v2        string
		want1, wantV2 string
	}{
		{system, "cpu/cpu.shares", "cpu.weight", "512", "20"},
		{system, "memory/memory.limit_in_bytes", "memory.max", "67108864", "67108864"},
		{system, "pids/pids.max", "pids.max", "77", "77"},
		{kube, "cpu/cpu.shares", "cpu.weight", "256", "10"},
		{kube, "memory/memory.limit_in_bytes", "memory.max", unbounded, unbounded},
		{kube, "pids/pids.max", "pids.max", "max", "max"},
	} {
		want := value.want1
		if cgrouptest.V2() {
			want = value.wantV2
		}
		if got := cgrouptest.Value(t, value.of, value.v1, value.v2); got != want {
			t.Errorf("%s of %s is %s, want %s", value.v1, value.of.Path(pod.Cgroupfs), got, want)
		}
	}
}

// TestMemoryIsKeptFromLowerClasses: qosReserved takes from Burstable pods what Guaranteed
// ones request, from BestEffort ones what both do.
func TestMemoryIsKeptFromLowerClasses(t *testing.T) {
	r := newRig(t, nil)
	r.configure(func(c *kubeletconfig.Config) {
		c.Kubelet.QOSReserved = map[string]string{"memory": "50%"}
		c.Kubelet.FeatureGates = map[string]bool{"QOSReserved": true}
	})
	r.answers()
	r.Eventually("the node's item", func() bool { _, ok := r.node.Get("node"); return ok })
	limit := func(class, want string) {
		r.Helper()
		r.Eventually(class+" has "+want, func() bool {
			return cgrouptest.Value(t, r.kubepods(class), "memory/memory.limit_in_bytes", "memory.max") == want
		})
	}
	limit("burstable", "8589934592")
	guaranteed := sized("g", "1", "2Gi", 1)
	guaranteed.Spec.Containers[0].Resources.Limits = guaranteed.Spec.Containers[0].Resources.Requests
	r.admit(guaranteed, false)
	limit("burstable", "7516192768")
	limit("besteffort", "7516192768")
	r.admit(sized("b", "1", "2Gi", 1), false)
	limit("burstable", "7516192768")
	limit("besteffort", "6442450944")
	r.release("g")
	limit("burstable", "8589934592")
}
