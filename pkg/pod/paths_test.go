package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestLogPaths(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{PodLogDir(DefaultPodLogsDir, "ns", "web", "u-1"), "/var/log/pods/ns_web_u-1"},
		{ContainerLogDir(DefaultPodLogsDir, "ns", "web", "u-1", "c"), "/var/log/pods/ns_web_u-1/c"},
		{ContainerLogPath("c", 2), "c/2.log"},
		{LegacyLogLink(LegacyContainerLogs, "web", "ns", "c", "abcdef"), "/var/log/containers/web_ns_c-abcdef.log"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
	long := LegacyLogLink("/l", strings.Repeat("p", 253), "ns", "c", "abcdef0123456789")
	if got := len(long) - len("/l/"); got != 255 || !strings.HasSuffix(long, ".log") {
		t.Errorf("link name of %d bytes: %s", got, long)
	}
	if id, ok := ParseLegacyLogLink("/var/log/containers/web_ns_c-d-abcdef.log"); !ok || id != "abcdef" {
		t.Errorf("ParseLegacyLogLink = %q, %v", id, ok)
	}
	for _, bad := range []string{"web_ns_c-abcde.log", "web_ns_c-abcdef", "noid.log", ""} {
		if _, ok := ParseLegacyLogLink(bad); ok {
			t.Errorf("ParseLegacyLogLink(%q) accepts it", bad)
		}
	}
}

func TestParseLogNames(t *testing.T) {
	for name, want := range map[string]int{"0.log": 0, "12.log": 12, "3.log.20260101-000000": 3, "3.log.20260101-000000.gz": 3} {
		if got, ok := ParseLogFileName(name); !ok || got != want {
			t.Errorf("ParseLogFileName(%q) = %d, %v", name, got, ok)
		}
	}
	for _, bad := range []string{"", "log", "x.log", "-1.log", "01.log", "1.logs", "1.txt", "1"} {
		if n, ok := ParseLogFileName(bad); ok {
			t.Errorf("ParseLogFileName(%q) = %d", bad, n)
		}
	}
	ns, name, uid, ok := ParsePodLogDir("ns_web_u-1")
	if ns != "ns" || name != "web" || uid != "u-1" || !ok {
		t.Errorf("ParsePodLogDir = %q %q %q %v", ns, name, uid, ok)
	}
	for _, bad := range []string{"", "a_b", "a_b_", "a_b_c_d", "u-1"} {
		if _, _, _, ok := ParsePodLogDir(bad); ok {
			t.Errorf("ParsePodLogDir(%q) accepts it", bad)
		}
	}
}

func TestLayout(t *testing.T) {
	l := Layout{Root: "/r"}
	for _, tt := range []struct{ got, want string }{
		{Layout{}.Pods(), "/var/lib/kubelet/pods"},
		{l.Pod("u"), "/r/pods/u"},
		{l.Volume("u", "kubernetes.io/empty-dir", "v"), "/r/pods/u/volumes/kubernetes.io~empty-dir/v"},
		{l.VolumeDevice("u", "kubernetes.io/csi"), "/r/pods/u/volumeDevices/kubernetes.io~csi"},
		{l.VolumeSubpath("u", "v", "c", 3), "/r/pods/u/volume-subpaths/v/c/3"},
		{l.Plugin("u", "kubernetes.io/empty-dir"), "/r/pods/u/plugins/kubernetes.io~empty-dir"},
		{l.TerminationMessage("u", "c", "0badcafe"), "/r/pods/u/containers/c/0badcafe"},
		{l.EtcHosts("u"), "/r/pods/u/etc-hosts"},
		{l.UserNamespace("u"), "/r/pods/u/userns"},
		{l.GlobalPlugins(), "/r/plugins"},
		{l.PluginsRegistry(), "/r/plugins_registry"},
		{l.PodResources(), "/r/pod-resources"},
		{l.DevicePlugins(), "/r/device-plugins"},
		{l.Checkpoints(), "/r/checkpoints"},
		{l.PKI(), "/r/pki"},
		{l.Seccomp(), "/r/seccomp"},
		{UnescapePluginName("kubernetes.io~csi"), "kubernetes.io/csi"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestCgroupNames(t *testing.T) {
	mine, err := ParseCgroupRoot("/my-root/")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name                      CgroupName
		cgroupfs, systemd, parent string
	}{
		{nil, "/", "/", "-.slice"},
		{KubepodsCgroup(nil), "/kubepods", "/kubepods.slice", "kubepods.slice"},
		{PodCgroupOf(nil, v1.PodQOSGuaranteed, "12-ab"), "/kubepods/pod12-ab", "/kubepods.slice/kubepods-pod12_ab.slice", "kubepods-pod12_ab.slice"},
		{PodCgroupOf(nil, v1.PodQOSBestEffort, "12-ab"), "/kubepods/besteffort/pod12-ab",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12_ab.slice", "kubepods-besteffort-pod12_ab.slice"},
		{PodCgroupOf(mine, v1.PodQOSBurstable, "12-ab"), "/my-root/kubepods/burstable/pod12-ab",
			"/my_root.slice/my_root-kubepods.slice/my_root-kubepods-burstable.slice/my_root-kubepods-burstable-pod12_ab.slice",
			"my_root-kubepods-burstable-pod12_ab.slice"},
	}
	for _, tt := range tests {
		if got := tt.name.Path(Cgroupfs); got != tt.cgroupfs {
			t.Errorf("cgroupfs %q, want %q", got, tt.cgroupfs)
		}
		if got := tt.name.Path(Systemd); got != tt.systemd {
			t.Errorf("systemd %q, want %q", got, tt.systemd)
		}
		if got := tt.name.Parent(Systemd); got != tt.parent {
			t.Errorf("parent %q, want %q", got, tt.parent)
		}
		for _, d := range []CgroupDriver{Cgroupfs, Systemd} {
			if diff := cmp.Diff([]string(tt.name), []string(ParseCgroupPath(tt.name.Path(d), d))); diff != "" {
				t.Errorf("%s: parsed back:\n%s", d, diff)
			}
		}
	}
	if uid, ok := ParsePodCgroup(PodCgroupOf(mine, v1.PodQOSBurstable, "12-ab")); !ok || uid != "12-ab" {
		t.Errorf("ParsePodCgroup = %q, %v", uid, ok)
	}
	for _, not := range []CgroupName{nil, {"kubepods"}, {"kubepods", "burstable"}, {"other", "podx"}, {"kubepods", "pod"}} {
		if uid, ok := ParsePodCgroup(not); ok {
			t.Errorf("ParsePodCgroup(%v) = %q", not, uid)
		}
	}
	for _, bad := range []string{"/a_b", "/a/../b", "."} {
		if _, err := ParseCgroupRoot(bad); err == nil {
			t.Errorf("ParseCgroupRoot(%q) accepts it", bad)
		}
	}
	// A child does not share memory with its sibling.
	base := make(CgroupName, 1, 8)
	base[0] = "kubepods"
	a, b := base.Child("x"), base.Child("y")
	if a[1] != "x" || b[1] != "y" {
		t.Errorf("siblings %v %v", a, b)
	}
}
