package reaper

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pattern"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

const (
	// patience is how long what was killed may take to be gone.
	patience = 5 * time.Second
	// again is how soon it is looked for again.
	again = 10 * time.Millisecond
	// maxKnown bounds how many cgroups are remembered.
	maxKnown = 1024
)

// Reaper serves the order.
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
}

// Run serves until ctx ends.
func (r *Reaper) Run(ctx context.Context) error {
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: r.Socket, Identities: r.Identities, Log: r.Log})
	if err != nil {
		return err
	}
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

// end kills until nothing of a family is left.
func (r *Reaper) end(ctx context.Context, id string, family []Process) (killed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := map[int]bool{}
	for left := family; len(left) > 0; {
		for _, p := range left {
			if err := kill(p); err != nil {
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
		// What they forked before they died is in their sessions, or a child of one
		// that is still dying. A session's number is not used again while one is in it.
		was := len(family)
		family = related(slices.Concat(family, newcomers(all, family)), family)
		left = alive(all, family)
		if len(left) == 0 || len(family) > was {
			continue
		}
		select {
		case <-ctx.Done():
			return killed, rpc.Unavailable.Errorf("container %s: %d processes of the command outlive SIGKILL", id, len(left))
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
