// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// heldSockets are listening sockets that the supervisor holds open while the process
// that serves them restarts, so that connections queue instead of being refused.
type heldSockets struct {
	mu    sync.Mutex
	files map[string]*os.File
	// dropped are those that were closed: the configuration has another port.
	dropped map[string]bool
}

// pass passes a process the sockets of some addresses, and opens those not yet open
// (sd_listen_fds(3), without LISTEN_PID, which is not known before). The process itself
// tries those that cannot be opened.
func (h *heldSockets) pass(cmd *exec.Cmd, addresses map[string]string, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files == nil {
		h.files, h.dropped = map[string]*os.File{}, map[string]bool{}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		if file := h.files[name]; file != nil && !listens(file) {
			_ = file.Close() // nothing was written to it
			delete(h.files, name)
			h.dropped[name] = true
		}
		if h.dropped[name] {
			continue
		}
		if h.files[name] == nil {
			file, err := listen(addresses[name])
			if err != nil {
				log.Warn("socket not held open", "socket", name, "error", err.Error())
				continue
			}
			h.files[name] = file
		}
		names = append(names, name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, h.files[name])
	}
	if len(names) > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
}

func listen(address string) (*os.File, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	file, err := l.(*net.TCPListener).File()
	return file, errors.Join(err, l.Close())
}

// listens reports whether a socket still accepts connections.
func listens(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	accepting := 0
	controlled := raw.Control(func(fd uintptr) { accepting, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN) })
	return controlled == nil && err == nil && accepting == 1
}

// withoutSystemd is an environment without the variables by which systemd speaks with this
// process alone: sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3).
func withoutSystemd(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, "LISTEN_") || strings.HasPrefix(v, "NOTIFY_SOCKET=") || strings.HasPrefix(v, "WATCHDOG_")
	})
}
