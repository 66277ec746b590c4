// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// nodesUsers are the users of a pod without a user namespace of its own.
var nodesUsers = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}

func TestContainerSecurity(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		HostPID: true,
		SecurityContext: &v1.PodSecurityContext{
			RunAsUser: ptr.To[int64](1000), RunAsGroup: ptr.To[int64](2000), FSGroup: ptr.To[int64](3000), SupplementalGroups: []int64{4000},
			SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict),
			SeccompProfile:           &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			SELinuxOptions:           &v1.SELinuxOptions{Level: "s0"},
		},
	}}
	c := &v1.Container{Name: "c", SecurityContext: &v1.SecurityContext{
		RunAsUser: ptr.To[int64](0), Privileged: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:   &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("p/x.json")},
		ProcMount:      ptr.To(v1.UnmaskedProcMount),
	}}
	got, err := ContainerSecurity(p, c, ImageUser{Name: "ignored"}, SecurityOptions{ExtraGroups: []int64{5}, SeccompRoot: "/s"})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:       &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}},
		Privileged:         true,
		NamespaceOptions:   &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE, UsernsOptions: nodesUsers},
		SelinuxOptions:     &runtimeapi.SELinuxOption{Level: "s0"},
		RunAsUser:          &runtimeapi.Int64Value{Value: 0},
		RunAsGroup:         &runtimeapi.Int64Value{Value: 2000},
		ReadonlyRootfs:     true,
		SupplementalGroups: []int64{3000, 4000, 5}, SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		NoNewPrivs: true,
		Seccomp:    &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/s/p/x.json"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	plain, err := ContainerSecurity(&v1.Pod{}, &v1.Container{}, ImageUser{Name: "app"}, SecurityOptions{ExtraMaskedPaths: []string{"/x"}})
	if err != nil {
		t.Fatal(err)
	}
	if plain.RunAsUsername != "app" || plain.RunAsUser != nil || plain.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined ||
		plain.NamespaceOptions.Pid != runtimeapi.NamespaceMode_CONTAINER || len(plain.ReadonlyPaths) != 5 || plain.MaskedPaths[len(plain.MaskedPaths)-1] != "/x" {
		t.Errorf("defaults: %v", plain)
	}
	if len(maskedPaths) != 12 {
		t.Errorf("masked paths were changed: %v", maskedPaths)
	}
	p.Spec.SecurityContext.SupplementalGroupsPolicy = ptr.To(v1.SupplementalGroupsPolicy("Some"))
	if _, err := ContainerSecurity(p, c, ImageUser{}, SecurityOptions{}); err == nil || !strings.Contains(err.Error(), "supplementalGroupsPolicy") {
		t.Errorf("unknown policy: %v", err)
	}
	c.SecurityContext.SeccompProfile.LocalhostProfile = nil
	if _, err := ContainerSecurity(&v1.Pod{}, c, ImageUser{}, SecurityOptions{}); err == nil {
		t.Error("Localhost without a profile is accepted")
	}
}

func TestSandboxSecurity(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		HostNetwork: true, HostIPC: true, ShareProcessNamespace: ptr.To(true),
		SecurityContext: &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1), SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}},
		InitContainers:  []v1.Container{{SecurityContext: &v1.SecurityContext{Privileged: ptr.To(true)}}},
	}}
	got, err := SandboxSecurity(p, SecurityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_POD, UsernsOptions: nodesUsers},
		RunAsUser:        &runtimeapi.Int64Value{Value: 1}, Privileged: true,
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestAppArmor(t *testing.T) {
	c := &v1.Container{Name: "c"}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "localhost/mine"}}}
	p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
	profile, old, err := AppArmorProfile(p, c)
	if err != nil || old != "localhost/mine" || profile.LocalhostRef != "mine" {
		t.Errorf("annotation: %v %q %v", profile, old, err)
	}
	c.SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	if _, old, _ := AppArmorProfile(p, c); old != "runtime/default" {
		t.Errorf("field: %q", old)
	}
	if _, old, _ := AppArmorProfile(p, &v1.Container{Name: "d"}); old != "unconfined" {
		t.Errorf("pod: %q", old)
	}
	if profile, _, _ := AppArmorProfile(&v1.Pod{}, c.DeepCopy()); profile == nil {
		t.Error("container field is not looked at")
	}
	if profile, _, _ := AppArmorProfile(&v1.Pod{}, &v1.Container{}); profile != nil {
		t.Errorf("nothing set: %v", profile)
	}
}

