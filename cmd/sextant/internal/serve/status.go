// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/status"
)

var statusService = Service{
	Name:  house.Status,
	Short: "Writes to the API server: pod status, mirror pods, Node, Lease, Events",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		var cfg status.Config
		fs.StringVar(&cfg.NodeName, "node-name", "", "name of the Node object")
		return func(kit *service.Kit) error {
			_, err := status.New(cfg, status.Deps{Kit: kit})
			return err
		}
	},
}
