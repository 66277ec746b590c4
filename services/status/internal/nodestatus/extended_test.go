// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestTakenOff: an extended resource that somebody takes off the capacity of a Node is gone
// from both lists, and not there with nothing.
func TestTakenOff(t *testing.T) {
	own := list("cpu", "2", "memory", "1Gi", "pods", "110")
	in := Input{Name: "n", Now: now, Resources: &Resources{Capacity: own, Allocatable: own}}
	in.Old.Capacity = own.DeepCopy()
	in.Old.Capacity["example.com/dongle"] = resource.MustParse("4")
	in.Old = Render(in)
	if q := in.Old.Allocatable["example.com/dongle"]; q.String() != "4" {
		t.Fatalf("allocatable %v", in.Old.Allocatable)
	}
	delete(in.Old.Capacity, "example.com/dongle")
	out := Render(in)
	for _, l := range []v1.ResourceList{out.Capacity, out.Allocatable} {
		if _, ok := l["example.com/dongle"]; ok || len(l) != 3 {
			t.Errorf("%v", l)
		}
	}
	in.Old, in.Resources = out, &Resources{Capacity: own, Allocatable: own.DeepCopy()}
	in.Resources.Allocatable["example.com/gpu"] = resource.MustParse("1")
	out = Render(in)
	for _, l := range []v1.ResourceList{out.Capacity, out.Allocatable} {
		if q, ok := l["example.com/gpu"]; !ok || !q.IsZero() {
			t.Errorf("the node's own is not there with nothing: %v", l)
		}
	}
}

// TestChanged: what somebody changes the capacity of an extended resource to is allocatable.
func TestChanged(t *testing.T) {
	const dongle = "example.com/dongle"
	own := list("cpu", "2", "memory", "1Gi", "pods", "110")
	in := Input{Name: "n", Now: now, Resources: &Resources{Capacity: own, Allocatable: list("cpu", "1", "memory", "1Gi", "pods", "110")}}
	for _, count := range []string{"4", "8", "2", "0", "1"} {
		in.Old.Capacity = in.Old.Capacity.DeepCopy()
		if in.Old.Capacity == nil {
			in.Old.Capacity = v1.ResourceList{}
		}
		in.Old.Capacity[dongle] = resource.MustParse(count)
		in.Old = Render(in)
		capacity, allocatable := in.Old.Capacity[dongle], in.Old.Allocatable[dongle]
		if capacity.String() != count || allocatable.String() != count {
			t.Errorf("capacity %s and allocatable %s of %s", capacity.String(), allocatable.String(), count)
		}
		if cpu := in.Old.Allocatable["cpu"]; cpu.String() != "1" {
			t.Errorf("the node's own is allocatable as %s", cpu.String())
		}
	}
}
