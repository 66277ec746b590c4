// SPDX-License-Identifier: Apache-2.0

package netfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestHosts(t *testing.T) {
	got := string(Hosts([]string{"10.0.0.5", "fd00::5"}, Hostname{Host: "web-0", Domain: "web.ns.svc.cluster.local"},
		[]v1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"a", "b.c"}}}))
	want := `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
10.0.0.5	web-0.web.ns.svc.cluster.local	web-0
fd00::5	web-0.web.ns.svc.cluster.local	web-0

# Entries added by HostAliases.
192.0.2.9	a	b.c
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := string(Hosts([]string{"10.0.0.5"}, Hostname{Host: "web"}, nil)); !strings.HasSuffix(got, "allrouters\n10.0.0.5\tweb\n") {
		t.Errorf("without a domain: %q", got)
	}
	want = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"
	if got := string(HostsHostNetwork([]byte("127.0.0.1 node\n"), nil)); got != want {
		t.Errorf("host network: %q", got)
	}
	if NeedsHosts(&v1.Container{VolumeMounts: []v1.VolumeMount{{MountPath: "/etc/hosts"}}}) || !NeedsHosts(&v1.Container{VolumeMounts: []v1.VolumeMount{{MountPath: "/etc/hosts.d"}}}) {
		t.Error("NeedsHosts")
	}
}

func TestPodHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	fqdn := ptr.To(true)
	tests := []struct {
		name           string
		podName        string
		spec           v1.PodSpec
		host, domain   string
		kernel, failed string
	}{
		{name: "the pod's name", podName: "web-1", host: "web-1", kernel: "web-1"},
		{name: "cut", podName: long, host: strings.Repeat("a", 62), kernel: strings.Repeat("a", 62)},
		{name: "hostname and subdomain", podName: "p", spec: v1.PodSpec{Hostname: "h", Subdomain: "s"}, host: "h", domain: "s.ns.svc.cluster.local", kernel: "h"},
		{name: "as FQDN", podName: "p", spec: v1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: fqdn}, host: "h", domain: "s.ns.svc.cluster.local", kernel: "h.s.ns.svc.cluster.local"},
		{name: "FQDN without a domain", podName: "p", spec: v1.PodSpec{SetHostnameAsFQDN: fqdn}, host: "p", kernel: "p"},
		{name: "FQDN too long", podName: strings.Repeat("p", 50), spec: v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: fqdn}, host: strings.Repeat("p", 50), domain: "s.ns.svc.cluster.local",
			failed: "is too long (64 characters is the max, 73 characters requested)"},
		{name: "override", podName: "p", spec: v1.PodSpec{Hostname: "h", Subdomain: "s", HostnameOverride: ptr.To("a.b.c")}, host: "a.b.c", kernel: "a.b.c"},
		{name: "bad hostname", podName: "p", spec: v1.PodSpec{Hostname: "a.b"}, failed: `pod Hostname "a.b" is not a valid DNS label`},
		{name: "bad subdomain", podName: "p", spec: v1.PodSpec{Subdomain: "A"}, failed: `pod Subdomain "A" is not a valid DNS label`},
		{name: "bad override", podName: "p", spec: v1.PodSpec{HostnameOverride: ptr.To("_")}, failed: `pod HostnameOverride "_" is not a valid DNS subdomain`},
	}
	for _, tt := range tests {
		h, err := PodHostname(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tt.podName, Namespace: "ns"}, Spec: tt.spec}, "cluster.local")
		var kernel string
		if err == nil {
			kernel, err = h.Kernel(tt.spec.SetHostnameAsFQDN)
		}
		if h.Host != tt.host || h.Domain != tt.domain || kernel != tt.kernel {
			t.Errorf("%s: %+v, kernel %q", tt.name, h, kernel)
		}
		if (err != nil) != (tt.failed != "") || !strings.Contains(fmt.Sprint(err), tt.failed) {
			t.Errorf("%s: err = %v, want %q", tt.name, err, tt.failed)
		}
	}
}

func TestParseResolv(t *testing.T) {
	got, err := ParseResolv([]byte("# c\n#nameserver 192.0.2.1\nnameserver 192.0.2.2 ignored\n  nameserver fd00::1\r\n" +
		"search a. .\nsearch corp.example. . lan\noptions ndots:1 rotate\noptions ndots:2 :5 : timeout:3 a:b:c\nsortlist x\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Resolv{Nameservers: []string{"192.0.2.2", "fd00::1"}, Searches: []string{"corp.example", "lan"}, Options: []string{"ndots:2", "rotate", "timeout:3", "a:b:c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseResolv([]byte("nameserver\n")); err == nil {
		t.Error("a nameserver line without an address is accepted")
	}
	if _, err := ParseResolv(make([]byte, MaxResolvConf+1)); err == nil {
		t.Error("a file of more than 10 MiB is accepted")
	}
}

func TestDNS(t *testing.T) {
	node := &Resolv{Nameservers: []string{"192.0.2.1"}, Searches: []string{"lan"}, Options: []string{"rotate"}}
	cluster := DNSInput{ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local", Resolv: node}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("d%d.example", i)
	}
	tests := []struct {
		name string
		spec v1.PodSpec
		in   DNSInput
		want string
		warn string
	}{
		{name: "cluster first", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, in: cluster,
			want: "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local lan | ndots:5"},
		{name: "cluster first on the node's network", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true}, in: cluster, want: "192.0.2.1 | lan | rotate"},
		{name: "with host net", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true}, in: cluster,
			want: "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local lan | ndots:5"},
		{name: "default", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, in: cluster, want: "192.0.2.1 | lan | rotate"},
		{name: "no cluster domain", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, in: DNSInput{ClusterDNS: []string{"10.96.0.10"}, Resolv: node}, want: "10.96.0.10 | lan | ndots:5"},
		{name: "no cluster DNS", spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}, in: DNSInput{Resolv: node}, want: "192.0.2.1 | lan | rotate",
			warn: `MissingClusterDNS pod: "p_ns(u)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`},
		{name: "no resolv.conf", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, in: DNSInput{NodeIPs: []string{"192.0.2.1", "fd00::1"}}, want: "127.0.0.1 ::1 | . | "},
		{name: "no resolv.conf, no address", spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, want: "127.0.0.1 | . | "},
		{name: "none", spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Nameservers: []string{"192.0.2.9"}, Options: []v1.PodDNSConfigOption{{Name: "edns0"}}}}, in: cluster,
			want: "192.0.2.9 |  | edns0"},
		{name: "config is added without repeating", in: cluster, want: "10.96.0.10 192.0.2.9 | ns.svc.cluster.local svc.cluster.local cluster.local lan x | ndots:2 edns0",
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, DNSConfig: &v1.PodDNSConfig{
				Nameservers: []string{"10.96.0.10", "192.0.2.9"}, Searches: []string{"lan", "x"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}},
			}}},
		{name: "too many servers", in: DNSInput{Resolv: &Resolv{Nameservers: []string{"1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"}}}, spec: v1.PodSpec{DNSPolicy: v1.DNSDefault},
			want: "1.1.1.1 1.1.1.2 1.1.1.3 |  | ", warn: "DNSConfigForming Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.1.1.1 1.1.1.2 1.1.1.3"},
		{name: "too many searches", in: DNSInput{Resolv: &Resolv{Searches: many}}, spec: v1.PodSpec{DNSPolicy: v1.DNSDefault},
			want: " | " + strings.Join(many[:32], " ") + " | ", warn: "DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(many[:32], " ")},
		{name: "searches too long", in: DNSInput{Resolv: &Resolv{Searches: []string{strings.Repeat("x", 256), "ok"}}}, spec: v1.PodSpec{DNSPolicy: v1.DNSDefault},
			want: " | ok | ", warn: "DNSConfigForming Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ok"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: tt.spec}
			got, warnings := DNS(p, tt.in)
			line := strings.Join(got.Servers, " ") + " | " + strings.Join(got.Searches, " ") + " | " + strings.Join(got.Options, " ")
			if line != tt.want {
				t.Errorf("got  %s\nwant %s", line, tt.want)
			}
			var warn []string
			for _, w := range warnings {
				warn = append(warn, w.Reason+" "+w.Message)
			}
			if got := strings.Join(warn, "; "); got != tt.warn {
				t.Errorf("warned %q, want %q", got, tt.warn)
			}
		})
	}
	if diff := cmp.Diff(&Resolv{Nameservers: []string{"192.0.2.1"}, Searches: []string{"lan"}, Options: []string{"rotate"}}, node); diff != "" {
		t.Errorf("DNS changed its input: %s", diff)
	}
}

