// SPDX-License-Identifier: Apache-2.0

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
	// Stopped reports whether a signal or a tracer has stopped it.
	Stopped bool
	// Command is its arguments.
	Command []string
}

// Errors of Family.
var (
	errNone      = errors.New("no such command runs in the container")
	errAmbiguous = errors.New("several commands in the container match, and which one is meant is unknown")
)

// Family is a command that was started in a container at a time or later, with its
// descendants: the processes of its session, their children, and so on. A process that
// has left both the session and its parents belongs to the container.
//
// A runtime starts a command as the leader of a session, by a process outside the
// container's cgroup. So it does with the container itself, but earlier. Only one with
// the same arguments counts: another may be a different caller's, started before this
// one began.
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

// related are the members and their descendants, as far as those can be recognized.
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
