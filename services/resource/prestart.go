// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"

	"github.com/sextant-node/sextant/pkg/rpc"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/devices"
)

// preStart calls PreStartContainer of the plugins that want it for a container, one after
// the other. A plugin wants it that said so when it gave the devices, or says so now.
func (d *podDevices) preStart(ctx context.Context, uid, container string) error {
	var given []*resourcev1.PluginDevices
	d.ledger.set(func() {
		if h := d.ledger.held[uid]; h != nil {
			given = pluginDevices(h.chosen, container)
		}
	})
	for _, one := range given {
		name := one.GetResource()
		if r := d.manager.Inventory()[name]; !one.GetPrestart() && (r == nil || !r.Prestarts) {
			continue
		}
		asked := d.manager.PreStart(name, devices.RecordIDs(one))
		over := func() {
			<-asked.Done
			asked.Over()
		}
		select {
		case <-asked.Done:
			asked.Over()
		case <-ctx.Done(): // the pod is not to start any more
			go over()
			return ctx.Err()
		}
		switch {
		case errors.Is(asked.Err, devices.ErrAway):
			return rpc.Unavailable.Errorf("waiting for the device plugin of %s: %w", name, asked.Err)
		case asked.Err != nil:
			return rpc.Conflict.Errorf("device plugin PreStartContainer rpc failed with err: %w", asked.Err)
		}
	}
	return nil
}

// pluginDevices are those of a container.
func pluginDevices(chosen *resourcev1.Chosen, container string) []*resourcev1.PluginDevices {
	for _, c := range chosen.GetContainers() {
		if c.GetName() == container {
			return c.GetPluginDevices()
		}
	}
	return nil
}
