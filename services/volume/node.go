// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// nodeKey is the key of the one item of volume.node.
const nodeKey = "node"

// nodeItem publishes volume.node: which drivers there are, which volumes are in use, and
// how far claims have been expanded.
type nodeItem struct {
	volumes *feed.Owner[*volumev1.VolumeNode]
	drivers *csi.Drivers
	plugins plugin.Registry
	pods    *pods
	log     *slog.Logger

	turn sync.Mutex // one publishes at a time
}

func (n *nodeItem) publish(ctx context.Context) {
	n.turn.Lock()
	defer n.turn.Unlock()
	item := &volumev1.VolumeNode{}
	for _, d := range n.drivers.List() {
		item.Drivers = append(item.Drivers, &volumev1.CSIDriver{Name: d.Name, NodeId: d.NodeID, Topology: d.Topology, MaxVolumes: d.MaxVolumes})
	}
	n.pods.mu.Lock()
	for _, w := range n.pods.all {
		if w.attaches() {
			item.InUse = slices.AppendSeq(item.InUse, maps.Values(w.attach))
		}
	}
	item.Expansions = expansions(n.pods.all)
	n.pods.mu.Unlock()
	// Asked after the pods: what one has begun by then is in one of both.
	item.InUse = append(item.InUse, n.plugins.InUse()...)
	slices.Sort(item.InUse)
	item.InUse = slices.Compact(item.InUse)
	if _, err := n.volumes.Set(ctx, nodeKey, item); err != nil {
		n.log.Error("publish", "feed", house.VolumeNode.Name, "error", err.Error())
	}
}

// expansions are what all claims are to say, one item for each: of pods that share a
// claim, one may know that it is done.
func expansions(pods map[types.UID]*podWork) []*volumev1.ClaimExpansion {
	all := map[string]*volumev1.ClaimExpansion{}
	for _, w := range pods {
		if w.withdrawing {
			continue
		}
		for _, item := range w.expansions {
			key := item.GetNamespace() + "/" + item.GetName()
			if had := all[key]; had.GetState() != volumev1.ExpansionState_EXPANSION_STATE_DONE {
				all[key] = item
			}
		}
	}
	sorted := make([]*volumev1.ClaimExpansion, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[key])
	}
	return sorted
}

// volumeReport implements plugin.Reporter for one volume.
type volumeReport struct {
	node   *nodeItem
	work   *podWork
	volume string
}

// Attaches implements plugin.Reporter.
func (r volumeReport) Attaches(ctx context.Context, name string) {
	pods := r.node.pods
	pods.mu.Lock()
	had := r.work.attach[r.volume]
	r.work.attach[r.volume] = name
	pods.mu.Unlock()
	if had != name {
		r.Changed(ctx)
	}
}

// Changed implements plugin.Reporter.
func (r volumeReport) Changed(ctx context.Context) { r.node.publish(ctx) }

// Event implements plugin.Reporter.
func (r volumeReport) Event(ctx context.Context, about *eventv1.ObjectReference, kind, reason, message string) {
	r.node.pods.emit(ctx, about, kind, reason, message)
}

// Expansion implements plugin.Reporter.
func (r volumeReport) Expansion(ctx context.Context, item *volumev1.ClaimExpansion) {
	pods := r.node.pods
	pods.mu.Lock()
	_, had := r.work.expansions[r.volume]
	if item == nil {
		delete(r.work.expansions, r.volume)
	} else {
		r.work.expansions[r.volume] = item
	}
	pods.mu.Unlock()
	if had || item != nil {
		r.Changed(ctx)
	}
}
