// SPDX-License-Identifier: Apache-2.0

// Package image has image volumes (KEP-4639): the runtime mounts them with the container,
// and nothing is made on the node.
package image

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/plugin"
)

// Plugin is a plugin.Plugin.
type Plugin struct{}

// Standing implements plugin.Plugin.
func (Plugin) Standing(*v1.Pod, *v1.Volume) (plugin.Made, bool) { return plugin.Made{}, false }

// Make implements plugin.Plugin.
func (Plugin) Make(context.Context, *plugin.Request) (plugin.Made, error) { return plugin.Made{}, nil }
