// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Suffixes of rotated logs.
const (
	gzipSuffix = ".gz"
	tmpSuffix  = ".tmp"
	// rotatedStamp is the time in a rotated log's name.
	rotatedStamp = "20060102-150405"
)

// Limits is how much log a container may keep.
type Limits struct {
	// MaxSize of the live file in bytes; negative for no limit.
	MaxSize int64
	// MaxFiles counts the live file too; at least 2.
	MaxFiles int
}

// Plan is what one round does to one container's logs. Paths are whole.
type Plan struct {
	// Remove left-overs of interrupted rounds and logs beyond the limit.
	Remove []string
	// Compress each to its name with .gz.
	Compress []string
	// Rotate the live log to this name; empty for not.
	Rotate string
	// Reopen asks the runtime for a live log: there is none.
	Reopen bool
}

// live is the log a container writes to.
type live struct {
	path   string
	exists bool
	size   int64
}

// plan decides what to do with a running container's log and the files rotated
// out of it earlier. Of those that are being compressed just now only the oldest
// go, when there are too many.
func plan(log live, rotated []string, compressing map[string]bool, limits Limits, now time.Time) Plan {
	if !log.exists {
		return Plan{Reopen: true}
	}
	if !over(log.size, limits) {
		return Plan{}
	}
	var p Plan
	have := map[string]bool{}
	for _, path := range rotated {
		have[path] = true
	}
	var kept []string
	for _, path := range rotated {
		if !isRotated(log.path, path) {
			continue
		}
		if busy := strings.TrimSuffix(strings.TrimSuffix(path, tmpSuffix), gzipSuffix); compressing[busy] {
			if busy == path {
				kept = append(kept, path)
			}
			continue
		}
		// A temporary file is a compression that was cut off; a file beside its
		// compressed form is one whose removal was.
		if strings.HasSuffix(path, tmpSuffix) || have[path+gzipSuffix] {
			p.Remove = append(p.Remove, path)
			continue
		}
		kept = append(kept, path)
	}
	slices.Sort(kept)
	// Room for the live log and the one about to be rotated.
	if excess := len(kept) - max(0, limits.MaxFiles-2); excess > 0 {
		p.Remove = append(p.Remove, kept[:excess]...)
		kept = kept[excess:]
	}
	for _, path := range kept {
		if !strings.HasSuffix(path, gzipSuffix) && !compressing[path] {
			p.Compress = append(p.Compress, path)
		}
	}
	// A second log of the same second must not take the first one's place.
	for p.Rotate = log.path + "." + now.Format(rotatedStamp); have[p.Rotate] || have[p.Rotate+gzipSuffix] || have[p.Rotate+tmpSuffix]; {
		now = now.Add(time.Second)
		p.Rotate = log.path + "." + now.Format(rotatedStamp)
	}
	return p
}

// isRotated reports whether a file was rotated out of a log: <log>.<time>, with
// or without the suffixes of compression.
func isRotated(log, path string) bool {
	stamp, ok := strings.CutPrefix(filepath.Base(path), filepath.Base(log)+".")
	if !ok {
		return false
	}
	stamp = strings.TrimSuffix(strings.TrimSuffix(stamp, tmpSuffix), gzipSuffix)
	_, err := time.Parse(rotatedStamp, stamp)
	return err == nil
}

// over reports whether a log is to be rotated.
func over(size int64, limits Limits) bool { return limits.MaxSize >= 0 && size > limits.MaxSize }
