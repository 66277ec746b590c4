// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// A newer k8s.io/api may have new fields. Those of the structs in fieldOrders have to be
// added there, at the place the kubelet's internal type has them.
func TestFieldOrdersAreComplete(t *testing.T) {
	moved := []string{"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers"}
	missing := map[reflect.Type][]string{
		reflect.TypeFor[v1.PodSpec]():   append([]string{"DeprecatedServiceAccount"}, moved...),
		reflect.TypeFor[v1.PodStatus](): {"PodIP"},
	}
	added := map[reflect.Type][]string{reflect.TypeFor[v1.PodSecurityContext](): moved}
	for typ, order := range fieldOrders {
		var want []string
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; !slices.Contains(missing[typ], name) {
				want = append(want, name)
			}
		}
		want = append(want, added[typ]...)
		got := slices.Clone(order)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %s:\n%s", typ, diff)
		}
	}
}

func TestFingerprint(t *testing.T) {
	p := &v1.Pod{}
	p.Name = "p"
	p.Annotations = map[string]string{"b": "2", "a": "1", "pod.beta.kubernetes.io/init-containers": "dropped"}
	p.Spec.HostPID = true
	p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{1, 2}}
	p.Spec.Containers = []v1.Container{{Name: "c"}, {Name: "d"}}
	p.Status.PodIP = "192.0.2.1"
	got := string(fingerprint(p))
	for _, want := range []string{
		"(*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} ObjectMeta:(v1.ObjectMeta){Name:(string)p GenerateName:(string) ",
		"Annotations:(map[string]string)map[a:1 b:2] OwnerReferences:([]v1.OwnerReference)<nil>",
		"Containers:([]core.Container)[{Name:(string)c Image:(string) Command:([]string)<nil>",
		"SecurityContext:(*core.PodSecurityContext){HostNetwork:(bool)false HostPID:(bool)true HostIPC:(bool)false ShareProcessNamespace:(*bool)<nil>",
		"SupplementalGroups:([]int64)[1 2]",
		"PodIPs:([]core.PodIP)[{IP:(string)192.0.2.1}] StartTime:(*v1.Time)<nil> QOSClass:(core.PodQOSClass) InitContainerStatuses:",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s\nin %s", want, got)
		}
	}
	if p.Annotations["pod.beta.kubernetes.io/init-containers"] == "" {
		t.Error("fingerprint changed the pod")
	}
}
