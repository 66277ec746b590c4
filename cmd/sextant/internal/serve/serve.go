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

// Services lists every process of the node in start order.
func Services() []Service {
	return []Service{busService, podworkerService, configService, plegService, proberService, volumeService, resourceService, statusService, nodeapiService}
}
