// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups/systemd"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/supervisor/chains"
	"github.com/sextant-node/sextant/services/supervisor/reaper"
	"github.com/sextant-node/sextant/services/supervisor/tools"
)

func supervisorFile(run string) string { return filepath.Join(run, "supervisor.pid") }

// keeper keeps what a plan runs going: the services' processes, and what is root's.
type keeper struct {
	*Plan
	log     *slog.Logger
	sockets heldSockets
}

// Supervise runs every service of the plan until ctx ends.
func (p *Plan) Supervise(ctx context.Context, log *slog.Logger) error {
	k := &keeper{Plan: p, log: log}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	if err := file.Replace(supervisorFile(p.Run), pidText(os.Getpid()), 0o644); err != nil {
		return err
	}
	var tasks []service.Task
	for _, s := range house.Services() {
		if s == house.Bus && p.Bus != "" {
			continue // switched off, or the operator's own
		}
		tasks = append(tasks, service.Task{Name: string(s), Run: func(ctx context.Context) error {
			return k.keep(ctx, binary, s)
		}})
	}
	if p.Bootstrap != "" && p.KubeConfig != "" {
		tasks = append(tasks, service.Task{Name: "kubeconfig", Run: k.keepKubeconfig})
	}
	tasks = append(tasks, service.Task{Name: "tidy", Run: service.Tidy})
	tasks = append(tasks, service.Task{Name: "reaper", Run: k.keepReaper})
	tasks = append(tasks, service.Task{Name: "tools", Run: k.keepTools})
	tasks = append(tasks, service.Task{Name: "chains", Run: k.keepChains})
	if p.LogDir != "" {
		tasks = append(tasks, service.Task{Name: "logs", Run: k.boundLogs})
	}
	if systemd.IsRunningSystemd() {
		tasks = append(tasks, service.Task{Name: "gates", Run: k.keepGates})
	}
	err = service.RunTasks(ctx, 10*time.Second, tasks...)
	return errors.Join(err, os.Remove(supervisorFile(p.Run)))
}

// keepReaper runs the reaper, and restarts it if it fails.
func (k *keeper) keepReaper(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(k.CgroupRoot)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		r := &reaper.Reaper{Socket: k.Paths().Supervisor(), Identities: k.Identities(), Root: root, Log: k.log}
		if err := r.Run(ctx); err != nil {
			k.log.Error("reaper not served", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// keepTools runs the server of root's tools for volume, and restarts it if it fails.
func (k *keeper) keepTools(ctx context.Context) error {
	for ctx.Err() == nil {
		s := tools.New(tools.Config{Socket: k.Paths().Tools(), Identities: k.Identities(), Root: k.RootDir, Log: k.log})
		if err := s.Run(ctx); err != nil {
			k.log.Error("tools not served", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// keepChains keeps the kubelet's chains of iptables, if the node is to have them.
func (k *keeper) keepChains(ctx context.Context) error {
	if k.Chains {
		(&chains.Keeper{Log: k.log, Clock: clock.RealClock{}}).Keep(ctx)
	}
	<-ctx.Done()
	return nil
}

// KeepToolsUnit is the tools and the chains as a systemd unit.
func (p *Plan) KeepToolsUnit(ctx context.Context, log *slog.Logger) error {
	k := &keeper{Plan: p, log: log}
	return service.RunTasks(ctx, 10*time.Second,
		service.Task{Name: "tools", Run: k.keepTools},
		service.Task{Name: "chains", Run: k.keepChains},
		service.Task{Name: "systemd", Run: func(ctx context.Context) error { return notify(ctx, log) }},
		service.Task{Name: "tidy", Run: service.Tidy})
}

// Detach starts a supervisor that outlives the caller.
func (p *Plan) Detach() error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(p.LogDir, "supervisor.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the process has its own descriptor
	cmd := exec.Command(binary, "supervise", "--run-dir="+p.Run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// Stop ends the supervisor and every service, or with systemd the slice. Pods go on
// running.
func Stop(ctx context.Context, run string) error {
	if p, err := ReadPlan(run); err == nil && p.Units {
		return StopUnit(ctx, Slice)
	}
	return StopProcesses(ctx, run)
}

// StopProcesses ends the supervisor and the services it started.
func StopProcesses(ctx context.Context, run string) error {
	marker := "--run-dir=" + run
	files := []string{supervisorFile(run)} // first, or it restarts the others
	for _, s := range house.Services() {
		files = append(files, pidFile(run, s))
	}
	for _, file := range files {
		if err := end(ctx, file, marker); err != nil {
			return err
		}
	}
	return nil
}

// StopService ends one service, which the supervisor restarts.
func StopService(ctx context.Context, run string, s house.Service) error {
	return end(ctx, pidFile(run, s), "--run-dir="+run)
}

// end stops the process of a pid file: SIGTERM, and SIGKILL after ten seconds.
func end(ctx context.Context, file, marker string) error {
	pid := readPID(file, marker)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %d: %w", pid, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for readPID(file, marker) == pid && !zombie(pid) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		case <-tick.C:
		}
	}
	return nil
}

// zombie reports whether a process has ended and waits to be reaped.
func zombie(pid int) bool {
	stat, err := readStat(pid)
	return err != nil || stat.state == "Z"
}
