// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/mounts"
)

// marks are the files beside a volume that say how far it has been made. A volume that
// another agent mounted has none.
type marks struct{ dir string }

func (h *Host) marks(uid types.UID, plugin, volume string) marks {
	return marks{filepath.Join(h.Layout.Plugin(uid, plugin), volume)}
}

// finished reports whether something is mounted on a volume's folder, with all that goes
// with it: an unfinished one has a mark, which is written before it is mounted.
func (m marks) finished(folder string) (bool, error) {
	mounted, err := mounts.On(folder)
	if err != nil || !mounted {
		return false, err
	}
	_, err = os.Lstat(m.unfinished())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// unfinished is the mark of a volume on whose folder something may be mounted without
// its flags, or without being its group's.
func (m marks) unfinished() string { return filepath.Join(m.dir, "unfinished") }

// begin marks a volume as unfinished.
func (m marks) begin() error {
	if err := os.MkdirAll(m.dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(m.unfinished(), nil, 0o640) // a loss of power takes the mount, too
}

// pv is the file with the name of the persistent volume that a volume of a pod is, so that
// it stands without the API.
func (m marks) pv() string { return filepath.Join(m.dir, "pv") }

func (m marks) note(name string) error {
	if have, err := os.ReadFile(m.pv()); err == nil && string(have) == name {
		return nil
	}
	if err := os.MkdirAll(m.dir, 0o750); err != nil {
		return err
	}
	return file.Replace(m.pv(), []byte(name), 0o640)
}

// ready is the mark of a volume that was made whole (the kubelet's name for it).
func (m marks) ready() string { return filepath.Join(m.dir, "ready") }

func (m marks) isReady() bool {
	mark, err := os.Lstat(m.ready())
	return err == nil && mark.Mode().IsRegular()
}

func (m marks) makeReady() error {
	if err := os.MkdirAll(m.dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(m.ready(), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
