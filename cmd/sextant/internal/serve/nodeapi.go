package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi"
)

var nodeapiService = Service{
	Name:  house.NodeAPI,
	Short: "The kubelet's HTTPS API on 10250, and healthz",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		var cfg nodeapi.Config
		fs.StringVar(&cfg.NodeName, "node-name", "", "name of the Node object")
		return func(kit *service.Kit) error {
			_, err := nodeapi.New(cfg, nodeapi.Deps{Kit: kit})
			return err
		}
	},
}
