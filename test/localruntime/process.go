// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
)

// process identifies a running process beyond the reuse of its number: the
// start time in clock ticks after boot, field 22 of /proc/PID/stat.
type process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
}

// stat returns the parent and the start time of a process; ok is false when
// there is none or only its zombie.
func stat(pid int) (parent int, start uint64, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, false
	}
	// The command name in parentheses may itself hold blanks and parentheses.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(f[1])
	start, err = strconv.ParseUint(f[19], 10, 64)
	return parent, start, err == nil
}

func (p process) alive() bool {
	_, start, ok := stat(p.PID)
	return p.PID > 0 && ok && start == p.StartTime
}

// stop asks the process to end, and ends it when the grace is over.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	if !p.alive() {
		return nil
	}
	if err := unix.Kill(p.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop process %d: %w", p.PID, err)
	}
	soft, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if poll(soft, func() bool { return !p.alive() }) == nil {
		return nil
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	if err := poll(ctx, func() bool { return !p.alive() }); err != nil {
		return fmt.Errorf("process %d does not end: %w", p.PID, err)
	}
	return nil
}

// poll calls done until it holds or ctx ends.
func poll(ctx context.Context, done func() bool) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
	return nil
}

// readProcess reads a pid file; a missing or damaged one yields no process.
func readProcess(path string) process {
	var p process
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &p) != nil {
		return process{}
	}
	return p
}

// start runs containerd in a session of its own with its output in the log file
// and records it in the pid file. exited is closed when it ends while the caller
// lives.
func (c Config) start(b binaries) (p process, exited <-chan struct{}, err error) {
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return p, nil, err
	}
	defer log.Close() //nolint:errcheck // the child holds its own copy
	cmd := exec.Command(b.containerd, "--config", c.configFile())
	cmd.Dir = c.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// containerd finds its shim, and the shim runc's helpers, by PATH.
	cmd.Env = append(envWithout("PATH", "NOTIFY_SOCKET"), "PATH="+searchPath(filepath.Dir(b.shim), filepath.Dir(b.runc)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return p, nil, fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log tells why it ended
		close(ended)
	}()
	p.PID = cmd.Process.Pid
	if _, start, ok := stat(p.PID); ok {
		p.StartTime = start
	}
	return p, ended, writeJSON(c.pidFile(), p)
}

func searchPath(first ...string) string {
	seen := map[string]bool{}
	var dirs []string
	for _, d := range append(first, filepath.SplitList(os.Getenv("PATH"))...) {
		if d != "" && !seen[d] {
			seen[d] = true
			dirs = append(dirs, d)
		}
	}
	// A user's PATH often lacks the directories of iptables and mount helpers.
	for _, d := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if !seen[d] {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, string(os.PathListSeparator))
}

func envWithout(names ...string) []string {
	var env []string
next:
	for _, kv := range os.Environ() {
		for _, n := range names {
			if strings.HasPrefix(kv, n+"=") {
				continue next
			}
		}
		env = append(env, kv)
	}
	return env
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return file.Replace(path, append(b, '\n'), 0o644)
}

// canLowerOOMScore reports whether this process may make a child less likely to be
// killed than itself, which needs CAP_SYS_RESOURCE in the first user namespace. Where
// it may not, runc fails on every sandbox unless containerd is configured to restrict
// the score.
func canLowerOOMScore() bool {
	const file = "/proc/self/oom_score_adj"
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || score <= -1000 {
		return err == nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(score-1)), 0); err != nil {
		return !errors.Is(err, fs.ErrPermission)
	}
	_ = os.WriteFile(file, []byte(strconv.Itoa(score)), 0) // raising it back is always allowed
	return true
}
