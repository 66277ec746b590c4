// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// rich is a configuration with something in every kind of field.
func rich(t testing.TB) *Config {
	c, _ := setup{
		args: withAPI("--node-labels=a=b", "--node-ip=10.0.0.1,fd::1", "--hostname-override=n", "--cloud-provider=external", "--max-pods=50"),
		config: new(`
clusterDNS: [10.0.0.10]
staticPodURLHeader: {Authorization: [Bearer secret]}
registerWithTaints: [{key: a, value: b, effect: NoSchedule}]
featureGates: {EventedPLEG: true}
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {cpu: 100m, pid: "1000"}
reservedSystemCPUs: 0-1
evictionSoft: {memory.available: 1Gi, nodefs.available: 0%}
evictionSoftGracePeriod: {memory.available: 90s}
evictionMinimumReclaim: {memory.available: 5%}
logging: {verbosity: 3, vmodule: [{filePattern: a, verbosity: 1}]}
tracing: {endpoint: "a:1"}
memoryThrottlingFactor: 0.75
resolvConf: ""
`),
	}.mustLoad(t)
	return c
}

func TestMarshalRoundTrip(t *testing.T) {
	c := rich(t)
	raw, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := Changes(c, got); len(d) > 0 {
		t.Errorf("changed on the way: %v", d)
	}
	if d := cmp.Diff(c.Origins, got.Origins); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(c.Files, got.Files); d != "" {
		t.Error(d)
	}
	again, err := got.Marshal()
	if err != nil || !bytes.Equal(raw, again) {
		t.Errorf("a second round differs (%v):\n%s\n%s", err, raw, again)
	}
}

