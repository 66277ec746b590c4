// SPDX-License-Identifier: Apache-2.0

// Package serve wires each service into a process: command-line values in,
// constructor out, one file per service. It decides nothing.
package serve

import (
	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
)

// Service is one process that can be run.
type Service struct {
	Name  house.Service
	Short string
	// Flags declares the service's own flags; what it returns builds the service
	// into a kit after they were parsed.
	Flags func(*pflag.FlagSet) func(*service.Kit) error
}

// Services lists every service of the node in start order (house.Services).
func Services() []Service {
	all := map[house.Service]Service{}
	for _, s := range []Service{busService, configService, nodeapiService, plegService, podworkerService, proberService, resourceService, statusService, volumeService} {
		all[s.Name] = s
	}
	ordered := make([]Service, 0, len(all))
	for _, name := range house.Services() {
		ordered = append(ordered, all[name])
	}
	return ordered
}
