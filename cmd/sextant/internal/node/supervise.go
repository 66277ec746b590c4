package node

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

	"github.com/sextant-node/sextant/cmd/sextant/internal/reaper"
	"github.com/sextant-node/sextant/cmd/sextant/internal/tools"
	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
)

func supervisorFile(run string) string { return filepath.Join(run, "supervisor.pid") }

// Supervise runs every service of the plan until ctx ends.
func (p *Plan) Supervise(ctx context.Context, log *slog.Logger) error {
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
			continue // switched off, or the user's own
		}
		tasks = append(tasks, service.Task{Name: string(s), Run: func(ctx context.Context) error {
			return p.keep(ctx, binary, s, log)
		}})
	}
	if p.Bootstrap != "" && p.KubeConfig != "" {
		tasks = append(tasks, service.Task{Name: "kubeconfig", Run: func(ctx context.Context) error { return p.keepKubeconfig(ctx, log) }})
	}
	tasks = append(tasks, service.Task{Name: "tidy", Run: service.Tidy})
	tasks = append(tasks, service.Task{Name: "reaper", Run: func(ctx context.Context) error { return p.keepReaper(ctx, log) }})
	tasks = append(tasks, service.Task{Name: "tools", Run: func(ctx context.Context) error { return p.KeepTools(ctx, log) }})
	if systemd.IsRunningSystemd() {
		tasks = append(tasks, service.Task{Name: "gates", Run: func(ctx context.Context) error { return p.keepGates(ctx, log) }})
	}
	err = service.RunTasks(ctx, 10*time.Second, tasks...)
	return errors.Join(err, os.Remove(supervisorFile(p.Run)))
}

// keepReaper serves what ends commands in containers.
func (p *Plan) keepReaper(ctx context.Context, log *slog.Logger) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		r := &reaper.Reaper{Socket: p.Paths().Supervisor(), Identities: p.Identities(), Root: root, Log: log}
		if err := r.Run(ctx); err != nil {
			log.Error("reaper", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// KeepTools serves what runs root's tools for volume.
func (p *Plan) KeepTools(ctx context.Context, log *slog.Logger) error {
	for ctx.Err() == nil {
		s := tools.New(tools.Config{Socket: p.Paths().Tools(), Identities: p.Identities(), Root: p.RootDir, Log: log})
		if err := s.Run(ctx); err != nil {
			log.Error("tools", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// KeepToolsUnit is KeepTools where systemd keeps it.
func (p *Plan) KeepToolsUnit(ctx context.Context, log *slog.Logger) error {
	return service.RunTasks(ctx, 10*time.Second,
		service.Task{Name: "tools", Run: func(ctx context.Context) error { return p.KeepTools(ctx, log) }},
		service.Task{Name: "systemd", Run: func(ctx context.Context) error { return notify(ctx, log) }})
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

// Stop ends the supervisor and every service, whoever keeps them. Pods go on running.
func Stop(ctx context.Context, run string) error {
	if p, err := ReadPlan(run); err == nil && p.Units {
		return stopUnit(ctx, Slice)
	}
	return StopProcesses(ctx, run)
}

// StopProcesses ends the supervisor and the services it started.
func StopProcesses(ctx context.Context, run string) error {
	marker := "--run-dir=" + run
	files := []string{supervisorFile(run)} // first, or it starts the others again
	for _, s := range house.Services() {
		files = append(files, (&Plan{Run: run}).pidFile(s))
	}
	for _, file := range files {
		if err := end(ctx, file, marker); err != nil {
			return err
		}
	}
	return nil
}

// StopService ends one service, which the supervisor starts again.
func StopService(ctx context.Context, run string, s house.Service) error {
	return end(ctx, (&Plan{Run: run}).pidFile(s), "--run-dir="+run)
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

// zombie tells whether a process has ended and only waits to be reaped.
func zombie(pid int) bool {
	stat, err := readStat(pid)
	return err != nil || stat.state == "Z"
}
