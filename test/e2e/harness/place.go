// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Place is what a node agent of either make is given: a name, an address, a
// runtime, directories and a KubeletConfiguration.
type Place struct {
	Name, IP string
	// IPs are all addresses, IP first.
	IPs []string
	// Port of the kubelet API on IP.
	Port int
	// Root, Manifests and PodLogs are the kubelet's root directory, the folder of
	// static pods and that of container logs.
	Root, Manifests, PodLogs string
	Runtime                  *Runtime

	dir string
	// flags are the kubelet flags that say so.
	flags []string
}

// newPlace makes a place, or takes the given one; its runtime ends with the test.
func newPlace(t testing.TB, o NodeOptions) *Place {
	t.Helper()
	if o.Place != nil {
		return o.Place
	}
	lab := The(t)
	if len(o.Families) == 0 {
		o.Families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	var ips []string
	for _, f := range o.Families {
		ip, err := lab.network.address(f)
		if err != nil {
			t.Fatal(err)
		}
		ips = append(ips, ip.String())
	}
	number := lab.next()
	if o.Name == "" {
		o.Name = "node-" + number
	}
	if o.Flavour == "" {
		o.Flavour = V2
	}
	dir := filepath.Join(lab.Dir, "n"+number)
	p := &Place{
		Name: o.Name, IP: ips[0], IPs: ips, dir: dir,
		Root: cmp.Or(o.Root, filepath.Join(dir, "kubelet")), Manifests: filepath.Join(dir, "manifests"), PodLogs: filepath.Join(dir, "log", "pods"),
		Runtime: o.Runtime,
	}
	if err := os.MkdirAll(p.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	if o.Root != "" { // another node may have it next
		t.Cleanup(func() {
			if err := empty(p.Root); err != nil {
				t.Error(err)
			}
		})
	}
	if o.PrepareRoot != nil {
		o.PrepareRoot(p.Root)
	}
	if p.Runtime == nil {
		p.Runtime = startRuntime(t, o.Flavour, o.Families)
	}
	var err error
	if p.Port, err = lab.port(p.IP); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "kubelet.yaml")
	if err := p.writeConfig(config, o); err != nil {
		t.Fatal(err)
	}
	p.flags = []string{
		"--root-dir=" + p.Root, "--cert-dir=" + filepath.Join(p.Root, "pki"), "--config=" + config,
		"--hostname-override=" + p.Name, "--node-ip=" + strings.Join(p.IPs, ","),
	}
	if o.ControlPlane != nil {
		server := o.ControlPlane.Server
		if o.Gate != nil {
			server = o.Gate.Server
		}
		p.flags = append(p.flags, "--kubeconfig="+o.ControlPlane.nodeCredentials(t, p.Name, server))
	}
	p.flags = append(p.flags, o.Flags...)
	return p
}

// empty removes what is in a folder, which may be a mount itself.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func (p *Place) writeConfig(path string, o NodeOptions) error {
	no, never := false, int32(100)
	c := &kubeletv1beta1.KubeletConfiguration{
		StaticPodPath:            p.Manifests,
		ContainerRuntimeEndpoint: p.Runtime.Endpoint(),
		PodLogsDir:               p.PodLogs,
		Address:                  p.IP,
		Port:                     int32(p.Port),
		HealthzPort:              new(int32),
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               p.Runtime.CgroupRoot,
		FailCgroupV1:             &no,
		FailSwapOn:               &no,
		EvictionHard:             map[string]string{"memory.available": "50Mi"},
		// The machine's disk may be nearly full, as one node sees it and another does not yet.
		ImageGCHighThresholdPercent: &never,
	}
	c.APIVersion, c.Kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	if o.ControlPlane != nil {
		c.Authentication.X509.ClientCAFile = o.ControlPlane.ClientCA()
	} else {
		yes := true
		c.Authentication.Anonymous.Enabled = &yes
		c.Authentication.Webhook.Enabled = &no
		c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	}
	if o.Configure != nil {
		o.Configure(c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	// Unset durations and sections are written out; the kubelet takes them for
	// its defaults, and so should a reader of the file.
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	prune(m)
	if b, err = yaml.Marshal(m); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

func prune(m map[string]any) {
	for k, v := range m {
		switch x := v.(type) {
		case nil:
			delete(m, k)
		case string:
			if x == "0s" {
				delete(m, k)
			}
		case map[string]any:
			if prune(x); len(x) == 0 {
				delete(m, k)
			}
		}
	}
}

// AddManifest writes a static pod; what is not a pod is written as it is. The
// file appears at once, as an editor's or a configuration tool's would.
func (p *Place) AddManifest(t testing.TB, file string, content any) {
	t.Helper()
	var b []byte
	switch c := content.(type) {
	case string:
		b = []byte(c)
	case []byte:
		b = c
	case *corev1.Pod:
		pod := c.DeepCopy()
		pod.APIVersion, pod.Kind = "v1", "Pod"
		var err error
		if b, err = yaml.Marshal(pod); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("a manifest is a pod or text, not %T", content)
	}
	tmp := filepath.Join(filepath.Dir(p.Manifests), file+".new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(p.Manifests, file)); err != nil {
		t.Fatal(err)
	}
}

// RemoveManifest removes a static pod.
func (p *Place) RemoveManifest(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(filepath.Join(p.Manifests, file)); err != nil {
		t.Fatal(err)
	}
}
