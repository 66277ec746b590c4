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

	"github.com/sextant-node/sextant/pkg/rpc"
)

const (
	// mostAtPlace is how many orders concern one server at a time: one that is gone
	// holds up those few tools, the others wait here.
	mostAtPlace = 4
	// mostTools is how many may have been killed and not have ended before none is started any more.
	mostTools = 64
	// mercy is how long a tool that was killed may take to end.
	mercy = 2 * time.Second
	// mostOutput of a tool is kept.
	mostOutput = 16 << 10
)

// searched is where tools are looked for, whatever the environment says.
const searched = "/usr/sbin:/usr/bin:/sbin:/bin"

// failure is what a tool that ran and failed said.
type failure struct {
	code   int
	output string
	err    error
}

func (f *failure) Error() string { return fmt.Sprintf("%v: %s", f.err, f.output) }

// runner runs tools, bounded by what they concern.
type runner struct {
	// path is the folders searched for tools, separated by colons.
	path string
	// patience is how long what comes by itself is waited for; zero for what suits it.
	patience time.Duration
	log      *slog.Logger

	mu     sync.Mutex
	turns  map[string]chan struct{} // by thing: one at a time
	places map[string]*place
	lost   int // tools that were killed and have not ended
}

type place struct {
	slots chan struct{}
	users int
}

// wait is how long to wait for something that suits it to be waited for so long.
func (r *runner) wait(suits time.Duration) time.Duration { return cmp.Or(r.patience, suits) }

// take waits for a thing's turn at a place. What it returns ends it.
func (r *runner) take(ctx context.Context, thing, at string) (end func(), err error) {
	r.mu.Lock()
	if r.turns == nil {
		r.turns, r.places = map[string]chan struct{}{}, map[string]*place{}
	}
	p := r.places[at]
	if p == nil {
		p = &place{slots: make(chan struct{}, mostAtPlace)}
		r.places[at] = p
	}
	p.users++
	r.mu.Unlock()
	leave := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(r.places, at)
		}
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, rpc.Unavailable.Errorf("%s: other calls about %s have not ended", thing, at)
	}
	free := func() { <-p.slots; leave() }
	for {
		r.mu.Lock()
		busy := r.turns[thing]
		if busy == nil {
			mine := make(chan struct{})
			r.turns[thing] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.turns, thing)
				r.mu.Unlock()
				close(mine)
				free()
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			free()
			return nil, rpc.Unavailable.Errorf("%s: an earlier call has not ended", thing)
		}
	}
}

// do carries out an order in its thing's turn. The turn outlives the order while a
// tool of it does not end.
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

// tools are those of one order.
type tools struct {
	r     *runner
	ctx   context.Context
	stuck []chan struct{}
}

// run runs a tool to its end and returns what it wrote. Errors carry no
// arguments: some are secret.
func (t *tools) run(name string, args ...string) (string, error) {
	if err := t.ctx.Err(); err != nil {
		return "", rpc.Unavailable.Errorf("%s: not begun in time", name)
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
	// A tool that leaves a daemon behind (rpc.statd) leaves it its output as well.
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
		// The whole session, for mount(8) is not the one that waits.
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

func (t *tools) abandon(name string, pid int, ended chan struct{}) {
	t.r.log.Warn("killed, and does not end", "tool", name, "pid", pid)
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
