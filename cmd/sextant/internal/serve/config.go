package serve

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/config"
)

var configService = Service{
	Name:  house.Config,
	Short: "What this node should run: manifests, API server, configuration; takes the kubelet's flags",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		flags := &kubeconf.Flags{}
		flags.AddFlags(fs)
		return func(kit *service.Kit) error {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			load := func() (*kubeconf.Config, []kubeconf.Warning, error) {
				return kubeconf.Load(flags, kubeconf.Inputs{Files: os.DirFS("/"), WorkDir: dir, Hostname: host})
			}
			var watch []string
			for _, name := range []string{"config", "config-dir"} {
				if f := fs.Lookup(name); f != nil && f.Value.String() != "" {
					watch = append(watch, f.Value.String())
				}
			}
			_, err = config.New(config.Config{Load: load, Watch: watch}, config.Deps{Kit: kit})
			return err
		}
	},
}
