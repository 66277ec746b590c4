// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestJoinCgroup: the process enters the cgroup of each controller, a cpuset has its
// parent's CPUs before that, and systemd's hierarchy and an empty version 2 are left alone.
func TestJoinCgroup(t *testing.T) {
	root := t.TempDir()
	var all hierarchies
	for name, files := range map[string]map[string]string{
		"memory":  {"cgroup.procs": ""},
		"cpuset":  {"cgroup.procs": "", "cpuset.cpus": "0-1\n", "cpuset.mems": "0\n"},
		"systemd": {"cgroup.procs": ""},
		"unified": {"cgroup.procs": "", "cgroup.controllers": "\n"},
		"notes":   {},
	} {
		dir := filepath.Join(root, name)
		all = append(all, dir)
		if err := os.MkdirAll(filepath.Join(dir, "node.slice", "kubelet.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			for _, at := range []string{"", "node.slice", "node.slice/kubelet.slice"} { // the kernel makes them
				if at != "" {
					text = ""
				}
				if err := os.WriteFile(filepath.Join(dir, at, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := all.join("/node.slice/kubelet.slice", 42); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"memory/node.slice/kubelet.slice/cgroup.procs":  "42",
		"cpuset/node.slice/kubelet.slice/cgroup.procs":  "42",
		"cpuset/node.slice/cpuset.cpus":                 "0-1\n",
		"cpuset/node.slice/kubelet.slice/cpuset.cpus":   "0-1\n",
		"cpuset/node.slice/kubelet.slice/cpuset.mems":   "0\n",
		"systemd/node.slice/kubelet.slice/cgroup.procs": "",
		"unified/node.slice/kubelet.slice/cgroup.procs": "",
	} {
		if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
	if err := (hierarchies{filepath.Join(root, "systemd")}).join("/a", 42); err == nil {
		t.Error("no error without a controller")
	}
}
