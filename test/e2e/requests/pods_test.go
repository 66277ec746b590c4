// SPDX-License-Identifier: Apache-2.0

package requests_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/images"
)

// Images of the runtime.
const (
	server  = images.Pause
	task    = "sextant.local/task:v1"
	user    = "sextant.local/user:v1"   // runs as a user by name
	number  = "sextant.local/uid:v1"    // runs as a user by number
	locked  = "sextant.local/locked:v1" // needs a login
	nowhere = "sextant.local/nowhere:v1"
)

// maker makes random pods.
type maker struct {
	*rand.Rand
	number int
	dir    string // for volumes of the host
}

// newMaker makes pods that depend on seed and number alone.
func newMaker(seed uint64, n int, dir string) *maker {
	return &maker{rand.New(rand.NewPCG(seed, uint64(n))), n, dir}
}

// one reports true once in n times.
func (m *maker) one(n int) bool { return m.IntN(n) == 0 }

func pick[T any](m *maker, all ...T) T { return all[m.IntN(len(all))] }

// some is a random part of all, in their order.
func some[T any](m *maker, all ...T) (few []T) {
	for _, x := range all {
		if m.one(2) {
			few = append(few, x)
		}
	}
	return few
}

func maybe[T any](m *maker, n int, value T) *T {
	if m.one(n) {
		return &value
	}
	return nil
}

// pod is a random pod.
func (m *maker) pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "random", "quoted": "a-b.c_d"}}}
	if m.one(3) {
		p.Annotations = map[string]string{"note": "two\nlines", "example.com/key": "a \"quoted\" value $(HOME)"}
	}
	s := &p.Spec
	s.RestartPolicy = pick(m, corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	s.TerminationGracePeriodSeconds = maybe(m, 2, int64(m.IntN(20)+1))
	s.AutomountServiceAccountToken = maybe(m, 3, m.one(2))
	s.EnableServiceLinks = maybe(m, 2, m.one(2))
	m.names(s)
	m.namespaces(s)
	if m.one(2) {
		s.SecurityContext = m.podSecurity()
	}
	if m.one(4) {
		s.Overhead = nil
		s.RuntimeClassName = new(pick(m, "plain", "heavy"))
	}
	if m.one(12) {
		s.OS = &corev1.PodOS{Name: corev1.Linux}
	}
	if m.one(5) {
		s.PriorityClassName = pick(m, "system-node-critical", "system-cluster-critical", "high")
	}
	if m.one(4) {
		s.ImagePullSecrets = some(m, corev1.LocalObjectReference{Name: "login"}, corev1.LocalObjectReference{Name: "no-such-login"})
	}
	m.volumes(p)
	for i := range m.IntN(3) {
		c := m.container(fmt.Sprintf("init-%d", i), s)
		if m.one(3) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		} else { // it ends, if it has an image
			c.Lifecycle, c.Command = nil, nil
			if c.Image != locked && c.Image != nowhere {
				c.Image, c.ImagePullPolicy = task, corev1.PullIfNotPresent
			}
		}
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range m.IntN(2) + 1 {
		s.Containers = append(s.Containers, m.container(fmt.Sprintf("main-%d", i), s))
	}
	if m.one(5) {
		s.Resources = &corev1.ResourceRequirements{Requests: amounts(m, true), Limits: nil}
		if m.one(2) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("900Mi")}
		}
	}
	return p
}

