package reaper

import (
	"errors"
	"slices"
	"time"
)

// Process is one process in a container's cgroup, with ids of the host.
type Process struct {
	PID, Parent, Session int
	// Start is when it was forked, since the boot.
	Start time.Duration
	// Command is its arguments.
	Command []string
}

// Errors of Family.
var (
	errNone      = errors.New("no such command runs in the container")
	errAmbiguous = errors.New("several commands were started in the container, and it cannot be told which is meant")
)

// Family is a command that was started in a container at a time or later, and all
// that has come of it: the processes of its session, their children, and so on.
// What has left both the session and its parents belongs to the container.
//
// A runtime starts a command as the leader of a session, by a process outside the
// container's cgroup. So it does with the container itself, but earlier. Only one with
// the arguments it was started with counts: another may be somebody else's, started
// while this one has yet to begin.
func Family(all []Process, command []string, began time.Duration) ([]Process, error) {
	inside := map[int]bool{}
	for _, p := range all {
		inside[p.PID] = true
	}
	var leaders []Process
	for _, p := range all {
		if p.Session == p.PID && !inside[p.Parent] && p.Start >= began && slices.Equal(p.Command, command) {
			leaders = append(leaders, p)
		}
	}
	switch {
	case len(leaders) == 0:
		return nil, errNone
	case len(leaders) > 1:
		return nil, errAmbiguous
	}
	return related(all, leaders), nil
}

// related are the members and all that has come of them, as far as it shows.
func related(all, members []Process) []Process {
	pids, sessions := map[int]bool{}, map[int]bool{}
	for _, p := range members {
		pids[p.PID], sessions[p.Session] = true, true
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if pids[p.PID] || !sessions[p.Session] && !pids[p.Parent] {
				continue
			}
			pids[p.PID], sessions[p.Session], grown = true, true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p Process) bool { return !pids[p.PID] })
}
