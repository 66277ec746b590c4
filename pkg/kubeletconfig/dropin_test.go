// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestDropInOrder(t *testing.T) {
	files := fstest.MapFS{}
	for name, port := range map[string]string{
		"b.conf": "2", "a.conf": "1", "c/x.conf": "4", "c/deep/y.conf": "3", "d.conf": "5",
		"10.conf": "10", "9.conf": "9", ".hidden.conf": "0",
		"no.yaml": "!", "conf": "!", "x.conf.bak": "!", "README": "!",
	} {
		data := head + "port: " + port + "\n"
		if port == "!" {
			data = "this is not read"
		}
		files["d/"+name] = &fstest.MapFile{Data: []byte(data)}
	}
	f, err := ParseFlags([]string{"--config-dir=/d"})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Load(f, Inputs{Files: files, Hostname: "h"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/d/.hidden.conf", "/d/10.conf", "/d/9.conf", "/d/a.conf", "/d/b.conf", "/d/c/deep/y.conf", "/d/c/x.conf", "/d/d.conf"}
	if d := cmp.Diff(want, c.Files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if c.Kubelet.Port != 5 {
		t.Errorf("port %d, want that of the last file", c.Kubelet.Port)
	}
}

// One bad drop-in does not hide what is wrong with another, nor with the file.
func TestProblemsOfAllFilesAreReported(t *testing.T) {
	_, _, err := setup{
		args: withAPI(), config: new("port: x\n"),
		dropIns: map[string]string{"1.conf": "maxPods: 5\n", "2.conf": "maxPods: x\n", "3.conf": "clusterDNS: 5\n"},
	}.load(t)
	// The drop-ins belong to a file that could not be read, so they wait.
	if d := cmp.Diff([]string{`/etc/kubelet/config.yaml:3: port: must be a whole number of 32 bits, is "x"`}, problemLines(err)); d != "" {
		t.Error(d)
	}
	_, _, err = setup{
		args:    withAPI(),
		dropIns: map[string]string{"1.conf": "maxPods: 5\n", "2.conf": "maxPods: x\n", "3.conf": "clusterDNS: 5\n"},
	}.load(t)
	want := []string{
		"/etc/kubelet/conf.d/2.conf:3: maxPods: must be a whole number of 32 bits, is \"x\"",
		"/etc/kubelet/conf.d/3.conf:3: clusterDNS: must be a list, is 5",
	}
	if d := cmp.Diff(want, problemLines(err)); d != "" {
		t.Error(d)
	}
}

// Errors after merging name the file and line, or the flag, that had the last word.
func TestValidationErrorsNameTheirOrigin(t *testing.T) {
	for _, tc := range []struct {
		name string
		setup
		want string
	}{
		{"file", setup{config: new("maxPods: 1\npodsPerCore: -1\n")}, "/etc/kubelet/config.yaml:4: podsPerCore: Invalid value: -1: must not be negative"},
		{"drop-in", setup{config: new("podsPerCore: 1\n"), dropIns: map[string]string{"x.conf": "\npodsPerCore: -1\n"}},
			"/etc/kubelet/conf.d/x.conf:4: podsPerCore: Invalid value: -1: must not be negative"},
		{"flag", setup{config: new("podsPerCore: 1\n"), args: []string{"--pods-per-core=-1"}},
			"--pods-per-core: podsPerCore: Invalid value: -1: must not be negative"},
		{"key of a merged map, set below", setup{config: new("systemReserved:\n  cpu: 1m\n  memory: x\n"), dropIns: map[string]string{"x.conf": "systemReserved:\n  pid: \"5\"\n"}},
			`/etc/kubelet/config.yaml:5: systemReserved[memory]: Invalid value: "x": "x" is not a quantity such as 200m or 1Gi`},
		{"key of a merged map, set above", setup{config: new("systemReserved:\n  cpu: 1m\n"), dropIns: map[string]string{"x.conf": "systemReserved:\n  pid: x\n"}},
			`/etc/kubelet/conf.d/x.conf:4: systemReserved[pid]: Invalid value: "x": "x" is not a quantity such as 200m or 1Gi`},
		{"element of a replaced list", setup{config: new("clusterDNS: [1.1.1.1, 2.2.2.2]\n"), dropIns: map[string]string{"x.conf": "clusterDNS:\n- 1.1.1.1\n- x\n"}},
			`/etc/kubelet/conf.d/x.conf:5: clusterDNS[1]: Invalid value: "x": must be an IP address`},
		{"element of a list", setup{config: new("registerWithTaints:\n- key: a\n  effect: Never\n")},
			`/etc/kubelet/config.yaml:5: registerWithTaints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},
		{"default of a sibling", setup{config: new("imageGCHighThresholdPercent: 70\n")},
			"default: imageGCLowThresholdPercent: Invalid value: 80: must be less than imageGCHighThresholdPercent, which is 70"},
		{"gate by flag", setup{config: new("featureGates: {MemoryQoS: true}\n"), args: []string{"--feature-gates=NodeSwap=false"}},
			"--feature-gates: featureGates[NodeSwap]: Invalid value: false: this GA gate is locked to true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.args = withAPI(tc.args...)
			_, _, err := tc.load(t)
			if d := cmp.Diff([]string{tc.want}, problemLines(err)); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

// On a real file system: symbolic links to files work, as a mounted ConfigMap
// has them, and one that leads in a circle is an error that names it.
func TestDropInSymlinks(t *testing.T) {
	root := t.TempDir()
	write := func(name, data string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (*Config, error) {
		f, err := ParseFlags([]string{"--config-dir=/conf.d"})
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(f, Inputs{Files: os.DirFS(root), Hostname: "h"})
		return c, err
	}
	write("data/pods", head+"maxPods: 7\n")
	write("conf.d/readme", "-")
	link("../data/pods", "conf.d/10-pods.conf")
	c, err := load()
	if err != nil || c.Kubelet.MaxPods != 7 {
		t.Fatalf("link to a file: %v, %v", c, err)
	}
	link("loop.conf", "conf.d/loop.conf")
	if _, err = load(); err == nil || !strings.Contains(err.Error(), "/conf.d/loop.conf: ") {
		t.Errorf("link to itself: %v", err)
	}
}

func TestRelativePaths(t *testing.T) {
	c, _ := setup{
		args: []string{"--kubeconfig=kc", "--tls-cert-file=tls/crt", "--tls-private-key-file=/tls/../key", "--root-dir=root/", "--cert-dir=/a/../b",
			"--image-credential-provider-bin-dir=bin", "--bootstrap-kubeconfig=boot"},
		config:  new("staticPodPath: manifests\nauthentication: {x509: {clientCAFile: ../ca}}\nresolvConf: resolv\npodLogsDir: logs\n"),
		dropIns: map[string]string{"a.conf": "volumePluginDir: plugins\n"},
	}.mustLoad(t)
	k, n := c.Kubelet, c.Node
	got := []string{k.StaticPodPath, k.Authentication.X509.ClientCAFile, *k.ResolverConfig, k.PodLogsDir, k.VolumePluginDir,
		k.TLSCertFile, k.TLSPrivateKeyFile, n.KubeConfig, n.RootDir, n.CertDir, n.ImageCredentialProviderBinDir, n.BootstrapKubeConfig}
	want := []string{
		// In the file they start at the file, elsewhere at the working directory.
		"/etc/kubelet/manifests", "/etc/ca", "/etc/kubelet/resolv", "/etc/kubelet/logs", "/cwd/plugins",
		"/cwd/tls/crt", "/tls/../key", "/cwd/kc", "/cwd/root", "/b", "/cwd/bin", "/cwd/boot"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
}
