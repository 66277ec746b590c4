// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"testing"
	"testing/fstest"
)

func TestFlagz(t *testing.T) {
	flags, err := ParseFlags([]string{"--v=3", "--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow", "--node-labels=a=b", "--config=/k.yaml", "--manifest-url-header=Authorization:secret", "--node-labels=c=d"})
	if err != nil {
		t.Fatal(err)
	}
	file := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"
	c, _, err := Load(flags, Inputs{Files: fstest.MapFS{"k.yaml": {Data: []byte(file)}}, Hostname: "n"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	got := c.FlagValues()
	for name, want := range map[string]string{
		"v": "3", "node-labels": "a=b,c=d", "config": "/k.yaml", "manifest-url-header": masked,
		"max-pods": "110", // the flag was not given; the file does not count
		"port":     "10250", "help": "false", "kubeconfig": "", "tls-cipher-suites": "[]",
	} {
		if got[name] != want {
			t.Errorf("--%s is %q, want %q", name, got[name], want)
		}
	}
	if len(got) != len(flagRows())+1 {
		t.Errorf("%d flags, want %d", len(got), len(flagRows())+1)
	}
	for _, said := range c.Redacted().Flags {
		if said.Name == "manifest-url-header" && said.Value != masked {
			t.Errorf("redacted: %q", said.Value)
		}
	}
	if empty := (&Config{}).FlagValues(); empty["manifest-url-header"] != "" || empty["v"] != "0" {
		t.Errorf("nothing said: %q, %q", empty["manifest-url-header"], empty["v"])
	}
}
