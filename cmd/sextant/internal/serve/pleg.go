// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/pleg"
)

var plegService = Service{
	Name:  house.Pleg,
	Short: "The pod lifecycle event generator: what runs, as the runtime says",
	Flags: func(*pflag.FlagSet) func(*service.Kit) error {
		return func(kit *service.Kit) error {
			_, err := pleg.New(pleg.Config{}, pleg.Deps{Kit: kit})
			return err
		}
	},
}
