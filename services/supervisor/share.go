// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
)

// sharedMark is a file in the run directory: the kubelet's root directory was bound to
// itself for this node. A reboot removes both.
const sharedMark = "root-dir-shared"

// share makes mounts below the kubelet's root directory travel between the node and
// its containers, which the mount propagation of pods needs: as a kubelet does, it
// binds a root directory that is not on a shared mount to itself, and shares that.
// Purge undoes it. Where something is mounted below the directory already, pods have
// their volumes there: the new mount would hide them, so it is left for a later start.
func share(rootDir, run string) error {
	all, err := mountPoints()
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(rootDir)
	if err != nil {
		return err
	}
	on := mountPoint{}
	for _, m := range all { // in the order in which they were made
		if within(dir, m.path) && len(m.path) >= len(on.path) {
			on = m
		}
	}
	if on.shared || slices.ContainsFunc(all, func(m mountPoint) bool { return m.path != dir && within(m.path, dir) }) {
		return nil
	}
	if err := file.Replace(filepath.Join(run, sharedMark), []byte(dir+"\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return errors.Join(fmt.Errorf("share %s: %w", dir, err), unshare(run))
	}
	return nil
}

// unshare takes back what share did.
func unshare(run string) error {
	mark := filepath.Join(run, sharedMark)
	dir, err := os.ReadFile(mark)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := strings.TrimSpace(string(dir))
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(mark)
}

// mountPoint is one line of /proc/self/mountinfo.
type mountPoint struct {
	path string
	// shared: what is mounted below it is seen by its peers.
	shared bool
}

// mountPoints lists what is mounted, in the order of the kernel.
func mountPoints() ([]mountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	var all []mountPoint
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, _, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if len(fields) < 6 {
			continue
		}
		all = append(all, mountPoint{
			path:   strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4]),
			shared: slices.ContainsFunc(fields[6:], func(s string) bool { return strings.HasPrefix(s, "shared:") }),
		})
	}
	return all, lines.Err()
}

// within reports whether a path is a folder or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
