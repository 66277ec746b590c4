// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestCheckUID(t *testing.T) {
	for uid, ok := range map[string]bool{
		"8f6a7b1e-2c3d-4e5f-8a9b-0c1d2e3f4a5b": true, "a0c1f1d2e3": true, "my-pod.1": true, strings.Repeat("u", 200): true,
		"": false, ".": false, "..": false, "../../etc": false, "a/b": false, "a\x00b": false, "a\nb": false, "a_b": false,
		".hidden": false, "\xff": false, "\u202e": false, strings.Repeat("u", 201): false,
	} {
		if err := CheckUID(types.UID(uid)); (err == nil) != ok {
			t.Errorf("%q: %v", uid, err)
		}
	}
}

func TestFullName(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", UID: "u-1"}}
	if got := FullName(p); got != "web-1_shop" {
		t.Errorf("FullName = %q", got)
	}
	if got := String(p); got != "web-1_shop(u-1)" {
		t.Errorf("String = %q", got)
	}
}

func TestKindsOfPods(t *testing.T) {
	with := func(annotations map[string]string, priority *int32, class string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: v1.PodSpec{Priority: priority, PriorityClassName: class}}
	}
	tests := []struct {
		name                                   string
		pod                                    *v1.Pod
		static, mirror, critical, nodeCritical bool
	}{
		{name: "plain", pod: with(nil, nil, "")},
		{name: "api", pod: with(map[string]string{ConfigSourceAnnotation: "api"}, nil, "")},
		{name: "file", pod: with(map[string]string{ConfigSourceAnnotation: "file"}, nil, ""), static: true, critical: true},
		{name: "http", pod: with(map[string]string{ConfigSourceAnnotation: "http"}, nil, SystemNodeCritical), static: true, critical: true, nodeCritical: true},
		{name: "mirror", pod: with(map[string]string{ConfigMirrorAnnotation: "h", ConfigSourceAnnotation: "api"}, nil, ""), mirror: true, critical: true},
		{name: "just below", pod: with(nil, ptr.To(SystemCriticalPriority-1), SystemNodeCritical)},
		{name: "critical", pod: with(nil, ptr.To(SystemCriticalPriority), "system-cluster-critical"), critical: true},
	}
	for _, tt := range tests {
		got := []bool{IsStatic(tt.pod), IsMirror(tt.pod), IsCritical(tt.pod), IsNodeCritical(tt.pod)}
		if diff := cmp.Diff([]bool{tt.static, tt.mirror, tt.critical, tt.nodeCritical}, got); diff != "" {
			t.Errorf("%s: static, mirror, critical, node critical:\n%s", tt.name, diff)
		}
	}
}

func TestContainers(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
		Containers:          []v1.Container{{Name: "c"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}}
	type part struct {
		Kind ContainerKind
		Name string
	}
	var got []part
	for kind, c := range Containers(p) {
		got = append(got, part{kind, c.Name})
	}
	want := []part{{Init, "i"}, {Sidecar, "s"}, {Regular, "c"}, {Ephemeral, "e"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for range Containers(p) {
		break // must not go on
	}
	c, _ := FindContainer(p, "c")
	if c != &p.Spec.Containers[0] {
		t.Error("FindContainer copies")
	}
	for name, want := range map[string]string{
		"i": "spec.initContainers{i}", "s": "spec.initContainers{s}", "c": "spec.containers{c}", "e": "spec.ephemeralContainers{e}", "x": "",
	} {
		if got := ContainerFieldPath(p, name); got != want {
			t.Errorf("ContainerFieldPath(%s) = %q, want %q", name, got, want)
		}
	}
}

// The hashes were computed by the kubelet v1.36.3.
func TestContainerHash(t *testing.T) {
	for _, tt := range []struct {
		name, image string
		want        uint64
	}{
		{"c", "nginx", 0x4611fea5},
		{"etcd", "registry.k8s.io/etcd:3.6.5-0", 0x5a6992ae},
		{"a<b>&", "x\u2028y", 0xd6ac1897},
	} {
		if got := ContainerHash(&v1.Container{Name: tt.name, Image: tt.image, Command: []string{"ignored"}}); got != tt.want {
			t.Errorf("ContainerHash(%q, %q) = %x, want %x", tt.name, tt.image, got, tt.want)
		}
	}
}

func TestLabelsAndAnnotations(t *testing.T) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "u", DeletionGracePeriodSeconds: ptr.To[int64](5),
			Labels: map[string]string{"app": "web", PodNameLabel: "forged"}, Annotations: map[string]string{"a": "b"},
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](30)},
	}
	c := &v1.Container{
		Name: "c", Image: "nginx", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sleep", "1"}}}},
		Ports:     []v1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: v1.ProtocolTCP}},
	}
	if diff := cmp.Diff(map[string]string{
		"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u",
	}, SandboxLabels(p)); diff != "" {
		t.Error("sandbox labels:\n" + diff)
	}
	annotations, err := ContainerAnnotations(p, c, 3, map[string]string{"device": "x", HashAnnotation: "forged"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"device":                                           "x",
		"io.kubernetes.container.hash":                     "4611fea5",
		"io.kubernetes.container.restartCount":             "3",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.container.preStopHandler":           `{"exec":{"command":["sleep","1"]}}`,
		"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":80,"protocol":"TCP"}]`,
		"io.kubernetes.pod.deletionGracePeriod":            "5",
		"io.kubernetes.pod.terminationGracePeriod":         "30",
	}, annotations); diff != "" {
		t.Error("container annotations:\n" + diff)
	}
	got, err := ParseContainer(ContainerLabels(p, c), annotations)
	if err != nil {
		t.Fatal(err)
	}
	want := ContainerInfo{
		Pod: SandboxInfo{"web", "default", "u"}, Name: "c", Hash: 0x4611fea5, RestartCount: 3,
		DeletionGrace: ptr.To[int64](5), TerminationGrace: ptr.To[int64](30),
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		PreStop: c.Lifecycle.PreStop, Ports: c.Ports,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("parsed back:\n" + diff)
	}
}

func TestParseContainerTolerates(t *testing.T) {
	labels := map[string]string{PodNameLabel: "p", PodNamespaceLabel: "n", PodUIDLabel: "u", ContainerNameLabel: "c"}
	got, err := ParseContainer(labels, map[string]string{
		HashAnnotation: "zz", RestartCountAnnotation: "2", PortsAnnotation: "{", PreStopHandlerAnnotation: "[]", DeletionGracePeriodAnnotation: "soon",
	})
	if err == nil || errors.Is(err, ErrNotOurs) {
		t.Errorf("err = %v, want the broken annotations named", err)
	}
	if got.RestartCount != 2 || got.Hash != 0 || got.Ports != nil || got.PreStop != nil || got.DeletionGrace != nil {
		t.Errorf("got %+v", got)
	}
	if got, err := ParseContainer(labels, nil); err != nil || got.Name != "c" {
		t.Errorf("without annotations: %+v, %v", got, err)
	}
	for missing := range labels {
		some := map[string]string{}
		for k, v := range labels {
			if k != missing {
				some[k] = v
			}
		}
		if _, err := ParseContainer(some, nil); !errors.Is(err, ErrNotOurs) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}
