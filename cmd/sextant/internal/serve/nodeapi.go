// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
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
		fs.BoolVar(&cfg.GetStreams, "get-streams", false, "exec, attach, port-forward and run by GET (every WebSocket) need the verb get, as in the kubelet, and not create")
		return func(kit *service.Kit) error {
			return nodeapi.New(cfg, nodeapi.Deps{Kit: kit, Sockets: sockets()})
		}
	},
}

// sockets are those that systemd (sd_listen_fds(3)) or the supervisor started this
// process with. The supervisor cannot know the process's id beforehand and leaves
// LISTEN_PID out.
func sockets() []*os.File {
	if _, said := os.LookupEnv("LISTEN_PID"); !said && os.Getenv("LISTEN_FDS") != "" {
		if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
			return nil // new sockets do as well
		}
	}
	return activation.Files(true)
}
