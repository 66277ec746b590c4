// SPDX-License-Identifier: Apache-2.0

package downward

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func subject() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u",
			Labels:      map[string]string{"b": "2", "a": `say "hi"`},
			Annotations: map[string]string{"Example.com/Key": "line\nbreak"},
		},
		Spec: v1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "sa",
			Containers: []v1.Container{
				{Name: "c", Resources: v1.ResourceRequirements{
					Requests: list("cpu", "250m", "memory", "64Mi", "hugepages-2Mi", "4Mi"),
					Limits:   list("memory", "100M", "hugepages-2Mi", "4Mi"),
				}},
				{Name: "d"},
			},
			InitContainers: []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Limits: list("cpu", "1500m")}}},
		},
	}
}

func TestEnv(t *testing.T) {
	full := Addresses{PodIPs: []string{"10.0.0.5", "fd00::5"}, HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
	tests := []struct {
		path string
		a    Addresses
		want string
		err  string
	}{
		{"metadata.name", full, "p", ""},
		{"metadata.namespace", full, "ns", ""},
		{"metadata.uid", full, "u", ""},
		{"metadata.labels['a']", full, `say "hi"`, ""},
		{"metadata.labels['none']", full, "", ""},
		{"metadata.annotations['Example.com/Key']", full, "line\nbreak", ""},
		{"spec.nodeName", full, "node-1", ""},
		{"spec.serviceAccountName", full, "sa", ""},
		{"status.podIP", full, "10.0.0.5", ""},
		{"status.podIPs", full, "10.0.0.5,fd00::5", ""},
		{"status.hostIP", full, "192.0.2.1", ""},
		{"status.hostIPs", full, "192.0.2.1,2001:db8::1", ""},
		{"status.podIP", Addresses{}, "", ""},
		{"status.hostIP", Addresses{}, "", "status.hostIP: the node has no address yet"},
		{"status.phase", full, "", "unsupported fieldPath: status.phase"},
		{"metadata.labels['a b']", full, "", "invalid key subscript in metadata.labels['a b']"},
		{"spec.x['a']", full, "", `fieldPath "spec.x['a']" does not support subscript`},
		{"['a']", full, "", "unsupported fieldPath"},
	}
	for _, tt := range tests {
		got, err := Env(subject(), &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: tt.path}, tt.a)
		if got != tt.want || (err != nil) != (tt.err != "") || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%s: %q, %v; want %q, %q", tt.path, got, err, tt.want, tt.err)
		}
	}
	if _, err := Env(subject(), &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}, full); err == nil {
		t.Error("another API version is accepted")
	}
}

func TestResource(t *testing.T) {
	allocatable := list("cpu", "3500m", "memory", "1Gi", "ephemeral-storage", "10Gi")
	tests := []struct {
		container, resource, divisor string
		want                         string
		err                          string
	}{
		{"c", "requests.cpu", "", "1", ""},
		{"c", "requests.cpu", "1m", "250", ""},
		{"c", "requests.memory", "", "67108864", ""},
		{"c", "requests.memory", "1Mi", "64", ""},
		{"c", "limits.memory", "1Mi", "96", ""}, // 95.4 rounded up
		{"c", "limits.cpu", "1m", "3500", ""},   // the node's
		{"c", "limits.cpu", "", "4", ""},
		{"c", "limits.ephemeral-storage", "1Gi", "10", ""},
		{"c", "requests.ephemeral-storage", "", "0", ""},
		{"c", "limits.hugepages-2Mi", "1Mi", "4", ""},
		{"d", "limits.hugepages-2Mi", "", "0", ""}, // never overcommitted
		{"d", "requests.cpu", "", "0", ""},
		{"i", "limits.cpu", "1m", "1500", ""},
		{"x", "limits.cpu", "", "", "container x not found"},
		{"c", "limits.gpu", "", "", "unsupported container resource : limits.gpu"},
		{"c", "cpu", "", "", "unsupported container resource"},
		{"c", "usage.cpu", "", "", "unsupported container resource"},
		{"c", "limits.cpu", "-1", "", "divisor"},
	}
	for _, tt := range tests {
		ref := &v1.ResourceFieldSelector{ContainerName: tt.container, Resource: tt.resource}
		if tt.divisor != "" {
			ref.Divisor = resource.MustParse(tt.divisor)
		}
		got, err := Resource(subject(), nil, ref, allocatable)
		if got != tt.want || (err != nil) != (tt.err != "") || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%s %s / %s: %q, %v; want %q, %q", tt.container, tt.resource, tt.divisor, got, err, tt.want, tt.err)
		}
	}
	if _, err := Resource(subject(), nil, &v1.ResourceFieldSelector{Resource: "limits.cpu"}, allocatable); err == nil {
		t.Error("a volume's reference without a container is accepted")
	}
	p := subject()
	if got, err := Resource(p, &p.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "requests.cpu", Divisor: resource.MustParse("1m")}, nil); got != "250" || err != nil {
		t.Errorf("own container: %q, %v", got, err)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "2", "ephemeral-storage", "1Gi")}
	for resourceName, want := range map[string]string{"limits.cpu": "2", "limits.memory": "1073741824", "limits.ephemeral-storage": "10737418240"} {
		if got, err := Resource(p, nil, &v1.ResourceFieldSelector{ContainerName: "d", Resource: resourceName}, allocatable); got != want || err != nil {
			t.Errorf("pod-level %s: %q, %v", resourceName, got, err)
		}
	}
}

func TestFiles(t *testing.T) {
	items := []v1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "sub/./annotations", Mode: ptr.To[int32](0o400), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
		{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "requests.cpu", Divisor: resource.MustParse("1m")}},
	}
	got, err := Files(subject(), items, 0o644, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]File{
		"labels":          {Data: []byte("a=\"say \\\"hi\\\"\"\nb=\"2\""), Mode: 0o644},
		"sub/annotations": {Data: []byte(`Example.com/Key="line\nbreak"`), Mode: 0o400},
		"cpu":             {Data: []byte("250"), Mode: 0o644},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	items = append(items, v1.DownwardAPIVolumeFile{Path: "x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
		v1.DownwardAPIVolumeFile{Path: "y", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "none", Resource: "limits.cpu"}})
	if got, err := Files(subject(), items, 0o644, nil); err == nil || got != nil || !strings.Contains(err.Error(), "spec.nodeName") || !strings.Contains(err.Error(), "container none not found") {
		t.Errorf("files %v, err %v", got, err)
	}
	if got := Format(nil); got != "" {
		t.Errorf("Format(nil) = %q", got)
	}
}
