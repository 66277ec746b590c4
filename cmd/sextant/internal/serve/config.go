package serve

import (
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
			load := func() (*kubeconf.Config, []kubeconf.Warning, error) { return LoadConfig(flags) }
			var watch []string
			for _, name := range []string{"config", "config-dir"} {
				if f := fs.Lookup(name); f != nil && f.Value.String() != "" {
					watch = append(watch, f.Value.String())
				}
			}
			_, err := config.New(config.Config{Load: load, Watch: watch}, config.Deps{Kit: kit})
			return err
		}
	},
}

// LoadConfig reads the flags and the files they name for this machine, and
// refuses what cannot run on it.
func LoadConfig(flags *kubeconf.Flags) (*kubeconf.Config, []kubeconf.Warning, error) {
	host, err := kubeconf.Host()
	if err != nil {
		return nil, nil, err
	}
	conf, warnings, err := kubeconf.Load(flags, host)
	if err != nil {
		return nil, warnings, err
	}
	return conf, warnings, kubeconf.CheckHost(conf, kubeconf.ReadHostFacts(host.Files))
}
