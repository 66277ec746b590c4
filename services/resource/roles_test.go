// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
)

func TestSystemCgroups(t *testing.T) {
	conf := func(edit func(*kubeletconfig.Config)) *settings {
		c := &kubeletconfig.Config{}
		if edit != nil {
			edit(c)
		}
		return &settings{conf: c, driver: pod.Systemd}
	}
	classes := []string{"pods=/kubepods.slice", "=/kubepods.slice/kubepods-burstable.slice", "=/kubepods.slice/kubepods-besteffort.slice"}
	for _, c := range []struct {
		what string
		now  *settings
		own  string
		want []string
	}{
		{"in units of our own", conf(nil), "/sextant.slice/sextant-resource.service", []string{"kubelet=/sextant.slice", "runtime=/system.slice/containerd.service", "runtime=/system.slice/crio.service"}},
		{"started by hand", conf(nil), "/user.slice/x", []string{"kubelet=/user.slice/x", "runtime=/system.slice/containerd.service", "runtime=/system.slice/crio.service"}},
		{"in no cgroup", conf(nil), "/", []string{"runtime=/system.slice/containerd.service", "runtime=/system.slice/crio.service"}},
		{"as configured", conf(func(c *kubeletconfig.Config) {
			c.Kubelet.KubeletCgroups, c.Kubelet.SystemCgroups, c.Node.RuntimeCgroups = "/agent", "/system", "runtime"
		}), "/x", []string{"kubelet=/agent", "runtime=/runtime", "misc=/system"}},
	} {
		var got []string
		for _, r := range systemCgroups(c.now, c.own) {
			got = append(got, fmt.Sprintf("%s=%s", r.name, r.path))
		}
		if diff := cmp.Diff(append(c.want, classes...), got); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
}