func TestSearchLineLength(t *testing.T) {
	long := strings.Repeat("x", 200)
	var searches []string
	for i := range 12 {
		searches = append(searches, fmt.Sprint(long, i))
	}
	got, warnings := DNS(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}}, DNSInput{Resolv: &Resolv{Searches: searches}})
	if n := len(strings.Join(got.Searches, " ")); n > MaxSearchListChars || len(got.Searches) != 10 || len(warnings) != 1 {
		t.Errorf("%d searches, %d characters, %d warnings", len(got.Searches), n, len(warnings))
	}
}

func TestCheckResolv(t *testing.T) {
	if got := CheckResolv("/f", Resolv{Searches: make([]string, 29)}, "cluster.local"); got != "" {
		t.Errorf("29 searches: %s", got)
	}
	if got := CheckResolv("/f", Resolv{Searches: make([]string, 30)}, "cluster.local"); got != "Resolv.conf file '/f' contains search line consisting of more than 29 domains!" {
		t.Errorf("30 searches: %s", got)
	}
	if got := CheckResolv("/f", Resolv{Searches: []string{strings.Repeat("x", 254)}}, ""); !strings.Contains(got, "more than allowed 253 chars") {
		t.Errorf("a long search: %s", got)
	}
	if got := CheckResolv("/f", Resolv{Searches: slicesOf(strings.Repeat("x", 250), 9)}, ""); !strings.Contains(got, "more than allowed 2048 chars") {
		t.Errorf("a long line: %s", got)
	}
}

func slicesOf(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}
