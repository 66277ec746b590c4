// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/volume/internal/measure"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/disk"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/emptydir"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/files"
	"github.com/sextant-node/sextant/services/volume/internal/plugin/hostpath"
)

// Host makes and removes volumes on disk; *setup.Host is the real one. What plugins need
// of it they say themselves.
type Host interface {
	emptydir.Host
	hostpath.Host
	files.Host
	disk.Host
	// Subpath binds a part of a volume and returns where; Release lets go of all parts.
	Subpath(uid types.UID, volume, container string, index int, volumePath, subPath string) (string, error)
	Release(uid types.UID) error
	// Give gives a volume to a group; with onMismatch only if its root is not the
	// group's. refused names the first file that could not be given. It may hang with
	// the file system the path is on.
	Give(path string, group int, onMismatch bool) (refused string, err error)
	Remove(uid types.UID) error
	Found() (map[types.UID][]string, error)
	// Measure may hang with the file system the path is on.
	Measure(path string) (*measure.Reading, error)
}
