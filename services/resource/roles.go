// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// role is a cgroup that is no pod's. Those without a name are the classes.
type role struct{ name, path string }

// runtimeCgroups are where container runtimes run under systemd.
var runtimeCgroups = []string{"/system.slice/containerd.service", "/system.slice/crio.service"}

// systemCgroups are the kubelet's system containers by its names (the "kubelet"
// is all of Sextant), and the classes of pods.
func systemCgroups(now *settings, own string) []role {
	k := now.conf.Kubelet
	kubelet := k.KubeletCgroups
	if kubelet == "" {
		kubelet = ownSlice(own)
	}
	var all []role
	add := func(name string, paths ...string) {
		for _, p := range paths {
			if p != "" && p != "/" {
				all = append(all, role{name, path.Join("/", p)})
			}
		}
	}
	add("kubelet", kubelet)
	if named := now.conf.Node.RuntimeCgroups; named != "" {
		add("runtime", named)
	} else {
		add("runtime", runtimeCgroups...)
	}
	add("misc", k.SystemCgroups)
	if now.qos() {
		add("pods", pod.KubepodsCgroup(now.root).Path(now.driver))
		add("", pod.QOSCgroup(now.root, v1.PodQOSBurstable).Path(now.driver), pod.QOSCgroup(now.root, v1.PodQOSBestEffort).Path(now.driver))
	}
	return all
}

// ownSlice is the cgroup of all services, where systemd runs each in a unit of
// sextant.slice; else the one this process is in.
func ownSlice(own string) string {
	const slice = "/sextant.slice"
	if at := strings.Index(own+"/", slice+"/"); at >= 0 {
		return own[:at+len(slice)]
	}
	return own
}
