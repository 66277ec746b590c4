// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/sextant-node/sextant/pkg/pod"
	cpus "github.com/sextant-node/sextant/services/resource/internal/cpumanager/state"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
	memory "github.com/sextant-node/sextant/services/resource/internal/memorymanager/state"
	sizes "github.com/sextant-node/sextant/services/resource/internal/resize/state"
)

// TestManagerState: what a purge removes are the files that are written here.
func TestManagerState(t *testing.T) {
	layout := pod.Layout{Root: "/r"}
	want := []string{"/r/" + sizes.Allocated, "/r/" + sizes.Actuated, "/r/" + cpus.Name, "/r/" + memory.Name, "/r/" + dra.Name, filepath.Join(layout.DevicePlugins(), checkpoint.Name)}
	if got := layout.ManagerState(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
