package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
)

// Args of one service's process.
func (p *Plan) Args(s house.Service) []string {
	args := []string{"run", string(s), "--run-dir=" + p.Run, "--state-dir=" + p.State, "--log-level=" + p.LogLevel}
	if p.Bus != "" {
		args = append(args, "--bus="+p.Bus)
	}
	switch s {
	case house.Config:
		// The operator's flags first: of a flag said twice the last one counts.
		args = append(args, p.Kubelet...)
		args = append(args, "--root-dir="+p.RootDir, "--hostname-override="+p.NodeName)
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

// Environ is what a service's process is told besides: its way to the system bus.
func (p *Plan) Environ(s house.Service) []string {
	if gate := p.gateOf(s); gate != "" && systemd.IsRunningSystemd() {
		return []string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + dbus.EscapeBusAddressValue(gate)}
	}
	return nil
}

// program of a service: the library's, or the supervisor's own.
func (p *Plan) program(s house.Service, own string) string {
	if p.Library != "" {
		if chosen := filepath.Join(p.Library, string(s)); exists(chosen) {
			return chosen
		}
	}
	return own
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *Plan) pidFile(s house.Service) string {
	return filepath.Join(p.Run, string(s)+".pid")
}

// keep starts a service and starts it again whenever it ends, at once the first
// time and at most every three seconds if it keeps ending.
func (p *Plan) keep(ctx context.Context, binary string, s house.Service, log *slog.Logger) error {
	const most = 3 * time.Second
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		ended := p.once(ctx, binary, s, log)
		lived := time.Since(began)
		if ctx.Err() == nil {
			log.Warn("service ended", "service", string(s), "lived", lived.String(), "error", fmt.Sprint(ended))
		}
		if pause = min(max(2*pause, 100*time.Millisecond), most); lived > 10*time.Second {
			pause = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// once runs a service's process until it ends. When ctx ends the process gets
// SIGTERM, and SIGKILL seven seconds later.
func (p *Plan) once(ctx context.Context, binary string, s house.Service, log *slog.Logger) error {
	rights, err := p.rights(s)
	if err != nil {
		return err
	}
	if err := p.tell(); err != nil {
		log.Error("who is who, and the bus's keys", "error", err.Error())
	}
	out, err := os.OpenFile(filepath.Join(p.LogDir, string(s)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil { // a disk that takes no log must not keep a service down
		log.Error("log file", "service", string(s), "error", err.Error())
		if out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			return err
		}
	}
	defer out.Close() //nolint:errcheck // the process has its own descriptor
	cmd := exec.CommandContext(ctx, p.program(s, binary), p.Args(s)...)
	cmd.SysProcAttr = rights
	cmd.Dir = p.WorkDir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(withoutSockets(os.Environ()), "HOME=/nonexistent", "GOTRACEBACK=all")
	cmd.Env = append(cmd.Env, p.Environ(s)...)
	if s == house.NodeAPI {
		p.sockets.pass(cmd, p.Sockets, log)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 7 * time.Second
	if err := startForGood(cmd); err != nil {
		return err
	}
	if err := file.Replace(p.pidFile(s), pidText(cmd.Process.Pid), 0o644); err != nil {
		// It runs all the same; `sextant down` asks the supervisor to end it.
		log.Error("pid file", "service", string(s), "error", err.Error())
	}
	return cmd.Wait()
}

// pidText is what the pid file of a process says: its pid, and when it began, so
// that nobody else is taken for it later.
func pidText(pid int) []byte {
	text := strconv.Itoa(pid)
	if stat, err := readStat(pid); err == nil {
		text += " " + stat.start
	}
	return []byte(text + "\n")
}

// readPID reads a pid file and checks that the process is the one that was meant:
// it began then or, where the file does not say when, has the marker among its
// arguments. It is 0 when there is none.
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
