// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestCalledKubelet(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want bool
	}{
		{[]string{"kubelet"}, true},
		{[]string{"/usr/bin/kubelet", "--config=x"}, true},
		{[]string{"/usr/bin/kubelet", "-v=2"}, true},
		{[]string{"/usr/bin/kubelet", "start", "podworker"}, false}, // a part of itself
		{[]string{"/usr/bin/sextant", "--version"}, false},
	} {
		if got := CalledKubelet(tc.args); got != tc.want {
			t.Errorf("%q: %v", tc.args, got)
		}
	}
}

func TestKubeletVersion(t *testing.T) {
	for arg, want := range map[string]string{
		"--version":      "Kubernetes v1.36.3\n",
		"--version=true": "Kubernetes v1.36.3\n",
		"--version=raw":  `version.Info{Major:"1", Minor:"36", `,
	} {
		var out bytes.Buffer
		k := Kubelet()
		k.SetOut(&out)
		k.SetArgs([]string{arg})
		if err := k.Execute(); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, %v; want %q", arg, out.String(), err, want)
		}
	}
}

func TestKubeletRefuses(t *testing.T) {
	for _, args := range [][]string{{"--nonsense"}, {"run"}} {
		k := Kubelet()
		k.SetArgs(args)
		if err := k.Execute(); err == nil || !strings.Contains(err.Error(), strings.TrimLeft(args[0], "-")) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
