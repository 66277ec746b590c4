// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/pkg/backoff"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// Args are the arguments that run one service by the plan.
func (p *Plan) Args(s house.Service) []string {
	args := []string{"run", string(s), "--run-dir=" + p.Run, "--state-dir=" + p.State, "--log-level=" + p.LogLevel}
	if p.Bus != "" {
		args = append(args, "--bus="+p.Bus)
	}
	if p.LogFormat != "" {
		args = append(args, "--log-format="+p.LogFormat)
	}
	switch s {
	case house.Config:
		// The operator's flags first: of a repeated flag the last one counts.
		args = append(args, p.Kubelet...)
		args = append(args, "--root-dir="+p.RootDir, "--hostname-override="+p.NodeName)
		if p.KeepSecrets != "" {
			args = append(args, "--keep-secrets="+p.KeepSecrets)
		}
	case house.Status:
		args = append(args, "--node-name="+p.NodeName)
	case house.PodWorker:
		args = append(args, "--container-runtime-endpoint="+p.Endpoint, "--root-dir="+p.RootDir,
			"--pod-logs-dir="+p.PodLogsDir, "--links-dir="+p.LinksDir, "--node-name="+p.NodeName)
		if p.ImageEndpoint != "" {
			args = append(args, "--image-service-endpoint="+p.ImageEndpoint)
		}
	case house.Volume, house.Resource:
		args = append(args, "--root-dir="+p.RootDir)
	case house.NodeAPI:
		args = append(args, "--node-name="+p.NodeName)
		if p.GetStreams {
			args = append(args, "--get-streams")
		}
	}
	return args
}

// Environ is the additional environment of a service's process: the address of its gate
// to the system bus.
func (p *Plan) Environ(s house.Service) []string {
	if gate := gateOf(p.Run, s); gate != "" && systemd.IsRunningSystemd() {
		return []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + dbus.EscapeBusAddressValue(gate)}
	}
	return nil
}

// program of a service: the library's, or the supervisor's own.
func program(library string, s house.Service, own string) string {
	if library != "" {
		if chosen := filepath.Join(library, string(s)); file.Exists(chosen) {
			return chosen
		}
	}
	return own
}

func pidFile(run string, s house.Service) string { return filepath.Join(run, string(s)+".pid") }

// keep runs a service and restarts it whenever it ends: at once after a life of more than
// ten seconds, else with pauses of up to three seconds.
func (k *keeper) keep(ctx context.Context, binary string, s house.Service) error {
	const lasting = 10 * time.Second
	restarts := backoff.Doubling{Least: 100 * time.Millisecond, Most: 3 * time.Second}
	for short := 0; ctx.Err() == nil; {
		began := time.Now()
		ended := k.once(ctx, binary, s)
		lived := time.Since(began)
		if ctx.Err() == nil {
			k.log.Warn("service ended", "service", string(s), "lived", lived.String(), "error", fmt.Sprint(ended))
		}
		if short++; lived > lasting {
			short = 0
			continue
		}
		if !restarts.Wait(ctx, short) {
			return nil
		}
	}
	return nil
}

// once runs a service's process until it ends. When ctx ends the process gets
// SIGTERM, and SIGKILL seven seconds later.
func (k *keeper) once(ctx context.Context, binary string, s house.Service) error {
	rights, err := k.rights(s)
	if err != nil {
		return err
	}
	if err := k.tell(); err != nil {
		k.log.Error("identities and bus keys not written", "error", err.Error())
	}
	out := os.Stderr
	if k.LogDir != "" {
		out, err = os.OpenFile(logFile(k.LogDir, string(s)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil { // a disk that takes no writes must not keep a service down
			k.log.Error("log file", "service", string(s), "error", err.Error())
			if out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
				return err
			}
		}
		defer out.Close() //nolint:errcheck // the process has its own descriptor
	}
	// The process reads its flags from the plan: every user can read arguments.
	cmd := exec.CommandContext(ctx, program(k.Library, s, binary), "start", string(s), "--run-dir="+k.Run)
	cmd.SysProcAttr = rights
	cmd.Dir = k.WorkDir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(withoutSystemd(os.Environ()), "HOME=/nonexistent", "GOTRACEBACK=all")
	cmd.Env = append(cmd.Env, k.Environ(s)...)
	if s == house.NodeAPI {
		k.sockets.pass(cmd, k.Sockets, k.log)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 7 * time.Second
	if err := startForGood(cmd); err != nil {
		return err
	}
	if err := file.Replace(pidFile(k.Run, s), pidText(cmd.Process.Pid), 0o644); err != nil {
		// The process runs without it; `sextant down` ends it by the supervisor.
		k.log.Error("pid file", "service", string(s), "error", err.Error())
	}
	return cmd.Wait()
}

// pidText is the content of a pid file: the process's pid and start time, so that a
// later process with the same pid is not mistaken for it.
func pidText(pid int) []byte {
	text := strconv.Itoa(pid)
	if stat, err := readStat(pid); err == nil {
		text += " " + stat.start
	}
	return []byte(text + "\n")
}

// readPID reads a pid file and checks that the process is the one meant: it has the
// start time of the file or, in a file without one, the marker among its arguments. It
// is 0 if there is none.
func readPID(path, marker string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	number, start, dated := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 {
		return 0
	}
	if dated {
		if stat, err := readStat(pid); err != nil || stat.start != start {
			return 0
		}
		return pid
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(strings.ReplaceAll(string(cmdline), "\x00", " "), marker) {
		return 0
	}
	return pid
}
