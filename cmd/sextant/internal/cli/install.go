// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/cmd/sextant/internal/install"
	"github.com/sextant-node/sextant/pkg/service"
)

func installCommand() *cobra.Command {
	r := install.Request{Version: service.Version}
	hold := false
	c := &cobra.Command{
		Use:   "install",
		Short: "From a privileged container, install the package of its image on the machine",
		Long: `Install the package that the image holds on the machine that runs the container: with
the machine's dpkg, or without one as dpkg would. The container has to be privileged, with
the machine's processes (hostPID) and network. A version that is there already is left
alone. See deploy/installer for a DaemonSet.`,
		Example: `  sextant install --migrate`,
		Args:    cobra.NoArgs,
		PreRunE: asRoot("it changes the machine"),
		RunE: func(c *cobra.Command, _ []string) error {
			if hold {
				<-c.Context().Done()
				return nil
			}
			r.Out = c.OutOrStdout()
			return install.Run(c.Context(), r)
		},
	}
	c.Flags().StringVar(&r.Package, "package", "/sextant.deb", "the package in the image")
	c.Flags().BoolVar(&r.Migrate, "migrate", false, "also make kubelet.service Sextant (sextant migrate)")
	c.Flags().BoolVar(&hold, "hold", false, "install nothing and wait to be ended: what a DaemonSet's pod does after it has installed")
	return c
}
