// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"path/filepath"
	"strings"
	"testing"

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
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestParseCgroup: a path with cgroupfs, a slice with systemd, whatever is before it.
func TestParseCgroup(t *testing.T) {
	for _, tt := range []struct {
		text   string
		driver CgroupDriver
		path   string // empty: refused
	}{
		{"/system", Cgroupfs, "/system"}, {"a/b-c", Cgroupfs, "/a/b-c"}, {"/a/../b", Cgroupfs, ""},
		{"system.slice", Systemd, "/system.slice"}, {"/system.slice", Systemd, "/system.slice"},
		{"/my.slice/my-kube_x.slice", Systemd, "/my.slice/my-kube_x.slice"}, {"/", Systemd, ""}, {"-.slice", Systemd, ""},
	} {
		name, err := ParseCgroup(tt.text, tt.driver)
		if (err == nil) != (tt.path != "") || err == nil && name.Path(tt.driver) != tt.path {
			t.Errorf("ParseCgroup(%q, %s) = %v, %v, want %s", tt.text, tt.driver, name, err, tt.path)
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
		for path, driver := range map[string]CgroupDriver{tt.cgroupfs: Cgroupfs, tt.systemd: Systemd} {
			uid, ok := tt.name[:max(0, len(tt.name)-1)].PodOf(filepath.Base(path), driver)
			if want := strings.HasSuffix(path, "pod12-ab") || strings.HasSuffix(path, "-pod12_ab.slice"); ok != want || ok && uid != "12-ab" {
				t.Errorf("PodOf(%s) = %q, %t", path, uid, ok)
			}
		}
		if got := tt.name.Path(Systemd); got != tt.systemd {
			t.Errorf("systemd %q, want %q", got, tt.systemd)
		}
		if got := tt.name.Parent(Systemd); got != tt.parent {
			t.Errorf("parent %q, want %q", got, tt.parent)
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