// Whatever a power cut leaves of a kept configuration is an error.
func TestUnmarshalRefusesDamage(t *testing.T) {
	raw, err := rich(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(raw) {
		if c, err := Unmarshal(raw[:n]); err == nil || c != nil {
			t.Fatalf("the first %d of %d bytes are accepted", n, len(raw))
		}
	}
	for name, damaged := range map[string]string{
		"zeros":        string(make([]byte, len(raw))),
		"other schema": strings.Replace(string(raw), `"schema":1`, `"schema":2`, 1),
		"no schema":    strings.Replace(string(raw), `"schema":1`, `"x":1`, 1),
		"other kind":   strings.Replace(string(raw), `"kind":"KubeletConfiguration"`, `"kind":"Pod"`, 1),
		"wrong type":   strings.Replace(string(raw), `"maxPods":50`, `"maxPods":"50"`, 1),
		"null":         "null",
		"list":         "[]",
		"empty object": "{}",
		"trailing":     string(raw) + "{}",
	} {
		if c, err := Unmarshal([]byte(damaged)); err == nil || c != nil {
			t.Errorf("%s: accepted", name)
		} else if !strings.HasPrefix(err.Error(), "kubelet configuration: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A neighbour one release ahead publishes fields this one does not know.
func TestUnmarshalSkipsUnknownFields(t *testing.T) {
	c := rich(t)
	raw, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(raw), `"maxPods":50`, `"maxPods":50,"fieldOfTomorrow":{"a":1}`, 1)
	newer = strings.Replace(newer, `"schema":1`, `"schema":1,"alsoNew":[1]`, 1)
	got, err := Unmarshal([]byte(newer))
	if err != nil {
		t.Fatal(err)
	}
	if d := Changes(c, got); len(d) > 0 {
		t.Errorf("changed: %v", d)
	}
}

func TestOrigins(t *testing.T) {
	c := rich(t)
	for path, want := range map[string]string{
		"maxPods":                     "--max-pods",
		"clusterDNS":                  "/etc/kubelet/config.yaml:4",
		"clusterDNS[0]":               "/etc/kubelet/config.yaml:4",
		"systemReserved[memory]":      "/etc/kubelet/config.yaml:8",
		"registerWithTaints[0].key":   "/etc/kubelet/config.yaml:6",
		"logging.verbosity":           "/etc/kubelet/config.yaml:14",
		"port":                        "default",
		"evictionHard":                "default",
		"authentication":              "default",
		"kind":                        "default",
		"evictionSoft[memory.x][y].z": "/etc/kubelet/config.yaml:11",
		"":                            "default",
	} {
		if got := c.Origins.Of(path).String(); got != want {
			t.Errorf("%q comes from %s, want %s", path, got, want)
		}
	}
	if got := (Source{File: "/a"}).String(); got != "/a" {
		t.Errorf("a file without line is %q", got)
	}
}

func TestChanges(t *testing.T) {
	a := rich(t)
	if d := Changes(a, a.DeepCopy()); len(d) > 0 {
		t.Errorf("a copy differs: %v", d)
	}
	b := a.DeepCopy()
	b.Kubelet.MaxPods++
	b.Kubelet.SystemReserved["cpu"] = "1"
	b.Kubelet.Tracing = nil
	*b.Kubelet.ResolverConfig = "/x"
	b.Kubelet.Authentication.Anonymous.Enabled = ptr.To(true)
	b.Node.Labels["a"] = "c"
	b.Node.RootDir = "/x"
	b.Origins["maxPods"] = Source{}
	want := []string{"authentication.anonymous.enabled", "maxPods", "resolvConf", "systemReserved", "tracing.endpoint", "node.labels", "node.rootDir"}
	if d := cmp.Diff(want, Changes(a, b)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if c := rich(t); len(Changes(a, c)) > 0 {
		t.Errorf("changing the copy changed the original: %v", Changes(c, a))
	}
}

func TestRedacted(t *testing.T) {
	c := rich(t)
	masked := c.Redacted()
	raw, err := masked.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got := masked.Kubelet.StaticPodURLHeader["Authorization"][0]; got != "<masked>" || bytes.Contains(raw, []byte("secret")) {
		t.Errorf("not masked: %s", raw)
	}
	if c.Kubelet.StaticPodURLHeader["Authorization"][0] != "Bearer secret" {
		t.Error("masking changed the original")
	}
}

func TestServingCertAndConfigz(t *testing.T) {
	for _, tc := range []struct {
		in        string
		cert, key string
		generate  bool
	}{
		{"", "/var/lib/kubelet/pki/kubelet.crt", "/var/lib/kubelet/pki/kubelet.key", true},
		{"tlsCertFile: /a\ntlsPrivateKeyFile: /b\n", "/a", "/b", false},
		{"serverTLSBootstrap: true\n", "", "", false},
	} {
		c, _ := setup{args: withAPI(), config: new(tc.in)}.mustLoad(t)
		cert, key, generate := c.ServingCert()
		if cert != tc.cert || key != tc.key || generate != tc.generate {
			t.Errorf("%q: %s %s %t", tc.in, cert, key, generate)
		}
		k := c.Configz()
		if k.TLSCertFile != tc.cert || k.Kind != "KubeletConfiguration" || k.APIVersion != "kubelet.config.k8s.io/v1beta1" {
			t.Errorf("%q: configz %+v", tc.in, k)
		}
	}
}

func TestCgroupRoot(t *testing.T) {
	for in, want := range map[string]string{
		"": "/", "cgroupRoot: /pods\n": "/pods", "cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n": "",
	} {
		if c, _ := (setup{args: withAPI(), config: new(in)}).mustLoad(t); c.CgroupRoot() != want {
			t.Errorf("%q: %q, want %q", in, c.CgroupRoot(), want)
		}
	}
}

func TestReserved(t *testing.T) {
	text := func(l corev1.ResourceList) map[string]string {
		out := map[string]string{}
		for name, q := range l {
			out[string(name)] = q.String()
		}
		return out
	}
	c := rich(t)
	if d := cmp.Diff(map[string]string{"cpu": "2", "memory": "1Gi"}, text(c.SystemReserved())); d != "" {
		t.Errorf("system, with reserved CPUs: %s", d)
	}
	if d := cmp.Diff(map[string]string{"pid": "1k"}, text(c.KubeReserved())); d != "" {
		t.Errorf("kube, with reserved CPUs: %s", d)
	}
	if got := c.ReservedCPUs().String(); got != "0-1" {
		t.Errorf("CPUs %s", got)
	}
	c.Kubelet.ReservedSystemCPUs = ""
	if d := cmp.Diff(map[string]string{"cpu": "500m", "memory": "1Gi"}, text(c.SystemReserved())); d != "" {
		t.Errorf("system: %s", d)
	}
	if d := cmp.Diff(map[string]string{"cpu": "100m", "pid": "1k"}, text(c.KubeReserved())); d != "" {
		t.Errorf("kube: %s", d)
	}
}

func TestEvictionThresholds(t *testing.T) {
	c := rich(t)
	c.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "100%"}
	type row struct {
		Signal, Quantity string
		Fraction         float64
		Hard             bool
		Grace            time.Duration
		Reclaim          float64
	}
	var got []row
	for _, th := range c.EvictionThresholds() {
		r := row{Signal: th.Signal, Fraction: float64(int(th.Amount.Fraction*1000+0.5)) / 1000, Hard: th.Hard, Grace: th.GracePeriod}
		if th.Amount.Quantity != nil {
			r.Quantity = th.Amount.Quantity.String()
		}
		if th.MinReclaim != nil {
			r.Reclaim = float64(int(th.MinReclaim.Fraction*1000+0.5)) / 1000
		}
		got = append(got, r)
	}
	want := []row{
		{Signal: "memory.available", Quantity: "100Mi", Hard: true, Reclaim: 0.05},
		{Signal: "nodefs.available", Fraction: 0.1, Hard: true},
		{Signal: "memory.available", Quantity: "1Gi", Grace: 90 * time.Second, Reclaim: 0.05},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("thresholds (-want +got):\n%s", d)
	}
}