// names is what the pod is called, and how it finds others.
func (m *maker) names(s *corev1.PodSpec) {
	if m.one(4) {
		s.Hostname = pick(m, "web", strings.Repeat("h", 63))
	}
	if m.one(8) {
		s.HostnameOverride = new("other.name")
	}
	if m.one(4) {
		s.Subdomain = pick(m, "sub", strings.Repeat("s", 60))
	}
	s.SetHostnameAsFQDN = maybe(m, 5, m.one(2))
	if m.one(4) {
		s.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"one", "two.example"}}, {IP: "2001:db8::7", Hostnames: []string{"six"}}}
	}
	s.DNSPolicy = pick(m, corev1.DNSClusterFirst, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSClusterFirstWithHostNet)
	if m.one(3) {
		s.DNSConfig = &corev1.PodDNSConfig{
			Nameservers: some(m, "192.0.2.53", "2001:db8::53", "192.0.2.54"), Searches: some(m, "example.org", "a.example", "."),
			Options: some(m, corev1.PodDNSConfigOption{Name: "ndots", Value: new("3")}, corev1.PodDNSConfigOption{Name: "edns0"}, corev1.PodDNSConfigOption{Name: "timeout", Value: new("1")}),
		}
		if len(s.DNSConfig.Nameservers) > 0 && m.one(3) {
			s.DNSPolicy = corev1.DNSNone
		}
	}
}

// namespaces are those of the kernel that the pod shares.
func (m *maker) namespaces(s *corev1.PodSpec) {
	s.HostNetwork, s.HostPID, s.HostIPC = m.one(7), m.one(8), m.one(8)
	if !s.HostPID {
		s.ShareProcessNamespace = maybe(m, 5, m.one(2))
	}
	if !s.HostNetwork && !s.HostPID && !s.HostIPC {
		s.HostUsers = maybe(m, 6, m.one(3))
	}
}

func (m *maker) seccomp() *corev1.SeccompProfile {
	switch m.IntN(4) {
	case 0:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	case 1:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	case 2:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("profiles/audit.json")}
	}
	return nil
}

func (m *maker) selinux() *corev1.SELinuxOptions {
	if !m.one(5) {
		return nil
	}
	return &corev1.SELinuxOptions{Level: pick(m, "", "s0:c1,c2"), Role: pick(m, "", "system_r"), Type: pick(m, "", "container_t"), User: pick(m, "", "system_u")}
}

func (m *maker) apparmor() *corev1.AppArmorProfile {
	switch m.IntN(20) {
	case 0:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case 1:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case 2:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("mine")}
	}
	return nil
}

func (m *maker) podSecurity() *corev1.PodSecurityContext {
	sc := &corev1.PodSecurityContext{
		RunAsUser: maybe(m, 4, pick(m, int64(0), int64(1000), int64(65534))), RunAsGroup: maybe(m, 4, pick(m, int64(0), int64(2000))),
		RunAsNonRoot: maybe(m, 5, m.one(2)), FSGroup: maybe(m, 3, pick(m, int64(0), int64(3000))),
		SeccompProfile: m.seccomp(), SELinuxOptions: m.selinux(), AppArmorProfile: m.apparmor(),
	}
	if m.one(3) {
		sc.SupplementalGroups = some(m, int64(4000), int64(0), int64(4001), int64(4000))
		sc.SupplementalGroupsPolicy = maybe(m, 2, pick(m, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict))
	}
	if sc.FSGroup != nil {
		sc.FSGroupChangePolicy = maybe(m, 2, pick(m, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch))
	}
	if m.one(4) {
		sc.Sysctls = some(m, corev1.Sysctl{Name: "net.ipv4.ip_local_port_range", Value: "1024 65000"}, corev1.Sysctl{Name: "kernel.shm_rmid_forced", Value: "1"},
			corev1.Sysctl{Name: "net/ipv4/tcp_syncookies", Value: "0"}, corev1.Sysctl{Name: "net.core.somaxconn", Value: "99"})
	}
	return sc
}

func (m *maker) security() *corev1.SecurityContext {
	sc := &corev1.SecurityContext{
		RunAsUser: maybe(m, 4, pick(m, int64(0), int64(1001))), RunAsGroup: maybe(m, 5, pick(m, int64(0), int64(2001))), RunAsNonRoot: maybe(m, 5, m.one(2)),
		Privileged: maybe(m, 5, m.one(2)), ReadOnlyRootFilesystem: maybe(m, 3, m.one(2)), AllowPrivilegeEscalation: maybe(m, 3, m.one(2)),
		SeccompProfile: m.seccomp(), SELinuxOptions: m.selinux(), AppArmorProfile: m.apparmor(),
	}
	if m.one(3) {
		sc.Capabilities = &corev1.Capabilities{
			Add: some(m, corev1.Capability("NET_ADMIN"), "CAP_SYS_TIME", "ALL"), Drop: some(m, corev1.Capability("ALL"), "NET_RAW", "CAP_CHOWN"),
		}
	}
	if m.one(6) {
		sc.ProcMount = new(pick(m, corev1.DefaultProcMount, corev1.UnmaskedProcMount))
	}
	if sc.Privileged != nil && *sc.Privileged || sc.Capabilities != nil {
		sc.AllowPrivilegeEscalation = nil
	}
	return sc
}

