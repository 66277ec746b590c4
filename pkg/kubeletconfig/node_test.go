// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNodeName(t *testing.T) {
	for _, tc := range []struct {
		host, override, want string
		err                  bool
	}{
		{host: "Node-1.Example", want: "node-1.example"},
		{host: "node\n", want: "node"},
		{host: "h", override: " My-Node ", want: "my-node"},
		{host: "", override: "x", want: "x"},
		{host: " \n", err: true},
		{host: "h", override: "  ", err: true},
	} {
		var args []string
		if tc.override != "" {
			args = append(args, "--hostname-override="+tc.override)
		}
		f, err := ParseFlags(args)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(f, Inputs{Files: emptyFS, Hostname: tc.host})
		if tc.err {
			if err == nil || !strings.HasPrefix(err.Error(), "--hostname-override: ") {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		if err != nil || c.Node.Name != tc.want || c.Node.HostnameOverridden != (tc.override != "") {
			t.Errorf("%+v: %+v, %v", tc, c, err)
		}
	}
}

func TestNodeIPs(t *testing.T) {
	for arg, want := range map[string]string{
		"":                  "",
		"10.0.0.1":          "10.0.0.1",
		"10.0.0.1 ,fd::1":   "10.0.0.1,fd::1",
		"fd::1,10.0.0.1":    "fd::1,10.0.0.1",
		"0.0.0.0":           "0.0.0.0",
		"::":                "::",
		"10.0.0.1,10.0.0.2": "!must contain either a single IP or a dual-stack pair",
		"10.0.0.1,::":       "!dual-stack node IP cannot include",
		"node":              `!"node" is not an IP address`,
		"10.0.0.1,":         `!"" is not an IP address`,
	} {
		c, _, err := setup{args: []string{"--node-ip=" + arg}}.load(t)
		if bad, ok := strings.CutPrefix(want, "!"); ok {
			if err == nil || !strings.HasPrefix(err.Error(), "--node-ip: ") || !strings.Contains(err.Error(), bad) {
				t.Errorf("%q: %v, want %q", arg, err, bad)
			}
			continue
		}
		if err != nil || strings.Join(c.Node.IPs, ",") != want {
			t.Errorf("%q: %v, %v", arg, c, err)
		}
	}
}

func TestNodeLabels(t *testing.T) {
	c, _ := setup{args: []string{"--node-labels=a=b,c,example.com/d=e", "--node-labels=node.kubernetes.io/f=g,kubernetes.io/arch=amd64,x.kubelet.kubernetes.io/y=z"}}.mustLoad(t)
	want := map[string]string{"a": "b", "c": "", "example.com/d": "e", "node.kubernetes.io/f": "g", "kubernetes.io/arch": "amd64", "x.kubelet.kubernetes.io/y": "z"}
	if d := cmp.Diff(want, c.Node.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	for arg, want := range map[string]string{
		"kubernetes.io/role=x":            `"kubernetes.io/role": a node may not set this label`,
		"node-role.kubernetes.io/worker=": `"node-role.kubernetes.io/worker": a node may not set this label`,
		"foo.k8s.io/x=y":                  `"foo.k8s.io/x": a node may not set this label`,
		"a b=c":                           `"a b": name part must consist of`,
		"a=b c":                           `"a": value "b c": a valid label must be`,
		"a=" + strings.Repeat("x", 64):    `must be no more than 63`,
	} {
		_, _, err := setup{args: []string{"--node-labels=" + arg}}.load(t)
		if err == nil || !strings.HasPrefix(err.Error(), "--node-labels: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

func TestCloudProvider(t *testing.T) {
	for arg, external := range map[string]bool{"": false, "external": true} {
		c, _ := setup{args: []string{"--cloud-provider=" + arg}}.mustLoad(t)
		if c.Node.ExternalCloudProvider != external {
			t.Errorf("%q: external %t", arg, c.Node.ExternalCloudProvider)
		}
	}
	_, _, err := setup{args: []string{"--cloud-provider=aws"}}.load(t)
	if d := cmp.Diff([]string{`--cloud-provider: is "aws"; must be "external" or empty, because no cloud provider is built in`}, problemLines(err)); d != "" {
		t.Error(d)
	}
}

func TestNodeDirectories(t *testing.T) {
	for arg, want := range map[string]string{
		"--root-dir=":               "--root-dir: must not be empty",
		"--root-dir=/a/..":          "--root-dir: must not be the root of the file system",
		"--cert-dir=":               "--cert-dir: must not be empty",
		"--exit-on-lock-contention": "--exit-on-lock-contention: needs --lock-file",
	} {
		_, _, err := setup{args: []string{arg}}.load(t)
		if lines := problemLines(err); len(lines) == 0 || lines[0] != want {
			t.Errorf("%s: %v", arg, lines)
		}
	}
}
