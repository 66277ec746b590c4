// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
)

func supervisorFile(run string) string { return filepath.Join(run, "supervisor.pid") }

// Supervise runs every service of the plan until ctx ends, or another agent wants the lock
// file and the plan says to leave it.
func (p *Plan) Supervise(ctx context.Context, log *slog.Logger) error {
	if err := file.Replace(supervisorFile(p.Run), pidText(os.Getpid()), 0o644); err != nil {
		return err
	}
	err := p.supervise(ctx, log)
	if errors.Is(err, errContended) { // as a kubelet ends: without an error
		log.Info("the node ends", "cause", err.Error())
		err = nil
	}
	return errors.Join(err, os.Remove(supervisorFile(p.Run)))
}

func (p *Plan) supervise(ctx context.Context, log *slog.Logger) error {
	k := &keeper{Plan: p, log: log}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	var tasks []service.Task
	if p.LockFile != "" {
		release, err := acquireLock(ctx, p.LockFile, log)
		if err != nil && ctx.Err() != nil {
			return nil // ended while it waited
		}
		if err != nil {
			return err
		}
		defer release()
		if p.ExitOnLockContention {
			watch, err := watchLock(p.LockFile)
			if err != nil {
				return err
			}
			tasks = append(tasks, service.Task{Name: "lock", Run: watch})
		}
	}
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
	tasks = append(tasks,
		service.Task{Name: "tidy", Run: service.Tidy}, service.Task{Name: "reaper", Run: k.keepReaper},
		service.Task{Name: "systemd", Run: func(ctx context.Context) error { return service.Notify(ctx, log, nil) }},
		service.Task{Name: "tools", Run: k.keepTools}, service.Task{Name: "chains", Run: k.keepChains})
	if p.LogDir != "" {
		tasks = append(tasks, service.Task{Name: "logs", Run: k.boundLogs})
	}
	if systemd.IsRunningSystemd() {
		tasks = append(tasks, service.Task{Name: "gates", Run: k.keepGates})
	}
	return service.RunTasks(ctx, 10*time.Second, tasks...)
}

// KeepToolsUnit is the tools and the chains as a systemd unit.
func (p *Plan) KeepToolsUnit(ctx context.Context, log *slog.Logger) error {
	k := &keeper{Plan: p, log: log}
	return service.RunTasks(ctx, 10*time.Second,
		service.Task{Name: "tools", Run: k.keepTools},
		service.Task{Name: "chains", Run: k.keepChains},
		service.Task{Name: "systemd", Run: func(ctx context.Context) error { return service.Notify(ctx, log, nil) }},
		service.Task{Name: "tidy", Run: service.Tidy})
}

// Detach starts a supervisor that outlives the caller.
func (p *Plan) Detach() error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(logFile(p.LogDir, supervisorLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the process has its own descriptor
	cmd := exec.Command(binary, "supervise", "--run-dir="+p.Run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Env = withoutSystemd(os.Environ())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// KeepGates is the root part while systemd runs the services: the gates to the system
// bus, the reaper, and the kubeconfig after a bootstrap.
func (p *Plan) KeepGates(ctx context.Context, log *slog.Logger) error {
	k := &keeper{Plan: p, log: log}
	tasks := []service.Task{
		{Name: "gates", Run: k.keepGates},
		{Name: "reaper", Run: k.keepReaper},
		{Name: "systemd", Run: func(ctx context.Context) error { return service.Notify(ctx, log, nil) }},
		{Name: "tidy", Run: service.Tidy},
	}
	if p.Bootstrap != "" && p.KubeConfig != "" {
		tasks = append(tasks, service.Task{Name: "kubeconfig", Run: k.keepKubeconfig})
	}
	return service.RunTasks(ctx, 10*time.Second, tasks...)
}
