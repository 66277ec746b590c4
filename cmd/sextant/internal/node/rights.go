package node

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

// capabilities are what a service may do beyond its uid; those not listed have
// none (docs/architecture.md, the owner table).
var capabilities = map[house.Service][]uintptr{
	// The operator's files are root's: manifests, kubeconfigs, keys (decision 0008).
	house.Config: {unix.CAP_DAC_READ_SEARCH},
	// FSETID keeps the setgid bit of folders given to a pod's fsGroup.
	house.Volume:   {unix.CAP_SYS_ADMIN, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID},
	house.Resource: {unix.CAP_DAC_OVERRIDE},
}

// rights are how a service's process is started.
func (p *Plan) rights(s house.Service) (*syscall.SysProcAttr, error) {
	uid := p.Identities()[s]
	cred := &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}
	switch s {
	case house.PodWorker:
		groups, err := runtimeGroups(uid, p.Endpoint, p.ImageEndpoint)
		if err != nil {
			return nil, err
		}
		cred.Groups = groups
	case house.NodeAPI:
		cred.Groups = logGroups()
	}
	return &syscall.SysProcAttr{Setsid: true, Credential: cred, AmbientCaps: capabilities[s]}, nil
}

// logReaders are the groups that distributions let read the node's logs: files
// below /var/log, and the journal.
var logReaders = []string{"adm", "systemd-journal"}

// logGroups are those of them that the node has.
func logGroups() []uint32 {
	groups := []uint32{}
	for _, name := range logReaders {
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
// The promise (no_new_privs) is a thread's and its children's, so the thread
// that makes it is thrown away: it stays locked, and ends with the goroutine.
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

// runtimeGroups are the groups that may open the runtime's sockets. The right
// to connect is all podworker gets of them.
func runtimeGroups(uid uint32, endpoints ...string) ([]uint32, error) {
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
		case owner.Uid == uid, mode&0o006 == 0o006, owner.Gid == uid:
		case mode&0o060 == 0o060:
			groups = append(groups, owner.Gid)
		default:
			return nil, fmt.Errorf("container runtime: %s has mode %#o: its group must be able to read and write, for podworker runs without root's rights", path, mode)
		}
	}
	return groups, nil
}
