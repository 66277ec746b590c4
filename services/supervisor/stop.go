// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
)

// Stop ends the supervisor and every service, or with systemd the slice. Pods go on
// running.
func Stop(ctx context.Context, p *Plan) error {
	if p.Units {
		return StopUnit(ctx, Slice)
	}
	return StopProcesses(ctx, p.Run)
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
