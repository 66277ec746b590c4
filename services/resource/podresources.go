// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	"github.com/sextant-node/sextant/services/resource/internal/podresources"
)

// podResources are the facts of the PodResources API: what the ledger has, from the start
// of the process on.
type podResources struct {
	ledger *ledger
	node   *node
	claims *claims
}

// Pods implements podresources.Facts: pods that were admitted, until they are released.
func (p podResources) Pods() (all []podresources.Pod) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	for _, h := range p.ledger.chosen("") {
		if p.ledger.held[string(h.Pod.UID)].Releasing || !answered(h.Chosen) {
			continue
		}
		all = append(all, podresources.Pod{
			Pod: h.Pod, Chosen: h.Chosen,
			Claims: func(c *v1.Container) []*dra.Claim { return p.claims.manager.Claims(h.Pod, c) },
		})
	}
	return all
}

// Allocatable implements podresources.Facts.
func (p podResources) Allocatable() (podresources.Allocatable, error) {
	now, waiting := p.node.now()
	if now == nil {
		return podresources.Allocatable{}, errors.New("the node's resources are not known yet: " + waiting)
	}
	return podresources.Allocatable{Inventory: p.node.devices.Inventory(), CPUs: now.pins.Allocatable(), Memory: now.pins.AllocatableMemory()}, nil
}

// serve answers at the kubelet's usual socket, and makes it again if it could not be made.
func (p podResources) serve(root string, kit *service.Kit) func(context.Context) error {
	server := podresources.New(filepath.Join(pod.Layout{Root: root}.PodResources(), "kubelet.sock"), p, kit.Metrics)
	return func(ctx context.Context) error {
		return service.Again(ctx, kit.Log, "the PodResources API is not served", server.Serve)
	}
}
