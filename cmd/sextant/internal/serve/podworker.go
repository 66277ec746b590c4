// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/podworker"
)

var podworkerService = Service{
	Name:  house.PodWorker,
	Short: "The lifecycle of every pod, and the only connection to the container runtime",
	Flags: func(fs *pflag.FlagSet) func(*service.Kit) error {
		var cfg podworker.Config
		fs.StringVar(&cfg.RuntimeEndpoint, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "the container runtime")
		fs.StringVar(&cfg.ImageEndpoint, "image-service-endpoint", "", "the image service, if it is another endpoint")
		fs.StringVar(&cfg.RootDir, "root-dir", "/var/lib/kubelet", "the kubelet's root directory")
		fs.StringVar(&cfg.PodLogsDir, "pod-logs-dir", "/var/log/pods", "where the pods' logs go")
		fs.StringVar(&cfg.LinksDir, "links-dir", "/var/log/containers", "where the legacy links to the logs go")
		fs.StringVar(&cfg.NodeName, "node-name", "", "name of the Node object")
		fs.StringVar(&cfg.SystemBus, "system-bus", os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), "D-Bus address of the way to logind, for graceful shutdowns of the node")
		return func(kit *service.Kit) error {
			_, err := podworker.New(cfg, podworker.Deps{Kit: kit})
			return err
		}
	},
}
