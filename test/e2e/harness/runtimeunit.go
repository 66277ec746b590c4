// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// usualSocket is where every machine has its containerd's.
const usualSocket = "/run/containerd/containerd.sock"

// usualCDIDir is where drivers of every machine write the devices of pods.
const usualCDIDir = "/var/run/cdi"

// runtimeUnit is what packages of containerd install, with this one's program and
// configuration.
const runtimeUnit = `[Unit]
Description=containerd container runtime

[Service]
ExecStart=%s --config %s
Environment=PATH=%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNOFILE=infinity
TasksMax=infinity
`

// StartRuntimeUnit is StartRuntime on a booted machine, as the machine has it: containerd
// is the unit containerd.service, its socket is at the usual place, and nothing but its pods
// is below the cgroups that the kubelet makes by default.
func StartRuntimeUnit(t testing.TB) *Runtime {
	t.Helper()
	r := newRuntime(t, V2)
	r.cfg.Socket, r.cfg.SocketGID, r.cfg.CDIDir = usualSocket, 0, usualCDIDir
	r.cfg.CgroupRoots, r.CgroupRoot = []string{"/kubepods"}, "/"
	r.begin(t)
	if err := unix.Kill(r.PID(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join("/run/systemd/system", "containerd.service")
	text := fmt.Sprintf(runtimeUnit, filepath.Join(r.cfg.BinDir, "containerd"), filepath.Join(r.cfg.Dir, "config.toml"), r.cfg.BinDir)
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { systemctl(context.WithoutCancel(t.Context()), t, "stop", "containerd") })
	Eventually(t, 3*time.Minute, "the first containerd to end", func(context.Context) error {
		if unix.Kill(r.PID(), 0) == nil {
			return fmt.Errorf("process %d is there", r.PID())
		}
		return nil
	})
	systemctl(t.Context(), t, "daemon-reload")
	systemctl(t.Context(), t, "start", "containerd")
	Eventually(t, 3*time.Minute, "containerd to answer", func(ctx context.Context) error {
		_, err := r.Runtimes.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
	return r
}

func systemctl(ctx context.Context, t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		t.Errorf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
