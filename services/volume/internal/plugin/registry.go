// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// Registry has the plugin of each type that is made, by the names of volumetype.
type Registry map[string]Plugin

// all plugins, in an order that is always the same.
func (r Registry) all() []Plugin {
	var all []Plugin
	for _, name := range slices.Sorted(maps.Keys(r)) {
		all = append(all, r[name])
	}
	return all
}

// For is the plugin that makes a volume.
func (r Registry) For(of *Request) (Plugin, error) {
	t := of.Type()
	made, ok := r[t.Plugin]
	switch {
	case of.Source != nil && (!ok || of.Source.Block && !t.Block):
		return nil, fmt.Errorf("the plugin of PV %s is not supported by this node agent", of.Source.Volume.Name)
	case !ok:
		return nil, errors.New(t.Refused)
	}
	return made, nil
}

// Standing is that of the volume's plugin. Which one a claim leads to is known by what the
// plugins of persistent volumes left on disk.
func (r Registry) Standing(p *v1.Pod, v *v1.Volume) (Made, bool) {
	if !volumetype.Indirect(p, v) {
		if made, ok := r[volumetype.Of(v).Plugin]; ok {
			return made.Standing(p, v)
		}
		return Made{}, false
	}
	for _, name := range volumetype.Persistent() {
		if of, ok := r[name]; ok {
			if made, ok := of.Standing(p, v); ok {
				return made, true
			}
		}
	}
	return Made{}, false
}

// Unpublish calls all that are an Unpublisher.
func (r Registry) Unpublish(ctx context.Context, uid types.UID) error {
	var failed []error
	for _, of := range r.all() {
		if u, ok := of.(Unpublisher); ok {
			failed = append(failed, u.Unpublish(ctx, uid))
		}
	}
	return errors.Join(failed...)
}

// Release calls all that are a Releaser.
func (r Registry) Release(ctx context.Context, uid types.UID) error {
	var failed []error
	for _, of := range r.all() {
		if u, ok := of.(Releaser); ok {
			failed = append(failed, u.Release(ctx, uid))
		}
	}
	return errors.Join(failed...)
}

// Left has what to let go of each volume by that no pod has, of all that are a Reaper.
func (r Registry) Left() map[string]func(context.Context) error {
	left := map[string]func(context.Context) error{}
	for _, of := range r.all() {
		if reaper, ok := of.(Reaper); ok {
			for _, name := range reaper.Left() {
				left[name] = func(ctx context.Context) error { return reaper.Reap(ctx, name) }
			}
		}
	}
	return left
}

// InUse is that of all that are an Attacher, sorted.
func (r Registry) InUse() []string {
	var names []string
	for _, of := range r.all() {
		if a, ok := of.(Attacher); ok {
			names = append(names, a.InUse()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ErrNoStats says that no plugin measures a path.
var ErrNoStats = errors.New("no plugin measures this volume")

// Measure is that of the plugin that knows a path.
func (r Registry) Measure(ctx context.Context, path string, health bool) (*measure.Reading, error) {
	for _, of := range r.all() {
		if m, ok := of.(Meter); ok {
			if reading, err := m.Measure(ctx, path, health); !errors.Is(err, ErrNoStats) {
				return reading, err
			}
		}
	}
	return nil, ErrNoStats
}
