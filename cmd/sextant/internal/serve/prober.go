// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/prober"
)

var proberService = Service{
	Name:  house.Prober,
	Short: "Liveness, readiness and startup probes",
	Flags: func(*pflag.FlagSet) func(*service.Kit) error {
		return func(kit *service.Kit) error {
			_, err := prober.New(prober.Config{}, prober.Deps{Kit: kit})
			return err
		}
	},
}
