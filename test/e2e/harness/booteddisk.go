// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// diskImage is the file with the disk of a booted machine, in the folder of the boot.
const diskImage = "disk.img"

// nodePaths are where a node writes, runtime and tests included: on one disk, so that
// filling that disk fills them all and nothing else.
var nodePaths = []string{"/tmp", "/var/lib/kubelet", "/var/lib/sextant", "/var/log/pods"}

// makeDisk makes a file system in a file that takes only the room of what is in it.
func makeDisk(image string, size int64) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4 %s: %w\n%s", image, err, out)
	}
	return nil
}

// mountDisk mounts the disk of the machine, if it has one, and returns what is on it. The
// loop device goes with the mount, which goes with the machine.
func mountDisk(dir string) ([]string, error) {
	image, disk := filepath.Join(dir, diskImage), filepath.Join(dir, "disk")
	if _, err := os.Stat(image); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if out, err := exec.Command("mount", "-o", "loop,discard", image, disk).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount the disk: %w\n%s", err, out)
	}
	for _, path := range nodePaths {
		if err := os.MkdirAll(filepath.Join(disk, path), 0o755); err != nil {
			return nil, err
		}
	}
	return nodePaths, os.Chmod(filepath.Join(disk, "tmp"), 0o777|fs.ModeSticky)
}
