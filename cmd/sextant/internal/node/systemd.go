package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/cmd/sextant/internal/gate"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
)

// gated are the services that ask root's things of the system bus, each with its
// socket below the run directory.
var gated = map[house.Service]string{house.Resource: "systemd.sock", house.PodWorker: "logind.sock"}

// gateOf is a service's way to the system bus; empty for none.
func (p *Plan) gateOf(s house.Service) string {
	if name, ok := gated[s]; ok {
		return filepath.Join(p.Run, string(s), name)
	}
	return ""
}

// keepGates keeps those ways open. Which driver makes cgroups, and whether
// shutdowns are waited for, is known when the runtime and the configuration have
// said so; until somebody asks, a gate does nothing.
func (p *Plan) keepGates(ctx context.Context, log *slog.Logger) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil {
		return err
	}
	logind := &gate.Logind{Bus: gate.SystemBus, DropIn: gate.DropIn}
	policies := map[house.Service]gate.Policy{house.Resource: gate.Slices{Root: root}, house.PodWorker: logind}
	var tasks []service.Task
	for s, policy := range policies {
		g := &gate.Gate{Socket: p.gateOf(s), UID: p.Identities()[s], Bus: gate.SystemBus, Policy: policy, Log: log}
		tasks = append(tasks, service.Task{Name: "gate of " + string(s), Run: func(ctx context.Context) error { return keepGate(ctx, g, log) }})
	}
	return errors.Join(service.RunTasks(ctx, 10*time.Second, tasks...), logind.Release())
}

func keepGate(ctx context.Context, g *gate.Gate, log *slog.Logger) error {
	for ctx.Err() == nil {
		if err := g.Run(ctx); err != nil {
			log.Error("gate to the system bus", "socket", g.Socket, "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// stopSlices removes the slices of a node that had a root of its own: stopping
// one stops those below it.
func (p *Plan) stopSlices(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil || len(root) == 0 || !systemd.IsRunningSystemd() {
		return err
	}
	found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", "*", root.Path(pod.Systemd)))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", root.Path(pod.Systemd))); errors.Is(err, fs.ErrNotExist) && len(found) == 0 {
		return nil
	}
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", root.Slice(), err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, root.Slice(), "replace", done); err != nil {
		return fmt.Errorf("%s: %w", root.Slice(), err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: stopping it ended as %s", root.Slice(), result)
		}
	}
	return nil
}
