// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

const (
	// patience is how long it may take until one more of the killed processes has ended.
	patience = 5 * time.Second
	// halting is how long a command's processes may take to stop before they are killed
	// as they are.
	halting = 500 * time.Millisecond
	// again is the pause between two checks.
	again = 10 * time.Millisecond
	// maxKnown bounds the cache of cgroups.
	maxKnown = 1024
)

// Reaper serves EndExec, EndPod and WatchKills.
type Reaper struct {
	supervisorv1.UnimplementedSupervisorServiceServer
	// Socket to listen on.
	Socket     string
	Identities house.Identities
	// Root is the cgroup that kubepods is made in.
	Root pod.CgroupName
	Log  *slog.Logger

	mu    sync.Mutex
	known map[string]string // cgroups by container ID

	watches watches
}

// Run serves until ctx ends.
func (r *Reaper) Run(ctx context.Context) error {
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: r.Socket, Identities: r.Identities, Log: r.Log})
	if err != nil {
		return err
	}
	r.watches.closing = ctx.Done()
	supervisorv1.RegisterSupervisorServiceServer(server, r)
	return server.Run(ctx)
}

// identifier is what runtimes name containers with.
var identifier = pattern.Lazy(`^[0-9a-f]{32,128}$`)

// EndExec implements supervisorv1.SupervisorServiceServer.
func (r *Reaper) EndExec(ctx context.Context, req *supervisorv1.EndExecRequest) (*supervisorv1.EndExecResponse, error) {
	id := req.GetContainerId()
	if !identifier().MatchString(id) {
		return nil, rpc.Invalid.Errorf("container_id: %q is no container's", id)
	}
	if len(req.GetCommand()) == 0 || req.GetBegan() == nil {
		return nil, rpc.Invalid.Errorf("command and began are required")
	}
	all, err := r.inside(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, rpc.NotFound.Errorf("container %s has no cgroup", id)
	}
	if err != nil {
		return nil, err
	}
	// Start times are counted in ticks, rounded down.
	family, err := Family(all, req.GetCommand(), req.GetBegan().AsDuration()-tick)
	switch {
	case errors.Is(err, errNone):
		return nil, rpc.NotFound.Errorf("container %s: %w", id, err)
	case err != nil:
		return nil, rpc.Conflict.Errorf("container %s: %w", id, err)
	}
	killed, err := r.end(ctx, id, family)
	return &supervisorv1.EndExecResponse{Killed: int32(killed)}, err
}

// halt stops a family, so that it can be killed whole, and returns it with what it
// forked meanwhile. A child that left its session is recognized by its parent alone,
// and only while that lives: nothing is killed before all are stopped.
func (r *Reaper) halt(ctx context.Context, id string, family []Process) ([]Process, error) {
	ctx, cancel := context.WithTimeout(ctx, halting)
	defer cancel()
	for stood := false; ctx.Err() == nil; {
		for _, p := range family {
			if err := send(p, unix.SIGSTOP); err != nil {
				return family, err
			}
		}
		all, err := r.inside(id)
		if err != nil {
			return family, err
		}
		was := len(family)
		family = related(slices.Concat(family, newcomers(all, family)), family)
		stand := !slices.ContainsFunc(alive(all, family), func(p Process) bool { return !p.Stopped })
		if stand && stood && len(family) == was {
			return family, nil // nothing could fork since the last list, so this one is complete
		}
		if !stand && len(family) == was {
			select {
			case <-ctx.Done():
			case <-time.After(again):
			}
		}
		stood = stand
	}
	return family, nil
}

// end kills until nothing of a family is left.
func (r *Reaper) end(ctx context.Context, id string, family []Process) (killed int, err error) {
	family, err = r.halt(ctx, id, family)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the container has gone, and everything with it
	}
	if err != nil {
		return 0, err
	}
	seen, fewest := map[int]bool{}, len(family)
	stuck := time.NewTimer(patience)
	defer stuck.Stop()
	for left := family; len(left) > 0; {
		if len(left) < fewest {
			fewest = len(left)
			stuck.Reset(patience)
		}
		for _, p := range left {
			if err := send(p, unix.SIGKILL); err != nil {
				return killed, err
			}
			if !seen[p.PID] {
				seen[p.PID] = true
				killed++
			}
		}
		all, err := r.inside(id)
		if errors.Is(err, fs.ErrNotExist) {
			return killed, nil // the container has gone, and everything with it
		}
		if err != nil {
			return killed, err
		}
		// A process that could not be stopped may have forked: the child is in its
		// session, or has a dying parent. A session's number is not reused while a
		// process is in it.
		was := len(family)
		family = related(slices.Concat(family, newcomers(all, family)), family)
		left = alive(all, family)
		if len(left) == 0 || len(family) > was {
			continue
		}
		outlive := rpc.Unavailable.Errorf("container %s: %d processes of the command outlive SIGKILL", id, len(left))
		select {
		case <-ctx.Done():
			return killed, outlive
		case <-stuck.C:
			return killed, outlive
		case <-time.After(again):
		}
	}
	return killed, nil
}

func same(a, b Process) bool { return a.PID == b.PID && a.Start == b.Start }

func newcomers(all, known []Process) []Process {
	return slices.DeleteFunc(slices.Clone(all), func(p Process) bool {
		return slices.ContainsFunc(known, func(k Process) bool { return same(p, k) })
	})
}

func alive(all, family []Process) []Process {
	return slices.DeleteFunc(slices.Clone(all), func(p Process) bool {
		return !slices.ContainsFunc(family, func(k Process) bool { return same(p, k) })
	})
}

// inside lists a container's processes.
func (r *Reaper) inside(id string) ([]Process, error) {
	r.mu.Lock()
	cgroup, ok := r.known[id]
	r.mu.Unlock()
	if !ok {
		var err error
		if cgroup, err = findCgroup(r.Root, id); err != nil {
			return nil, err
		}
		r.mu.Lock()
		if len(r.known) >= maxKnown || r.known == nil {
			r.known = map[string]string{}
		}
		r.known[id] = cgroup
		r.mu.Unlock()
	}
	all, err := processes(cgroup)
	if err != nil {
		r.mu.Lock()
		delete(r.known, id)
		r.mu.Unlock()
	}
	return all, err
}

// watches are the calls of WatchKills that are under way.
type watches struct {
	count atomic.Int32
	// closing is closed when the server ends.
	closing <-chan struct{}
}
