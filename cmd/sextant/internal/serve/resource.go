// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/resource"
)

var resourceService = Service{
	Name:  house.Resource,
	Short: "What the node has, who holds it, and the pods' cgroups",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		var cfg resource.Config
		fs.StringVar(&cfg.RootDir, "root-dir", "/var/lib/kubelet", "the kubelet's root directory")
		return func(kit *service.Kit) error {
			_, err := resource.New(cfg, resource.Deps{Kit: kit})
			return err
		}
	},
}
