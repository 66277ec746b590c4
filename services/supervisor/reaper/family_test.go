// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// p is a process of a container: pid, parent, session, seconds since boot.
func p(pid, parent, session int, start int, command string) Process {
	return Process{PID: pid, Parent: parent, Session: session, Start: time.Duration(start) * time.Second, Command: strings.Fields(command)}
}

func TestFamily(t *testing.T) {
	const shim = 50 // outside the cgroup
	own := []Process{
		p(100, shim, 100, 10, "app"),
		p(101, 100, 100, 11, "worker"),
		p(102, 100, 102, 40, "daemon"), // its own session, made while the command ran
		p(103, 102, 102, 41, "daemon child"),
	}
	with := func(more ...Process) []Process { return append(slices.Clone(own), more...) }
	for _, tc := range []struct {
		name    string
		all     []Process
		command string
		want    []int
		err     error
	}{
		{"alone", with(p(200, shim, 200, 40, "sh -c x")), "sh -c x", []int{200}, nil},
		{"became another program, or is somebody else's", with(p(200, shim, 200, 40, "sleep 100")), "sh -c x", nil, errNone},
		{"children of its session", with(p(200, shim, 200, 40, "sh -c x"), p(201, 200, 200, 40, "a"), p(202, 201, 200, 41, "b")), "sh -c x", []int{200, 201, 202}, nil},
		{"orphans of its session", with(p(200, shim, 200, 40, "sh -c x"), p(201, 100, 200, 40, "a")), "sh -c x", []int{200, 201}, nil},
		{"a child with a session of its own", with(p(200, shim, 200, 40, "sh -c x"), p(201, 200, 201, 40, "a"), p(202, 201, 201, 41, "b"), p(203, 100, 201, 42, "c")), "sh -c x", []int{200, 201, 202, 203}, nil},
		{"older commands are others'", with(p(150, shim, 150, 30, "sh"), p(200, shim, 200, 40, "sh -c x")), "sh -c x", []int{200}, nil},
		{"of several the one with the arguments", with(p(200, shim, 200, 40, "sh -c x"), p(300, shim, 300, 41, "sh -c y"), p(301, 300, 300, 41, "z")), "sh -c y", []int{300, 301}, nil},
		{"none with the arguments", with(p(200, shim, 200, 40, "sleep 1"), p(300, shim, 300, 41, "sleep 2")), "sh -c y", nil, errNone},
		{"two with the arguments", with(p(200, shim, 200, 40, "sh -c y"), p(300, shim, 300, 41, "sh -c y")), "sh -c y", nil, errAmbiguous},
		{"it has ended", own, "sh -c x", nil, errNone},
		{"it has ended and left something", with(p(201, 100, 200, 40, "a")), "sh -c x", nil, errNone},
		{"nothing runs", nil, "sh -c x", nil, errNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Family(tc.all, strings.Fields(tc.command), 35*time.Second)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			var pids []int
			for _, p := range got {
				pids = append(pids, p.PID)
			}
			if !slices.Equal(pids, tc.want) {
				t.Errorf("%v, want %v", pids, tc.want)
			}
			for _, p := range own {
				if slices.Contains(pids, p.PID) {
					t.Errorf("process %d is the container's own", p.PID)
				}
			}
		})
	}
}
