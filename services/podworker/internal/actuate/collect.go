package actuate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Tidy removes what no pod's worker answers for: legacy links to logs that are
// gone, and records of pulls of images that are gone. runs tells whether a
// container runs: its log is missing for the moment in which it is rotated. All
// errors are returned, none keeps the rest from being done.
func (a *Actuator) Tidy(ctx context.Context, now time.Time, runs func(containerID string) bool) error {
	entries, err := os.ReadDir(a.cfg.LegacyLogsDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		path := filepath.Join(a.cfg.LegacyLogsDir, e.Name())
		id, ours := pod.ParseLegacyLogLink(path)
		if e.Type()&fs.ModeSymlink == 0 || !ours || exists(path) || runs(id) {
			continue
		}
		if failed := os.Remove(path); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return errors.Join(err, a.pruneRecords(ctx, now))
}
