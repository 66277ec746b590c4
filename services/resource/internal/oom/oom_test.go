// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	id := strings.Repeat("ab", 32)
	pods := []Pod{
		{"u", "ns", "plain", "/kubepods/burstable/podu"},
		{"u1", "ns", "longer", "/kubepods/burstable/podu1"},
		{"s", "ns", "slice", "/kubepods.slice/kubepods-pods.slice"},
		{"none", "ns", "without", ""},
	}
	for _, c := range []struct {
		name                         string
		kill                         Kill
		scope, event, pod, container string
	}{
		{"a container's limit", Kill{"java", 7, false, "/kubepods/burstable/podu/" + id, "/kubepods/burstable/podu/" + id}, "pod", "", "plain", id},
		{"a cgroup of the container", Kill{"java", 7, false, "/kubepods/burstable/podu/" + id + "/x", "/kubepods/burstable/podu"}, "pod", "", "plain", id},
		{"a scope of systemd's", Kill{"java", 7, false, "/kubepods.slice/kubepods-pods.slice/cri-containerd-" + id + ".scope", "/kubepods.slice"}, "pod", "", "slice", id},
		{"a name that begins as another's", Kill{"java", 7, false, "/kubepods/burstable/podu1/" + id, "/x"}, "pod", "", "longer", id},
		{"no container's folder", Kill{"java", 7, false, "/kubepods/burstable/podu/x", "/x"}, "pod", "", "plain", ""},
		{"the pod itself", Kill{"java", 7, false, "/kubepods/burstable/podu", "/x"}, "pod", "", "plain", ""},
		{"the machine, a pod's process", Kill{"java", 7, true, "/kubepods/burstable/podu/" + id, ""}, "node", "System OOM encountered, victim process: java, pid: 7", "plain", id},
		{"the machine, no pod's", Kill{"sshd", 8, true, "/system.slice/ssh.service", ""}, "node", "System OOM encountered, victim process: sshd, pid: 8", "", ""},
		{"the machine, without a name", Kill{"", 8, true, "", ""}, "node", "System OOM encountered", "", ""},
		{"the root's limit", Kill{"sshd", 8, false, "/system.slice", "/"}, "node", "System OOM encountered, victim process: sshd, pid: 8", "", ""},
		{"another cgroup's", Kill{"db", 9, false, "/user.slice", "/user.slice"}, "other", "", "", ""},
		{"a limit that is not known", Kill{"db", 9, false, "", ""}, "other", "", "", ""},
	} {
		v := Judge(c.kill, pods)
		name := ""
		if v.Pod != nil {
			name = v.Pod.Name
		}
		if v.Scope != c.scope || v.Event != c.event || name != c.pod || v.Container != c.container {
			t.Errorf("%s: %+v of %q", c.name, v, name)
		}
	}
}
