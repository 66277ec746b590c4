// SPDX-License-Identifier: Apache-2.0

package rootsocket

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// dial is the environment of a process that connects to the socket named there.
const dial = "SEXTANT_TEST_ROOTSOCKET"

func TestMain(m *testing.M) {
	path := os.Getenv(dial)
	if path == "" {
		os.Exit(m.Run())
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// TestOnlyRootIsServed, whatever the mode of the socket and its folder; a socket that was
// left is replaced.
func TestOnlyRootIsServed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: it takes another user")
	}
	dir, err := os.MkdirTemp("", "rootsocket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubelet.sock")
	for range 2 {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // the test is over
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("x"))
			}
		}()
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if err := os.WriteFile(self, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for uid, served := range map[uint32]bool{0: true, 4711: false} {
		c := exec.Command(self)
		c.Env = append(os.Environ(), dial+"="+path)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0}}
		if err := c.Run(); (err == nil) != served {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}
