// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/rpc"
)

const (
	// mostAtPlace is how many requests about one server are carried out at a time: a
	// dead server blocks that many tools, further requests wait here.
	mostAtPlace = 4
	// mostTools is the number of killed but still running tools at which no new tool is
	// started.
	mostTools = 64
	// mercy is how long a killed tool may take to end.
	mercy = 2 * time.Second
	// mostOutput is how much of a tool's output is kept, in bytes.
	mostOutput = 16 << 10
)

// searched is the path for tools, whatever the environment has.
const searched = "/usr/sbin:/usr/bin:/sbin:/bin"

// failure is the output and the error of a tool that ran and failed.
type failure struct {
	code   int
	output string
	err    error
}

func (f *failure) Error() string { return fmt.Sprintf("%v: %s", f.err, f.output) }

// runner runs tools, serialized by thing and bounded by place.
type runner struct {
	// path is the folders searched for tools, separated by colons.
	path string
	// patience overrides the times to wait for devices; zero for the defaults.
	patience time.Duration
	log      *slog.Logger

	turns  *keyed.Limit // by thing
	places *keyed.Limit

	mu   sync.Mutex
	lost int // tools that were killed and have not ended
}

// wait is patience, or the default that is given.
func (r *runner) wait(suits time.Duration) time.Duration { return cmp.Or(r.patience, suits) }

func newRunner(path string, patience time.Duration, log *slog.Logger) *runner {
	return &runner{path: path, patience: patience, log: log, turns: keyed.NewLimit(1), places: keyed.NewLimit(mostAtPlace)}
}

// take waits for the turn of a thing at a place. It returns the function that ends the
// turn.
func (r *runner) take(ctx context.Context, thing, at string) (end func(), err error) {
	leave, err := r.places.Enter(ctx, at)
	if err != nil {
		return nil, rpc.Unavailable.Errorf("%s: other calls about %s have not ended", thing, at)
	}
	done, err := r.turns.Enter(ctx, thing)
	if err != nil {
		leave()
		return nil, rpc.Unavailable.Errorf("%s: an earlier call has not ended", thing)
	}
	return func() { done(); leave() }, nil
}

// do carries out a request in its thing's turn. The turn lasts until all tools of the
// request have ended.
func (r *runner) do(ctx context.Context, thing, at string, order func(*tools) error) error {
	end, err := r.take(ctx, thing, at)
	if err != nil {
		return err
	}
	t := &tools{r: r, ctx: ctx}
	err = order(t)
	if len(t.stuck) == 0 {
		end()
		return err
	}
	go func() {
		for _, ended := range t.stuck {
			<-ended
		}
		end()
	}()
	return err
}

// tools are those of one request.
type tools struct {
	r     *runner
	ctx   context.Context
	stuck []chan struct{}
}

// run runs a tool to its end and returns what it wrote. Errors carry no
// arguments: some are secret.
func (t *tools) run(name string, args ...string) (string, error) {
	if err := t.ctx.Err(); err != nil {
		return "", rpc.Unavailable.Errorf("%s: not started in time", name)
	}
	program, err := t.r.find(name)
	if err != nil {
		return "", err
	}
	t.r.mu.Lock()
	lost := t.r.lost
	t.r.mu.Unlock()
	if lost >= mostTools {
		return "", rpc.Unavailable.Errorf("%d tools were killed and do not end: no more are started", lost)
	}
	out := &bounded{}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + cmp.Or(t.r.path, searched), "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = out, out
	// A daemon that a tool leaves behind (rpc.statd) inherits its output.
	cmd.WaitDelay = mercy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	ended := make(chan struct{})
	var result error
	go func() { result = cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-t.ctx.Done():
		if changesDisk(name) {
			t.stuck = append(t.stuck, ended)
			return "", rpc.Unavailable.Errorf("%s has not ended within %s, and goes on", name, time.Since(began).Round(time.Second))
		}
		// The whole session: the process that hangs is a child of mount(8).
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.r.log.Debug("kill", "tool", name, "error", err.Error())
		}
		limit := time.NewTimer(mercy)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
			t.abandon(name, cmd.Process.Pid, ended)
		}
		return "", rpc.Unavailable.Errorf("%s: no answer within %s", name, time.Since(began).Round(time.Second))
	}
	text := strings.TrimSpace(out.String())
	var exit *exec.ExitError
	switch {
	case result == nil, errors.Is(result, exec.ErrWaitDelay):
		return text, nil
	case errors.As(result, &exit):
		return text, &failure{code: exit.ExitCode(), output: text, err: result}
	}
	return text, fmt.Errorf("%s: %w", name, result)
}

// changesDisk reports whether a tool makes or repairs a file system. It is never killed: half
// made, some are taken by neither mkfs nor the kernel, and a repair that begins anew with
// each request never ends. Nothing else is done with the disk until it has ended.
func changesDisk(name string) bool { return name == "fsck" || strings.HasPrefix(name, "mkfs.") }

func (t *tools) abandon(name string, pid int, ended chan struct{}) {
	t.r.log.Warn("tool does not end after SIGKILL", "tool", name, "pid", pid)
	t.stuck = append(t.stuck, ended)
	t.r.mu.Lock()
	t.r.lost++
	t.r.mu.Unlock()
	go func() {
		<-ended
		t.r.mu.Lock()
		t.r.lost--
		t.r.mu.Unlock()
	}()
}

// packages of Debian that have the tools.
var packages = map[string]string{
	"mount": "mount", "umount": "mount", "iscsiadm": "open-iscsi", "multipath": "multipath-tools", "blkid": "util-linux", "fsck": "util-linux",
	"mkfs.ext4": "e2fsprogs", "mkfs.ext3": "e2fsprogs", "mkfs.ext2": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs",
	"mkfs.f2fs": "f2fs-tools", "mkfs.vfat": "dosfstools", "dd": "coreutils", "sh": "dash",
}

func (r *runner) find(name string) (string, error) {
	for _, dir := range filepath.SplitList(cmp.Or(r.path, searched)) {
		if program, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return program, nil
		}
	}
	return "", rpc.Conflict.Errorf("%s is not installed on this node (Debian: package %s)", name, packages[name])
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), mostOutput-min(b.buf.Len(), mostOutput))])
	return len(p), nil
}

func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
