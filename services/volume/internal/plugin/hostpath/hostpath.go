// SPDX-License-Identifier: Apache-2.0

// Package hostpath makes hostPath volumes: files and folders of the node as they are.
package hostpath

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Host makes sure of them on disk.
type Host interface {
	HostPath(v *v1.Volume) (string, error)
}

// Plugin is a plugin.Plugin.
type Plugin struct{ Host Host }

// Standing implements plugin.Plugin: nothing on disk says that the type was checked.
func (Plugin) Standing(*v1.Pod, *v1.Volume) (plugin.Made, bool) { return plugin.Made{}, false }

// Make implements plugin.Plugin.
func (h Plugin) Make(_ context.Context, r *plugin.Request) (plugin.Made, error) {
	v := r.Volume
	if r.Source != nil {
		v = &v1.Volume{Name: v.Name, VolumeSource: v1.VolumeSource{HostPath: r.Source.Volume.Spec.HostPath}}
	}
	path, err := h.Host.HostPath(v)
	return plugin.Made{Path: path, Unmeasured: true}, err
}
