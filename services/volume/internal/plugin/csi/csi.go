// SPDX-License-Identifier: Apache-2.0

// Package csi makes the volumes that CSI drivers serve.
package csi

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/volume/internal/csi"
	"github.com/sextant-node/sextant/services/volume/internal/demand"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Host lets go of the parts of volumes that were bound.
type Host interface {
	Release(uid types.UID) error
}

// Plugin is a plugin.Plugin.
type Plugin struct {
	Host    Host
	Manager *csi.Manager
	Now     func() time.Time
}

// Standing implements plugin.Plugin.
func (c Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := c.Manager.Standing(p.UID, v.Name)
	return plugin.Made{Path: path}, ok
}

// Make implements plugin.Plugin.
func (c Plugin) Make(ctx context.Context, r *plugin.Request) (m plugin.Made, err error) {
	_, published := c.Manager.Standing(r.Pod.UID, r.Volume.Name)
	var asked *demand.Asked
	if r.Source == nil {
		asked, err = demand.Inline(r.Pod, r.Volume, published, r.Objects)
	} else {
		asked, err = c.persistent(ctx, r, published)
	}
	if err != nil {
		return m, err
	}
	before := r.Source != nil && asked.Size > 0 && c.Manager.Expanded(&asked.Request)
	m.Relabel = !asked.ReadOnly && asked.Label == ""
	wanted, cancel := r.WhileWanted(ctx)
	defer cancel()
	m.Path, err = c.Manager.Mount(ctx, wanted, &asked.Request)
	if r.Source != nil {
		after := asked.Size > 0 && c.Manager.Expanded(&asked.Request)
		if after && !before && asked.Had < asked.Size {
			expanded(ctx, r, asked.Node)
		}
		r.Report.Expansion(ctx, expansion(r.Source, asked, after, err))
	}
	if asked.Attachable {
		r.Report.Changed(ctx)
	}
	if err == nil && asked.Again > 0 {
		m.Refresh = c.Now().Add(asked.Again)
	}
	return m, err
}

// persistent waits until a volume is attached, and returns what to ask of its driver.
func (c Plugin) persistent(ctx context.Context, r *plugin.Request, published bool) (*demand.Asked, error) {
	name, err := demand.Attach(r.Source, r.Objects)
	if err != nil {
		return nil, err
	}
	var left map[string]string
	if name != "" {
		r.Report.Attaches(ctx, name)
		if left, err = demand.Attached(name, r.Source, r.Objects); err != nil && !published {
			return nil, err
		}
	}
	asked, err := demand.Persistent(r.Pod, r.Volume, r.Source, left, published, r.Objects)
	if err != nil {
		return nil, err
	}
	asked.Attachable = name != ""
	return asked, nil
}

// Unpublish implements plugin.Unpublisher.
func (c Plugin) Unpublish(ctx context.Context, uid types.UID) error {
	if !c.Manager.Uses(uid) {
		return nil
	}
	if err := c.Host.Release(uid); err != nil {
		return err
	}
	return c.Manager.Unmount(ctx, uid)
}

// Left implements plugin.Reaper.
func (c Plugin) Left() []string { return c.Manager.Left() }

// Reap implements plugin.Reaper.
func (c Plugin) Reap(ctx context.Context, name string) error { return c.Manager.Reap(ctx, name) }

// InUse implements plugin.Attacher.
func (c Plugin) InUse() []string { return c.Manager.InUse() }

// Measure implements plugin.Meter.
func (c Plugin) Measure(ctx context.Context, path string, health bool) (*measure.Reading, error) {
	r, err := c.Manager.Measure(ctx, path, health)
	if errors.Is(err, csi.ErrNoStats) {
		return nil, plugin.ErrNoStats
	}
	return r, err
}
