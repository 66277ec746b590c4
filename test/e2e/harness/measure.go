// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// auditPolicy has the API server note what nodes ask, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// Audit restarts the API server so that it notes every request of a node, one
// JSON object a line, and returns the file.
func (c *ControlPlane) Audit(t testing.TB) string {
	t.Helper()
	policy, log := c.file("audit-policy.yaml"), c.file("audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Stop(t)
	c.args = append(c.args, "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode=batch", "--audit-log-batch-max-wait=1s")
	c.Resume(t)
	return log
}

// Process is one process of an agent or of a runtime.
type Process struct {
	PID int
	// Name is the service, "up" for the supervisor, or the program.
	Name string
}

// Processes are those of the node: its services and their supervisor.
func (n *Node) Processes() []Process {
	return processes(func(args []string) string {
		if len(args) > 2 && args[0] == n.binary && slices.Contains(args, "--run-dir="+n.Run) {
			if args[1] == "start" {
				return args[2]
			}
			return args[1]
		}
		return ""
	})
}

// Processes is the kubelet.
func (r *Reference) Processes() []Process {
	return []Process{{r.process.cmd.Process.Pid, "kubelet"}}
}

// Processes are containerd and the shims of its pods.
func (r *Runtime) Processes() []Process {
	socket := strings.TrimPrefix(r.Endpoint(), "unix://")
	return append([]Process{{r.PID(), "containerd"}}, processes(func(args []string) string {
		i := slices.Index(args, "-address")
		if strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && i >= 0 && i+1 < len(args) && args[i+1] == socket {
			return "shim"
		}
		return ""
	})...)
}

// processes are all whose arguments name gives a name for.
func processes(name func(args []string) string) []Process {
	var found []Process
	for _, pid := range allPIDs() {
		b, err := os.ReadFile(procFile(pid, "cmdline"))
		if err != nil || len(b) == 0 {
			continue // it ended, or is the kernel's
		}
		if s := name(strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")); s != "" {
			found = append(found, Process{pid, s})
		}
	}
	return found
}

// clockTick is the unit of times in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// CPU is the processor time of a process and of its children that ended, as
// /proc has it (proc(5)).
func (p Process) CPU() (time.Duration, error) {
	b, err := os.ReadFile(procFile(p.PID, "stat"))
	if err != nil {
		return 0, err
	}
	// The command is in parentheses and may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return 0, fmt.Errorf("process %d: %d fields in stat", p.PID, len(f))
	}
	var sum time.Duration
	for _, field := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}

// Began is when the process did, to 10 ms.
func (p Process) Began() (time.Time, error) {
	ticks, err := strconv.ParseInt(startTime(p.PID), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("process %d: %w", p.PID, err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(ticks)*clockTick - time.Duration(up.Nano())), nil
}

// PSS is the memory of a process in bytes, what it shares counted in parts.
func (p Process) PSS() (int64, error) {
	b, err := os.ReadFile(procFile(p.PID, "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d: no Pss", p.PID)
}
