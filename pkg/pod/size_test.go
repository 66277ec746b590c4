// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func sizedPod(t *testing.T, text string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSizesOfAPodMoveToAnother(t *testing.T) {
	small := sizedPod(t, `
spec:
  initContainers: [{name: i, resources: {requests: {cpu: 1}}}]
  containers:
  - {name: a, image: one, resources: {requests: {cpu: 1000m, memory: 64Mi}, limits: {memory: 64Mi, hugepages-2Mi: 4Mi}}}
  - {name: b, image: two}
`)
	large := small.DeepCopy()
	large.Spec.Containers[0].Image = "newer"
	large.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
	large.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"memory": resource.MustParse("1Gi")}}

	same := small.DeepCopy()
	same.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
	if SizesID(small) != SizesID(same) || WithSizes(small, Sizes(same)) != small {
		t.Error("1 and 1000m of CPU differ")
	}
	if SizesID(small) == SizesID(large) {
		t.Error("other resources have the same ID")
	}
	got := WithSizes(large, Sizes(small))
	if SizesID(got) != SizesID(small) || got.Spec.Containers[0].Image != "newer" || got.Spec.Resources != nil {
		t.Errorf("%+v", got.Spec)
	}
	if SizesID(large) == SizesID(small) {
		t.Error("the pod that was given changed")
	}
	var back v1.PodSpec
	data, err := Sizes(large).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if SizesID(WithSizes(small, &back)) != SizesID(large) {
		t.Error("sizes change on the wire")
	}
}

func TestSize(t *testing.T) {
	p := sizedPod(t, `
spec:
  resources: {limits: {cpu: 3, memory: 1Gi}}
  containers:
  - name: a
    resources: {requests: {cpu: 100m, memory: 1Mi}, limits: {memory: 2Mi, hugepages-2Mi: 4Mi}}
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}, {resourceName: cpu, restartPolicy: NotRequired}]
`)
	c := &p.Spec.Containers[0]
	was := SizeOf(p, c)
	if want := (Size{CPURequest: 100, CPULimit: 3000, MemoryRequest: 1 << 20, MemoryLimit: 2 << 20}); was != want {
		t.Fatalf("%+v, want %+v", was, want)
	}
	to := Size{CPURequest: 200, MemoryRequest: 1 << 20, MemoryLimit: 2 << 20}
	grown := Sized(c, to)
	if got := SizeOf(&v1.Pod{}, grown); got != to {
		t.Errorf("%+v, want %+v", got, to)
	}
	if q := grown.Resources.Limits["hugepages-2Mi"]; q.Value() != 4<<20 {
		t.Error("huge pages are lost")
	}
	if SizeOf(p, c) != was {
		t.Error("the container that was given changed")
	}
	if RestartsFor(c, was, to) {
		t.Error("CPU needs no restart")
	}
	if to.MemoryRequest++; !RestartsFor(c, was, to) {
		t.Error("memory needs a restart, also for a request alone")
	}
	if RestartsFor(&v1.Container{}, was, to) {
		t.Error("without a policy nothing needs a restart")
	}
}
