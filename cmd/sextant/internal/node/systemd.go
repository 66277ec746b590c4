package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups/systemd"

	"github.com/sextant-node/sextant/cmd/sextant/internal/gate"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
)

// gateOf is a service's way to the system bus; empty for none.
func (p *Plan) gateOf(s house.Service) string {
	if name := house.RightsOf(s).Gate; name != "" {
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
	if len(hostHierarchies().at(root.Path(pod.Systemd))) == 0 {
		return nil
	}
	return stopUnit(ctx, root.Slice())
}
