// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
)

var busService = Service{
	Name:  house.Bus,
	Short: "The announcement bus: an embedded NATS server on loopback",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		port := fs.Int("port", 0, "port on loopback; 0 keeps the former one or takes any")
		return func(kit *service.Kit) error {
			if _, err := os.Stat(kit.Paths.BusKeys()); os.IsNotExist(err) {
				if err := bus.EnsureKeys(kit.Paths.BusKeys(), kit.Identities); err != nil {
					return err
				}
			}
			server := bus.NewServer(bus.ServerConfig{
				Keys: kit.Paths.BusKeys(), AddressFile: kit.Paths.BusAddress(), Port: *port, Log: kit.Log,
			})
			kit.Go("nats", func(ctx context.Context) error { return server.Run(ctx, kit.Serving) })
			return nil
		}
	},
}
