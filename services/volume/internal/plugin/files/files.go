// SPDX-License-Identifier: Apache-2.0

// Package files makes the volumes whose files come from the API: configMap, secret,
// downwardAPI and projected.
package files

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Host writes them.
type Host interface {
	Files(p *v1.Pod, v *v1.Volume, set *content.Set, now time.Time) (string, error)
	StandingFiles(p *v1.Pod, v *v1.Volume) (path string, ok bool)
}

// Plugin is a plugin.Plugin.
type Plugin struct {
	Host Host
	Now  func() time.Time
}

// Standing implements plugin.Plugin.
func (f Plugin) Standing(p *v1.Pod, v *v1.Volume) (plugin.Made, bool) {
	path, ok := f.Host.StandingFiles(p, v)
	return plugin.Made{Path: path, Relabel: true}, ok
}

// Make implements plugin.Plugin.
func (f Plugin) Make(_ context.Context, r *plugin.Request) (m plugin.Made, err error) {
	set, err := content.Files(r.Pod, r.Volume, r.Objects)
	if err != nil {
		return m, err
	}
	if content.InMemory(r.Volume) {
		set.Memory, err = plugin.MemoryBound(r.Pod, nil, r.Objects.AllocatableOnce)
		if err != nil && !errors.Is(err, content.ErrWait) { // they are small: no need to wait
			return m, err
		}
	}
	path, err := f.Host.Files(r.Pod, r.Volume, set, f.Now())
	return plugin.Made{Path: path, Relabel: true, Refresh: set.Refresh}, err
}
