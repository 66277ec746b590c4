// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// kinds of hostPath that check what is there: how the kubelet calls it, and the
// check.
var kinds = map[v1.HostPathType]struct {
	name string
	is   func(fs.FileMode) bool
}{
	v1.HostPathDirectory:         {"a directory", fs.FileMode.IsDir},
	v1.HostPathDirectoryOrCreate: {"a directory", fs.FileMode.IsDir},
	v1.HostPathFile:              {"a file", fs.FileMode.IsRegular},
	v1.HostPathFileOrCreate:      {"a file", fs.FileMode.IsRegular},
	v1.HostPathSocket:            {"a socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }},
	v1.HostPathCharDev:           {"a character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }},
	v1.HostPathBlockDev:          {"a block device", func(m fs.FileMode) bool { return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0 }},
}

// HostPath makes sure of a hostPath volume (v1.HostPathType) and returns its path.
func (h *Host) HostPath(v *v1.Volume) (string, error) {
	path, kind := v.HostPath.Path, ptr.Deref(v.HostPath.Type, v1.HostPathUnset)
	if kind == v1.HostPathUnset {
		return path, nil
	}
	want, ok := kinds[kind]
	if !ok {
		return "", fmt.Errorf("hostPath.type: unknown type %q", kind)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			return path, mkdirAll(path, h.Owner)
		case v1.HostPathFileOrCreate:
			return path, create(path, h.Owner)
		}
		return "", fmt.Errorf("hostPath type check failed: %s is not %s", path, want.name)
	}
	if err != nil {
		return "", fmt.Errorf("hostPath type check failed: %w", err)
	}
	if !want.is(info.Mode()) {
		return "", fmt.Errorf("hostPath type check failed: %s is not %s", path, want.name)
	}
	return path, nil
}

// mkdirAll makes a folder and those above it, each owner's and 0755.
func mkdirAll(path string, owner int) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := mkdirAll(parent, owner); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("hostPath: %w", err)
	}
	return errors.Join(os.Chmod(path, 0o755), os.Lchown(path, owner, owner))
}

func create(path string, owner int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil // it was made meanwhile
	}
	if err != nil {
		return fmt.Errorf("hostPath: %w", err)
	}
	return errors.Join(f.Chmod(0o644), f.Chown(owner, owner), f.Close())
}
