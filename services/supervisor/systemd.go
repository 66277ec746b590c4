// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/supervisor/gate"
)

// gateOf is the socket of a service's gate to the system bus; empty for none.
func gateOf(run string, s house.Service) string {
	if name := house.RightsOf(s).Gate; name != "" {
		return filepath.Join(run, string(s), name)
	}
	return ""
}

// keepGates serves all gates. Whether systemd makes the cgroups, and whether shutdowns
// are delayed, is known only from the runtime and the configuration; a gate without
// requests does nothing.
func (k *keeper) keepGates(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(k.CgroupRoot)
	if err != nil {
		return err
	}
	logind := &gate.Logind{Bus: gate.SystemBus, DropIn: gate.DropIn}
	policies := map[house.Service]gate.Policy{house.Resource: gate.Slices{Root: root}, house.PodWorker: logind}
	var tasks []service.Task
	for s, policy := range policies {
		g := &gate.Gate{Socket: gateOf(k.Run, s), UID: k.Identities()[s], Bus: gate.SystemBus, Policy: policy, Log: k.log}
		tasks = append(tasks, service.Task{Name: "gate of " + string(s), Run: func(ctx context.Context) error {
			return service.Again(ctx, k.log.With("socket", g.Socket), "gate to the system bus", g.Run)
		}})
	}
	return errors.Join(service.RunTasks(ctx, 10*time.Second, tasks...), logind.Release())
}
