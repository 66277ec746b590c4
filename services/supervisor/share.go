// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
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
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(rootDir)
	if err != nil {
		return err
	}
	on := &mountinfo.Info{}
	for _, m := range all { // in the order in which they were made
		if within(dir, m.Mountpoint) && len(m.Mountpoint) >= len(on.Mountpoint) {
			on = m
		}
	}
	if shared(on) || slices.ContainsFunc(all, func(m *mountinfo.Info) bool { return m.Mountpoint != dir && within(m.Mountpoint, dir) }) {
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

// shared reports whether what is mounted below a mount point is seen by its peers.
func shared(m *mountinfo.Info) bool { return strings.Contains(" "+m.Optional, " shared:") }

// within reports whether a path is a folder or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
