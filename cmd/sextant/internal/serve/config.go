// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/config"
)

// KeepSecrets is the help of the flag --keep-secrets.
const KeepSecrets = "how long Secrets and tokens of the node's pods are kept, encrypted, for a start without the API server: disk, through a reboot; boot, until the machine goes down; off, not at all"

var configService = Service{
	Name:  house.Config,
	Short: "What this node should run: manifests, API server, configuration; takes the kubelet's flags",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		flags := &kubeletconfig.Flags{}
		flags.AddFlags(fs)
		keep := fs.String("keep-secrets", "disk", KeepSecrets)
		return func(kit *service.Kit) error {
			load := func() (*kubeletconfig.Config, []kubeletconfig.Warning, error) { return LoadConfig(flags) }
			var watch []string
			for _, name := range []string{"config", "config-dir"} {
				if f := fs.Lookup(name); f != nil && f.Value.String() != "" {
					watch = append(watch, f.Value.String())
				}
			}
			_, err := config.New(config.Config{Load: load, Watch: watch, KeepSecrets: *keep}, config.Deps{Kit: kit})
			return err
		}
	},
}

// LoadConfig reads the flags and the files they name, and refuses what cannot run on
// this machine.
func LoadConfig(flags *kubeletconfig.Flags) (*kubeletconfig.Config, []kubeletconfig.Warning, error) {
	host, err := kubeletconfig.Host()
	if err != nil {
		return nil, nil, err
	}
	conf, warnings, err := kubeletconfig.Load(flags, host)
	if err != nil {
		return nil, warnings, err
	}
	return conf, warnings, kubeletconfig.CheckHost(conf, kubeletconfig.ReadHostFacts(host.Files))
}
