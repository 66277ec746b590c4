// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sextant-node/sextant/pkg/pluginregistration"
)

// pluginIntake takes in the plugins that give pods what is not the node's own: DRA drivers and
// device plugins in the folder of all plugins, and device plugins at their own socket.
type pluginIntake struct {
	dir     string // plugins_registry
	claims  *claims
	devices *podDevices
	log     *slog.Logger
}

// serveRetry is when the socket of device plugins is made again if it could not be.
const serveRetry = time.Second

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
	for {
		if err := p.devices.manager.Serve(ctx); err != nil {
			p.log.Error("no device plugin can register", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(serveRetry):
		}
	}
}
