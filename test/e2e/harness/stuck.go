// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criID matches the ids that containerd gives sandboxes and containers.
var criID = regexp.MustCompile(`[0-9a-f]{64}`)

// explain logs what there is to know of the sandboxes that an error names: what the
// runtime's log has of them and of their containers, and the processes in their cgroups,
// with what each waits for in the kernel. A log of containerd's warnings alone does not
// tell whether a container has not ended, or has and its end got lost.
func (r *Runtime) explain(t testing.TB, err string) {
	ids := criID.FindAllString(err, -1)
	if len(ids) == 0 {
		return
	}
	// Not the test's context: that has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, listErr := r.Runtimes.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if listErr != nil {
		t.Logf("list containers: %v", listErr)
	}
	of := regexp.MustCompile(strings.Join(ids, "|"))
	for _, c := range list.GetContainers() {
		if of.MatchString(c.GetPodSandboxId()) {
			t.Logf("container %s of %s: %s", c.GetId(), c.GetPodSandboxId(), c.GetState())
			ids = append(ids, c.GetId())
		}
	}
	of = regexp.MustCompile(strings.Join(ids, "|"))
	for _, pid := range allPIDs() {
		args, _ := os.ReadFile(procFile(pid, "cmdline"))
		cgroups, _ := os.ReadFile(procFile(pid, "cgroup"))
		if of.Match(args) || of.Match(cgroups) {
			t.Logf("process %d: %s", pid, kernelView(pid))
		}
	}
	lines := matching(filepath.Join(r.cfg.Dir, "containerd.log"), of, 400)
	t.Logf("containerd's log of them:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
}

// kernelView is a process' command, parent and state, and where in the kernel it waits.
func kernelView(pid int) string {
	var view []string
	status, _ := os.ReadFile(procFile(pid, "status"))
	for line := range strings.Lines(string(status)) {
		for _, name := range []string{"Name", "State", "PPid", "NSpid", "SigPnd", "ShdPnd"} {
			if strings.HasPrefix(line, name+":") {
				view = append(view, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	tasks, _ := filepath.Glob(procFile(pid, "task/*"))
	stack, _ := os.ReadFile(procFile(pid, "stack"))
	view = append(view, strconv.Itoa(len(tasks))+" threads", strings.Join(strings.Fields(string(stack)), " "))
	return strings.Join(view, ", ")
}
