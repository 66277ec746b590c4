package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// Point makes sure of the folder that a volume of a pod is mounted on, and tells
// whether something is. name is the persistent volume's, or volume, the name in the
// pod, for one of the pod's own. What is mounted there is not asked: it may hang.
func (h *Host) Point(uid types.UID, plugin, volume, name string) (dir string, there bool, err error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return "", false, fmt.Errorf("volume name %q is not the name of a folder", name)
	}
	dir = h.Dir(uid, plugin, name)
	if there, err = pointThere(dir); err != nil {
		return "", false, err
	}
	if !there {
		if err := h.makeDirs(uid, dir); err != nil {
			return "", false, err
		}
	}
	return dir, there, h.note(uid, plugin, volume, name)
}

// pointThere tells whether something is mounted on a folder, which need not be there.
func pointThere(dir string) (bool, error) {
	there, err := mounted(dir)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return there, err
}

// claimed are the plugins of persistent volumes that are noted by name.
var claimed = []string{content.Local, content.NFS, content.ISCSI, content.FC}

// noteOf is where it is kept which persistent volume a volume of a pod is, so that
// it stands without the API.
func (h *Host) noteOf(uid types.UID, plugin, volume string) string {
	return filepath.Join(h.Layout.Plugin(uid, plugin), volume, "pv")
}

func (h *Host) note(uid types.UID, plugin, volume, name string) error {
	path := h.noteOf(uid, plugin, volume)
	if have, err := os.ReadFile(path); err == nil && string(have) == name {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return file.Replace(path, []byte(name), 0o640)
}

// noted finds a persistent volume that was mounted before.
func (h *Host) noted(uid types.UID, volume string) (path string, ok bool) {
	for _, plugin := range claimed {
		name, err := os.ReadFile(h.noteOf(uid, plugin, volume))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", false
		}
		dir := h.Dir(uid, plugin, string(name))
		there, err := mounted(dir)
		return dir, err == nil && there
	}
	return "", false
}