// amounts are requests; cpu and memory are both there if all.
func amounts(m *maker, all bool) corev1.ResourceList {
	list := corev1.ResourceList{}
	if all || m.one(2) {
		list[corev1.ResourceCPU] = resource.MustParse(pick(m, "1m", "2m", "3m", "5m", "10m", "17m"))
	}
	if all || m.one(2) {
		list[corev1.ResourceMemory] = resource.MustParse(pick(m, "1Mi", "10M", "6Mi", "12345678"))
	}
	return list
}

func (m *maker) resources() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	if m.one(3) {
		return r
	}
	r.Requests = amounts(m, false)
	if m.one(4) {
		r.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse("1Mi")
	}
	switch m.IntN(3) {
	case 0:
		r.Limits = r.Requests.DeepCopy()
	case 1:
		r.Limits = corev1.ResourceList{}
		for name, q := range r.Requests {
			q.Add(q)
			r.Limits[name] = q
		}
	}
	if m.one(4) {
		r.Requests = nil
	}
	return r
}

// container is a random container of a pod that has its volumes already.
func (m *maker) container(name string, s *corev1.PodSpec) corev1.Container {
	c := corev1.Container{
		Name: name, Image: pick(m, server, server, server, user, number), ImagePullPolicy: pick(m, corev1.PullIfNotPresent, corev1.PullIfNotPresent, corev1.PullNever),
		WorkingDir: pick(m, "", "", "/work", "/a b"), Stdin: m.one(8), TTY: m.one(8), Resources: m.resources(),
		TerminationMessagePath: pick(m, "", "", "/dev/end", "/a/b/end"), TerminationMessagePolicy: pick(m, "", corev1.TerminationMessageFallbackToLogsOnError),
	}
	switch {
	case m.one(6): // has to be pulled, and is no other pod's
		c.Image = fmt.Sprintf("sextant.local/own-%d-%d%s", m.number, len(s.Containers)+len(s.InitContainers)*10, pick(m, "", ":v2"))
		c.ImagePullPolicy = pick(m, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	case m.one(20):
		c.Image, c.ImagePullPolicy = locked, corev1.PullIfNotPresent
	case m.one(30):
		c.Image = nowhere
	}
	c.StdinOnce = c.Stdin && m.one(2)
	m.env(&c, s)
	if m.one(3) {
		c.Command = []string{"/bin/sh", "-c", "trap 'exit 0' TERM; sleep infinity", "$(PLAIN)$(NONE)"}
		c.Args = some(m, "$(PLAIN)", "$$(PLAIN)", "$(NONE)", "a b", "$(CHAIN)x", "$(", "$$", "$(POD_NAME)")
	} else if m.one(3) {
		c.Args = some(m, "$(PLAIN)", "--flag=$(CHAIN)", "$(NONE)", "$$(PLAIN)$(PLAIN)")
	}
	if m.one(2) {
		c.SecurityContext = m.security()
	}
	if m.one(4) {
		c.Ports = some(m, corev1.ContainerPort{Name: "web", ContainerPort: 8080}, corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolUDP},
			corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolTCP, HostIP: "127.0.0.9", HostPort: int32(20000 + m.number)}, corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolSCTP})
	}
	if m.one(6) {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		if m.one(2) {
			c.Lifecycle.PostStart = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
		}
	}
	if m.one(6) && strings.HasPrefix(name, "main") {
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	}
	m.mounts(&c, s)
	return c
}
