// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/house"
)

// rights are the uid, groups and capabilities that a service's process is started with.
func (p *Plan) rights(s house.Service) (*syscall.SysProcAttr, error) {
	own, may := p.account(s), house.RightsOf(s)
	cred := &syscall.Credential{Uid: own.UID, Gid: own.GID, Groups: groupsNamed(may.Groups)}
	if may.RuntimeSocket {
		groups, err := runtimeGroups(own, p.Endpoint, p.ImageEndpoint)
		if err != nil {
			return nil, err
		}
		cred.Groups = append(cred.Groups, groups...)
	}
	attr := &syscall.SysProcAttr{Setsid: true, Credential: cred}
	for _, c := range may.Capabilities {
		attr.AmbientCaps = append(attr.AmbientCaps, uintptr(c))
	}
	return attr, nil
}

// groupsNamed are the ids of those of the groups that the node has.
func groupsNamed(names []string) []uint32 {
	groups := []uint32{}
	for _, name := range names {
		g, err := user.LookupGroup(name)
		if err != nil {
			continue
		}
		if gid, err := strconv.ParseUint(g.Gid, 10, 32); err == nil && gid != 0 {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}

// startForGood starts a process that never gains rights, whatever it executes.
// no_new_privs holds for a thread and its children, so the thread that sets it is
// discarded: it stays locked, and ends with the goroutine.
func startForGood(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			result <- fmt.Errorf("no_new_privs: %w", err)
			return
		}
		result <- cmd.Start()
	}()
	return <-result
}

// Startable reports why a service cannot be started at the moment, such as a runtime's
// socket that is not there; nil when nothing is known against it.
func (p *Plan) Startable(s house.Service) error {
	_, err := p.rights(s)
	return err
}

// runtimeGroups are the groups that may open the runtime's sockets. podworker gets no
// other right of them than to connect.
func runtimeGroups(own Account, endpoints ...string) ([]uint32, error) {
	var groups []uint32
	for _, endpoint := range endpoints {
		path := strings.TrimPrefix(endpoint, "unix://")
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("container runtime: %w", err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		mode := info.Mode().Perm()
		switch {
		case owner.Uid == own.UID, mode&0o006 == 0o006, owner.Gid == own.GID:
		case mode&0o060 == 0o060:
			groups = append(groups, owner.Gid)
		default:
			return nil, fmt.Errorf("container runtime: %s has mode %#o: its group must be able to read and write, for podworker runs without root's rights", path, mode)
		}
	}
	return groups, nil
}
