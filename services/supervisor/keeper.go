// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"log/slog"

	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/supervisor/chains"
	"github.com/sextant-node/sextant/services/supervisor/reaper"
	"github.com/sextant-node/sextant/services/supervisor/tools"
)

// keeper keeps what a plan runs going: the services' processes, and what is root's.
type keeper struct {
	*Plan
	log     *slog.Logger
	sockets heldSockets
}

// keepReaper runs the reaper, and restarts it if it fails.
func (k *keeper) keepReaper(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(k.CgroupRoot)
	if err != nil {
		return err
	}
	return service.Again(ctx, k.log, "reaper not served", func(ctx context.Context) error {
		return (&reaper.Reaper{Socket: k.Paths().Supervisor(), Identities: k.Identities(), Root: root, Log: k.log}).Run(ctx)
	})
}

// keepTools runs the server of root's tools for volume, and restarts it if it fails.
func (k *keeper) keepTools(ctx context.Context) error {
	return service.Again(ctx, k.log, "tools not served", func(ctx context.Context) error {
		return tools.New(tools.Config{Socket: k.Paths().Tools(), Identities: k.Identities(), Root: k.RootDir, Log: k.log}).Run(ctx)
	})
}

// keepChains keeps the kubelet's chains of iptables, if the node is to have them.
func (k *keeper) keepChains(ctx context.Context) error {
	if k.Chains {
		(&chains.Keeper{Log: k.log, Clock: clock.RealClock{}}).Keep(ctx)
	}
	<-ctx.Done()
	return nil
}
