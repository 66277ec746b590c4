// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Point makes sure of the folder that a volume of a pod is mounted on, and tells
// whether something is. name is the persistent volume's, or volume, the name in the
// pod, for one of the pod's own. What is mounted there is not asked: it may hang.
func (h *Host) Point(uid types.UID, plugin, volume, name string) (dir string, mounted bool, err error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return "", false, fmt.Errorf("volume name %q is not the name of a folder", name)
	}
	dir, marks := h.Dir(uid, plugin, name), h.marks(uid, plugin, volume)
	if mounted, err = marks.finished(dir); err != nil {
		return "", false, err
	}
	if !mounted {
		if err := h.makeDirs(uid, dir); err != nil {
			return "", false, err
		}
	}
	return dir, mounted, marks.note(name)
}

// Mounted reports whether a volume was mounted before, with all that goes with it, and
// where. Which persistent volume it is was noted; one of the pod's own has its name in the
// pod. It never waits for the mount.
func (h *Host) Mounted(uid types.UID, plugin, volume string, own bool) (path string, ok bool) {
	name, marks := []byte(volume), h.marks(uid, plugin, volume)
	if !own {
		var err error
		if name, err = os.ReadFile(marks.pv()); err != nil {
			return "", false
		}
	}
	dir := h.Dir(uid, plugin, string(name))
	mounted, err := marks.finished(dir)
	return dir, err == nil && mounted
}
