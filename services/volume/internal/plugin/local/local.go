// SPDX-License-Identifier: Apache-2.0

// Package local makes local volumes: folders and disks of this node that are persistent
// volumes. It binds what other plugins have mounted once for the node as well.
package local

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
)

// reasonShared is the event of a volume that other pods have with another fsGroup.
const reasonShared = "AlreadyMountedVolume"

// Host binds them on disk.
type Host interface {
	Local(uid types.UID, l setup.Local) (setup.Bound, error)
	Mounted(uid types.UID, plugin, volume string, own bool) (path string, ok bool)
}

// Plugin is a plugin.Plugin.
type Plugin struct {
	Host Host
	Log  *slog.Logger
}

// Standing implements plugin.Plugin.
func (l Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := l.Host.Mounted(p.UID, volumetype.Local, v.Name, false)
	return plugin.Made{Path: path}, ok
}

// Make implements plugin.Plugin.
func (l Plugin) Make(ctx context.Context, r *plugin.Request) (plugin.Made, error) {
	spec := &r.Source.Volume.Spec
	if r.Source.Block {
		device, err := l.Host.Local(r.Pod.UID, setup.Local{Plugin: volumetype.Local, Volume: r.Volume.Name, Name: r.Name(), Path: spec.Local.Path, Block: true})
		return plugin.Made{Path: device.Path}, err
	}
	path, err := l.Bind(ctx, r, setup.Local{Plugin: volumetype.Local, Path: spec.Local.Path, Options: spec.MountOptions, ReadOnly: r.Source.ReadOnly})
	return plugin.Made{Path: path, Relabel: !r.Source.ReadOnly}, err
}

// Bind binds a folder of this node into the pod's, and gives it to the pod's group.
func (l Plugin) Bind(ctx context.Context, r *plugin.Request, of setup.Local) (string, error) {
	of.Volume, of.Name = r.Volume.Name, r.Name()
	of.Group, of.OnMismatch = r.Group()
	b, err := l.Host.Local(r.Pod.UID, of)
	if err != nil {
		return "", err
	}
	plugin.LogRefused(l.Log, b.Path, b.Refused)
	if b.Group != nil {
		r.Report.Event(ctx, plugin.PodReference(r.Pod), v1.EventTypeWarning, reasonShared, fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *of.Group, of.Name, *b.Group))
	}
	return b.Path, nil
}
