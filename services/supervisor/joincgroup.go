// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// JoinCgroup moves the process into a cgroup of every controller (a kubelet's
// kubeletCgroups), which it makes if need be; the processes that it starts are in it too.
// With version 1 it stays where it is in systemd's own hierarchy, and so in its unit.
func JoinCgroup(name string) error {
	return hostHierarchies().join(name, os.Getpid())
}

func (h hierarchies) join(name string, pid int) error {
	var all []error
	joined := false
	for _, hierarchy := range h.withControllers() {
		dir := filepath.Join(hierarchy, name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = inheritCPUs(hierarchy, name)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendf(nil, "%d", pid), 0)
		}
		all, joined = append(all, err), true
	}
	if !joined {
		return fmt.Errorf("cgroup %s: no hierarchy with controllers", name)
	}
	return errors.Join(all...)
}

// withControllers are the hierarchies of version 1 that have a controller, or the one of
// version 2.
func (h hierarchies) withControllers() []string {
	var found []string
	for _, hierarchy := range h {
		_, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs"))
		if err != nil || filepath.Base(hierarchy) == "systemd" {
			continue
		}
		controllers, err := os.ReadFile(filepath.Join(hierarchy, "cgroup.controllers"))
		if err == nil && len(strings.TrimSpace(string(controllers))) == 0 {
			continue // version 2 without controllers, beside version 1
		}
		found = append(found, hierarchy)
	}
	return found
}

// inheritCPUs fills in what a cpuset of version 1 has to have before a process may enter it,
// and has not by itself.
func inheritCPUs(hierarchy, name string) error {
	dir := hierarchy
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			has, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || len(strings.TrimSpace(string(has))) > 0 {
				continue // no cpuset, or one that has them
			}
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil || len(strings.TrimSpace(string(value))) == 0 {
				continue // version 2: empty says the parent's
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
