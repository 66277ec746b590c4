// SPDX-License-Identifier: Apache-2.0

// Package emptydir makes emptyDir volumes: folders on the root directory's disk, memory,
// or huge pages.
package emptydir

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Host makes them on disk.
type Host interface {
	EmptyDir(p *v1.Pod, v *v1.Volume, memory int64) (string, error)
	StandingEmptyDir(p *v1.Pod, v *v1.Volume) (path string, ok bool)
}

// Plugin is a plugin.Plugin.
type Plugin struct{ Host Host }

// Standing implements plugin.Plugin.
func (e Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := e.Host.StandingEmptyDir(p, v)
	return plugin.Made{Path: path, Relabel: true}, ok
}

// Make implements plugin.Plugin.
func (e Plugin) Make(_ context.Context, r *plugin.Request) (m plugin.Made, err error) {
	memory, of := int64(0), r.Volume.EmptyDir
	if of.Medium == v1.StorageMediumMemory {
		if memory, err = plugin.MemoryBound(r.Pod, of.SizeLimit, r.Objects.Allocatable); err != nil {
			return m, err
		}
	}
	path, err := e.Host.EmptyDir(r.Pod, r.Volume, memory)
	return plugin.Made{Path: path, Relabel: true}, err
}
