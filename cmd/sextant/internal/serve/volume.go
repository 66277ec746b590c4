// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os/exec"

	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/volume"
)

// VolumeSteps is the verb of volume's children.
const VolumeSteps = "volume-steps"

var volumeService = Service{
	Name:  house.Volume,
	Short: "Mounts the volumes of pods",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		var cfg volume.Config
		fs.StringVar(&cfg.RootDir, "root-dir", "/var/lib/kubelet", "the kubelet's root directory")
		return func(kit *service.Kit) error {
			cfg.Child = func() *exec.Cmd { return exec.Command("/proc/self/exe", VolumeSteps, "--root-dir="+cfg.RootDir) }
			_, err := volume.New(cfg, volume.Deps{Kit: kit})
			return err
		}
	},
}
