// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// EmptyDir makes an emptyDir volume and returns its path. memory bounds a
// Memory medium, zero for no bound. One that stands is left alone: its contents
// and its rights are the containers'.
func (h *Host) EmptyDir(p *v1.Pod, v *v1.Volume, memory int64) (string, error) {
	dir, stands := h.StandingEmptyDir(p, v)
	if stands {
		return dir, nil
	}
	if err := h.makeDirs(p.UID, dir); err != nil {
		return "", err
	}
	if err := mountMedium(p, v.EmptyDir.Medium, dir, memory); err != nil {
		return "", err
	}
	rights := rootRights(v.EmptyDir.Medium == v1.StorageMediumMemory)
	if err := errors.Join(os.Lchown(dir, h.Owner, h.Owner), os.Chmod(dir, rights)); err != nil {
		return "", err
	}
	if group, ok := fsGroup(p); ok {
		if _, err := giveTo(dir, group); err != nil { // it is empty: nothing in it is refused
			return "", fmt.Errorf("fsGroup: %w", err)
		}
	}
	return dir, h.marks(p.UID, volumetype.EmptyDir, v.Name).makeReady()
}

// tmpfsRights is the option of a tmpfs that gives its root the rights of rootRights.
const tmpfsRights = "mode=1777"

// rootRights are those of the root of an emptyDir, and of a volume of files, which a kubelet
// makes in an emptyDir: the whole pod may write, under any uid. A kubelet leaves memory the
// sticky bit that the kernel gives it.
func rootRights(memory bool) fs.FileMode {
	if memory {
		return 0o777 | fs.ModeSticky
	}
	return 0o777
}

func mountMedium(p *v1.Pod, medium v1.StorageMedium, dir string, memory int64) error {
	switch {
	case medium == v1.StorageMediumDefault:
		return nil
	case medium == v1.StorageMediumMemory:
		return ensureTmpfs(dir, tmpfsRights, memory)
	case medium == v1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(p, medium)
		if err != nil {
			return err
		}
		return ensureMount(dir, "hugetlbfs", fmt.Sprintf("pagesize=%d", size))
	}
	return fmt.Errorf("emptyDir.medium: unknown medium %q", medium)
}

// StandingEmptyDir reports whether an emptyDir was made whole and is still there, and
// where: what is in memory goes with a reboot, its mark stays. A file system that a
// container mounted there is not asked: it may hang.
func (h *Host) StandingEmptyDir(p *v1.Pod, v *v1.Volume) (path string, ok bool) {
	dir := h.Dir(p.UID, volumetype.EmptyDir, v.Name)
	if !h.marks(p.UID, volumetype.EmptyDir, v.Name).isReady() {
		return dir, false
	}
	if mounted, err := mounts.On(dir); mounted || err != nil {
		return dir, err == nil
	}
	info, err := os.Lstat(dir)
	return dir, err == nil && info.IsDir() && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// pageSize is the medium's own, or the only one the pod asks for.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	if text, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return 0, fmt.Errorf("emptyDir.medium %q: %w", medium, err)
		}
		return q.Value(), nil
	}
	var sizes []int64
	for name := range pod.Requests(p) {
		if q, ok := pod.HugePageSize(name); ok {
			sizes = append(sizes, q.Value())
		}
	}
	if len(sizes) != 1 {
		return 0, fmt.Errorf("emptyDir.medium HugePages: the pod requests %d page sizes, want one", len(sizes))
	}
	return sizes[0], nil
}

// fsGroup is the pod's, where it has one.
func fsGroup(p *v1.Pod) (group int, ok bool) {
	if p.Spec.SecurityContext == nil || p.Spec.SecurityContext.FSGroup == nil {
		return 0, false
	}
	return int(*p.Spec.SecurityContext.FSGroup), true
}
