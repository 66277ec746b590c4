// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sextant-node/sextant/pkg/file"
)

// RemoveDeadLinks removes legacy links to logs that are gone, as a kubelet does with each
// collection of containers. live are the names of the links of containers that have not
// exited: the log of one is missing for the moment in which it is rotated. All errors are
// returned, none keeps the rest from being done.
func (a *Actuator) RemoveDeadLinks(live map[string]bool) error {
	entries, err := os.ReadDir(a.cfg.LegacyLogsDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		path := filepath.Join(a.cfg.LegacyLogsDir, e.Name())
		if e.Type()&fs.ModeSymlink == 0 || !strings.HasSuffix(e.Name(), ".log") || live[e.Name()] {
			continue
		}
		if _, gone := os.Stat(path); !errors.Is(gone, fs.ErrNotExist) {
			continue
		}
		if failed := file.Remove(path); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}
