// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestReportedSizes: a pod has what its status reports; where that is the same, as the kernel
// has it, the pod is the one that was given.
func TestReportedSizes(t *testing.T) {
	const made = "containerID: containerd://1, "
	for name, c := range map[string]struct{ asks, status, want string }{
		"no status":      {asks: "requests: {cpu: 2}", want: "requests: {cpu: 2}"},
		"not made":       {asks: "requests: {cpu: 2}", status: "resources: {requests: {cpu: 1}}", want: "requests: {cpu: 2}"},
		"says nothing":   {asks: "requests: {cpu: 2}", status: made, want: "requests: {cpu: 2}"},
		"other CPU":      {asks: "requests: {cpu: 100}", status: made + "resources: {requests: {cpu: 1}}", want: "requests: {cpu: 1}"},
		"written apart":  {asks: "requests: {cpu: 1000m}", status: made + "resources: {requests: {cpu: 1}}", want: "requests: {cpu: 1}"},
		"most CPU":       {asks: "requests: {cpu: 300}", status: made + "resources: {requests: {cpu: 256}}", want: "requests: {cpu: 300}"},
		"other limits":   {asks: "limits: {cpu: 2, memory: 1Gi}", status: made + "resources: {limits: {cpu: 1, memory: 2Gi}}", want: "limits: {cpu: 1, memory: 2Gi}"},
		"other request":  {asks: "requests: {memory: 64M}", status: made + "resources: {requests: {memory: 32Mi}}", want: "requests: {memory: 32Mi}"},
		"same request":   {asks: "requests: {memory: 64Mi}", status: made + "resources: {requests: {memory: 65536Ki}}", want: "requests: {memory: 64Mi}"},
		"no limit on v1": {asks: "limits: {memory: 1Gi}", status: made + "resources: {limits: {memory: 9007199254740988Ki}}", want: "limits: {}"},
		"a new limit":    {asks: "limits: {memory: 1Gi}", status: made + "resources: {}", want: "limits: {}"},
		"inherited":      {asks: "requests: {cpu: 1}", status: made + "resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 9007199254740988Ki}}", want: "requests: {cpu: 1}"},
		"others stay": {asks: "limits: {memory: 1Gi, hugepages-2Mi: 4Mi}", status: made + "resources: {limits: {memory: 2Gi}}",
			want: "limits: {memory: 2Gi, hugepages-2Mi: 4Mi}"},
	} {
		t.Run(name, func(t *testing.T) {
			p := sizedPod(t, `
spec:
  initContainers: [{name: i, resources: {`+c.asks+`}}]
  containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {`+c.asks+`}}]
status:
  initContainerStatuses: [{name: i, `+c.status+`}]
  containerStatuses: [{name: b, `+c.status+`}]
`)
			want := sizedPod(t, `
spec:
  initContainers: [{name: i, resources: {`+c.want+`}}]
  containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {`+c.want+`}}]
`)
			reportsSizes(t, p, want)
		})
	}
}

func TestReportedSizesOfThePod(t *testing.T) {
	const made = "containerStatuses: [{name: a, containerID: x, resources: {}}]"
	for name, c := range map[string]struct{ asks, status, want string }{
		"says nothing": {"requests: {cpu: 2}", made, "requests: {cpu: 2}"},
		"rounded": {
			"requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 3, memory: 1000000000}",
			"allocatedResources: {cpu: 2100m, memory: 1Gi}, resources: {requests: {cpu: 1999m}, limits: {cpu: 3100m, memory: 999997440}}, " + made,
			"requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 3, memory: 1000000000}",
		},
		"others": {
			"requests: {cpu: 100}, limits: {cpu: 100, memory: 1Gi}",
			"allocatedResources: {cpu: 2100m}, resources: {limits: {cpu: 3100m, memory: 2Gi}}, " + made,
			"requests: {cpu: 2}, limits: {cpu: 3, memory: 2Gi}",
		},
		"not made": {"requests: {cpu: 2}", "allocatedResources: {cpu: 1}", "requests: {cpu: 2}"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := func(resources string) string {
				return "spec: {overhead: {cpu: 100m}, containers: [{name: a}], resources: {" + resources + "}}\n"
			}
			reportsSizes(t, sizedPod(t, spec(c.asks)+"status: {"+c.status+"}"), sizedPod(t, spec(c.want)))
		})
	}
}

func reportsSizes(t *testing.T, p, want *v1.Pod) {
	t.Helper()
	asked, got := SizesID(p), p
	if sizes := ReportedSizes(p); sizes != nil {
		got = WithSizes(p, sizes)
	}
	if WithSizes(got, Sizes(want)) != got {
		t.Errorf("%+v, want %+v", Sizes(got), Sizes(want))
	}
	if same := WithSizes(p, Sizes(want)) == p; same != (got == p) {
		t.Errorf("the pod is the same: %t, want %t", got == p, same)
	}
	if SizesID(p) != asked {
		t.Error("the pod that was given changed")
	}
}