func TestVerifyNonRoot(t *testing.T) {
	yes := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}, Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}}}
	c := &v1.Container{Name: "c"}
	root := &v1.Container{Name: "c", SecurityContext: &v1.SecurityContext{RunAsUser: ptr.To[int64](0)}}
	for _, tt := range []struct {
		pod  *v1.Pod
		c    *v1.Container
		user ImageUser
		want string
	}{
		{&v1.Pod{}, c, ImageUser{UID: ptr.To[int64](0)}, ""},
		{yes, c, ImageUser{UID: ptr.To[int64](1)}, ""},
		{yes, c, ImageUser{}, ""},
		{yes, c, ImageUser{UID: ptr.To[int64](0)}, `container has runAsNonRoot and image will run as root (pod: "p_n(u)", container: c)`},
		{yes, c, ImageUser{UID: ptr.To[int64](1 << 40)}, `container has runAsNonRoot and image has an invalid user id (1099511627776) (pod: "p_n(u)", container: c)`},
		{yes, c, ImageUser{Name: "app"}, `container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root (pod: "p_n(u)", container: c)`},
		{yes, root, ImageUser{UID: ptr.To[int64](1)}, `container's runAsUser breaks non-root policy (pod: "p_n(u)", container: c)`},
	} {
		got := ""
		if err := VerifyNonRoot(tt.pod, tt.c, tt.user); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestSysctls(t *testing.T) {
	if got := len(SafeSysctls("6.1.0-18-amd64")); got != 12 {
		t.Errorf("%d safe sysctls on a current kernel", got)
	}
	if got := len(SafeSysctls("4.4.0")); got != 6 {
		t.Errorf("%d safe sysctls on 4.4", got)
	}
	if got := len(SafeSysctls("?")); got != 5 {
		t.Errorf("%d safe sysctls on an unknown kernel", got)
	}
	a, err := NewSysctlAllowlist(append(SafeSysctls("6.1"), "kernel.msg*", "net.core.*")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                 string
		hostNetwork, hostIPC bool
		want                 string
	}{
		{name: "net.ipv4.tcp_syncookies"},
		{name: "net/ipv4/tcp_syncookies"},
		{name: "net.core.somaxconn"},
		{name: "kernel.msgmax"},
		{name: "kernel.sem", want: `forbidden sysctl: "kernel.sem" not allowlisted`},
		{name: "net.ipv4.tcp_syncookies", hostNetwork: true, want: `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{name: "kernel.msgmax", hostIPC: true, want: `forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled`},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{HostNetwork: tt.hostNetwork, HostIPC: tt.hostIPC, SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: tt.name}}}}}
		got := ""
		if err := a.Check(p); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, bad := range []string{"vm.swappiness", "", "*", "vm.*"} {
		if _, err := NewSysctlAllowlist(bad); err == nil {
			t.Errorf("pattern %q is accepted", bad)
		}
	}
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/core/somaxconn", Value: "1"}}}}}
	if diff := cmp.Diff(map[string]string{"net.core.somaxconn": "1"}, Sysctls(p)); diff != "" {
		t.Error(diff)
	}
}

func TestTerminationMessages(t *testing.T) {
	if a, b := JoinTerminationMessage("r", "o"), JoinTerminationMessage("", "o"); a != "r: o" || b != "o" {
		t.Errorf("joined %q, %q", a, b)
	}
}
