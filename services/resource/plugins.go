// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
	"github.com/sextant-node/sextant/pkg/service"
)

// pluginIntake takes in the plugins that give pods what is not the node's own: DRA drivers and
// device plugins in the folder of all plugins, and device plugins at their own socket.
type pluginIntake struct {
	dir     string // plugins_registry
	claims  *claims
	devices *podDevices
	log     *slog.Logger
}

// run registers plugins until ctx ends.
func (p pluginIntake) run(ctx context.Context) error {
	drivers, claims := p.claims.registration()
	kind, devices := p.devices.manager.Registration(ctx)
	registry := pluginregistration.New(pluginregistration.Config{
		Dir: p.dir, Types: map[string]pluginregistration.Type{drivers: claims, kind: devices}, Refuses: true, Log: p.log,
	})
	var folder sync.WaitGroup
	defer folder.Wait()
	folder.Go(func() {
		if err := registry.Run(ctx); err != nil {
			p.log.Error("no plugin can register in the folder of plugins", "error", err.Error())
		}
	})
	return service.Again(ctx, p.log, "no device plugin can register", p.devices.manager.Serve)
}
