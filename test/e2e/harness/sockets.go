// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Peer is a process with a connection.
type Peer struct {
	PID int
	// Command is the process's arguments, joined by blanks.
	Command string
}

// ConnectedTo lists the processes that hold a connection to the Unix socket at
// path, the test itself aside. It is how a test tells who speaks to the runtime.
func ConnectedTo(t testing.TB, path string) []Peer {
	t.Helper()
	sockets, err := unixSockets()
	if err != nil {
		t.Fatalf("list Unix sockets: %v", err)
	}
	// The accepted ends carry the listener's path; their peers are the clients.
	clients := map[uint32]bool{}
	for _, s := range sockets {
		if s.path == path && s.peer != 0 {
			clients[s.peer] = true
		}
	}
	self, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var peers []Peer
	for _, pid := range allPIDs() {
		if pid == os.Getpid() || !holdsSocket(pid, clients) {
			continue
		}
		cmd, _ := os.ReadFile(procFile(pid, "cmdline")) // it may have ended
		if bytes.Equal(cmd, self) {
			continue // a child of the test that does not run its program yet
		}
		peers = append(peers, Peer{pid, strings.TrimSpace(strings.ReplaceAll(string(cmd), "\x00", " "))})
	}
	return peers
}

func holdsSocket(pid int, inodes map[uint32]bool) bool {
	fds, err := os.ReadDir(procFile(pid, "fd"))
	if err != nil {
		return false // it ended
	}
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(procFile(pid, "fd"), fd.Name()))
		if err != nil {
			continue
		}
		n, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(n, "]"), 10, 32); err == nil && inodes[uint32(inode)] {
			return true
		}
	}
	return false
}

// String is the process as a message shows it.
func (p Peer) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Command) }
