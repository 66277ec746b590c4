// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func podOf(t *testing.T, text string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Namespace, p.Name, p.UID = "ns", "p", "p1"
	return p
}

func TestNeeds(t *testing.T) {
	for name, c := range map[string]struct{ pod, want string }{
		"none":  {`{}`, "[]"},
		"named": {`spec: {resourceClaims: [{name: a, resourceClaimName: gpu}]}`, "[{a gpu false}]"},
		"from a template": {`
spec: {resourceClaims: [{name: a, resourceClaimTemplateName: t}]}
status: {resourceClaimStatuses: [{name: b, resourceClaimName: x}, {name: a, resourceClaimName: p-a-1}]}`, "[{a p-a-1 true}]"},
		"from a template that comes to no claim": {`
spec: {resourceClaims: [{name: a, resourceClaimTemplateName: t}]}
status: {resourceClaimStatuses: [{name: a}]}`, "[]"},
		"not made yet":       {`spec: {resourceClaims: [{name: a, resourceClaimTemplateName: t}]}`, `pod "ns/p": ResourceClaim not created yet`},
		"of a later version": {`spec: {resourceClaims: [{name: a}]}`, `pod "ns/p", spec.resourceClaim "a": none of the supported fields are set`},
		"extended resources": {`status: {extendedResourceClaimStatus: {resourceClaimName: ext}}`, "[{ ext false}]"},
	} {
		needs, err := needsOf(podOf(t, c.pod))
		got := fmt.Sprint(needs)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if uses := Uses(podOf(t, c.pod)); uses != (name != "none") {
			t.Errorf("%s: uses claims: %v", name, uses)
		}
	}
}

func TestUsable(t *testing.T) {
	const allocation = `allocation: {devices: {results: [{driver: b.example}, {driver: a.example}, {driver: b.example}]}}`
	const reserved = `reservedFor: [{resource: pods, name: q, uid: q1}, {resource: pods, name: p, uid: p1}]`
	for name, c := range map[string]struct {
		need   need
		claim  string
		object Object
		want   string
	}{
		"ready":                {claim: `status: {` + reserved + `, ` + allocation + `}`, want: "a.example b.example"},
		"reserved for another": {claim: `status: {reservedFor: [{resource: pods, name: p, uid: p0}], ` + allocation + `}`, want: "pod p (p1) is not allowed to use ResourceClaim gpu (c1)"},
		"not allocated":        {claim: `status: {` + reserved + `}`, want: "ResourceClaim gpu: not allocated"},
		"of the pod": {need: need{generated: true}, want: "a.example b.example",
			claim: `{metadata: {ownerReferences: [{uid: p1, controller: true}]}, status: {` + reserved + `, ` + allocation + `}}`},
		"of another pod": {need: need{generated: true}, want: "ResourceClaim ns/gpu was not created for Pod ns/p (Pod is not owner)",
			claim: `{metadata: {ownerReferences: [{uid: p1}]}, status: {` + reserved + `, ` + allocation + `}}`},
		"absent":    {object: Object{Absent: true}, want: `fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`},
		"forbidden": {object: Object{Err: "forbidden"}, want: "fetch ResourceClaim gpu: forbidden"},
		"not read":  {want: "fetch ResourceClaim gpu: not read from the API server yet"},
	} {
		if c.claim != "" {
			c.object.Claim = &resourceapi.ResourceClaim{}
			if err := yaml.UnmarshalStrict([]byte(c.claim), c.object.Claim); err != nil {
				t.Fatal(err)
			}
			c.object.Claim.Namespace, c.object.Claim.Name, c.object.Claim.UID = "ns", "gpu", "c1"
		}
		c.need.claim = "gpu"
		drivers, err := usable(podOf(t, `{}`), c.need, c.object)
		got := strings.Join(drivers, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestCDIDevices(t *testing.T) {
	p := podOf(t, `
spec:
  resourceClaims: [{name: a, resourceClaimName: gpu}, {name: again, resourceClaimName: gpu}, {name: b, resourceClaimTemplateName: t}]
  initContainers:
  - {name: init, resources: {claims: [{name: b}]}}
  containers:
  - {name: none}
  - {name: whole, resources: {claims: [{name: a}]}}
  - {name: one, resources: {claims: [{name: a, request: big}]}}
  - {name: subrequest, resources: {claims: [{name: a, request: small/cheap}]}}
  - {name: twice, resources: {claims: [{name: a}, {name: again}, {name: b}]}}
  - {name: extended, resources: {requests: {example.com/fpga: 1}}}
  - {name: unasked, resources: {requests: {cpu: 1}}}
status:
  resourceClaimStatuses: [{name: b, resourceClaimName: p-b-1}]
  extendedResourceClaimStatus:
    resourceClaimName: ext
    requestMappings:
    - {containerName: extended, resourceName: example.com/fpga, requestName: r0}
    - {containerName: unasked, resourceName: example.com/fpga, requestName: r1}`)
	claims := map[string]*Claim{
		"gpu": {Drivers: map[string]Driver{
			"b.example": {Devices: []Device{{RequestNames: []string{"big"}, CDIDeviceIDs: []string{"b=1", "b=common"}}, {CDIDeviceIDs: []string{"b=any", "b=common"}}}},
			"a.example": {Devices: []Device{{RequestNames: []string{"small"}, CDIDeviceIDs: []string{"a=1"}}}},
		}},
		"p-b-1": {Drivers: map[string]Driver{"a.example": {Devices: []Device{{RequestNames: []string{"x"}, CDIDeviceIDs: []string{"a=2"}}}}}},
		"ext": {Drivers: map[string]Driver{"f.example": {Devices: []Device{
			{RequestNames: []string{"r0"}, CDIDeviceIDs: []string{"f=0"}}, {RequestNames: []string{"r1"}, CDIDeviceIDs: []string{"f=1"}},
		}}}},
	}
	want := map[string]string{
		"init": "a=2", "none": "", "whole": "a=1 b=1 b=common b=any", "one": "b=1 b=common b=any", "subrequest": "a=1 b=any b=common",
		"twice": "a=1 b=1 b=common b=any a=2", "extended": "f=0", "unasked": "",
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		got := strings.Join(cdiDevices(p, &c, func(name string) *Claim { return claims[name] }), " ")
		if got != want[c.Name] {
			t.Errorf("%s: %s, want %s", c.Name, got, want[c.Name])
		}
	}
}
