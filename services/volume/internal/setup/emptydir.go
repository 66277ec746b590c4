package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// readyFile marks a volume that was made whole (the kubelet's name for it).
const readyFile = "ready"

// EmptyDir makes an emptyDir volume and returns its path. memory bounds a
// Memory medium, zero for no bound. One that stands is left alone: its contents
// and its rights are the containers'.
func (h *Host) EmptyDir(p *v1.Pod, v *v1.Volume, memory int64) (string, error) {
	dir := h.Dir(p.UID, content.EmptyDir, v.Name)
	if h.emptyDirStands(p.UID, v, dir) {
		return dir, nil
	}
	if err := h.makeDirs(p.UID, dir); err != nil {
		return "", err
	}
	if err := mountMedium(p, v.EmptyDir.Medium, dir, memory); err != nil {
		return "", err
	}
	// The whole pod may write, whoever it runs as (kubelet: 0777; it leaves memory
	// the sticky bit that the kernel gives it).
	rights := os.FileMode(0o777)
	if v.EmptyDir.Medium == v1.StorageMediumMemory {
		rights |= os.ModeSticky
	}
	if err := errors.Join(os.Lchown(dir, h.Owner, h.Owner), os.Chmod(dir, rights)); err != nil {
		return "", err
	}
	if group, ok := fsGroup(p); ok {
		if err := giveTo(dir, group); err != nil {
			return "", fmt.Errorf("fsGroup: %w", err)
		}
	}
	return dir, h.markReady(p.UID, v.Name)
}

func mountMedium(p *v1.Pod, medium v1.StorageMedium, dir string, memory int64) error {
	switch {
	case medium == v1.StorageMediumDefault:
		return nil
	case medium == v1.StorageMediumMemory:
		return ensureTmpfs(dir, "mode=1777", memory)
	case medium == v1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(p, medium)
		if err != nil {
			return err
		}
		return ensureMount(dir, "hugetlbfs", fmt.Sprintf("pagesize=%d", size))
	}
	return fmt.Errorf("emptyDir.medium: unknown medium %q", medium)
}

// emptyDirStands: what is in memory goes with a reboot, its mark stays. A file
// system that a container mounted there is not asked: it may hang.
func (h *Host) emptyDirStands(uid types.UID, v *v1.Volume, dir string) bool {
	if mark, err := os.Lstat(h.mark(uid, v.Name)); err != nil || !mark.Mode().IsRegular() {
		return false
	}
	if there, err := mounted(dir); there || err != nil {
		return err == nil
	}
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && v.EmptyDir.Medium == v1.StorageMediumDefault
}

func (h *Host) mark(uid types.UID, name string) string {
	return filepath.Join(h.Layout.Plugin(uid, content.EmptyDir), name, readyFile)
}

func (h *Host) markReady(uid types.UID, name string) error {
	mark := h.mark(uid, name)
	if err := os.MkdirAll(filepath.Dir(mark), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// pageSize is the medium's own, or the only one the pod asks for.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (int64, error) {
	if text := strings.TrimPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); text != string(medium) {
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

// giveTo gives a volume to the pod's fsGroup (v1.PodSecurityContext.FSGroup):
// group id, group rights, and the setgid bit on folders. It works from within
// the folder, so that no link in it leads the change of rights astray.
func giveTo(dir string, group int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | 0o660
		if d.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		// Chown first: it clears bits that chmod sets.
		return errors.Join(root.Lchown(path, -1, group), root.Chmod(path, mode))
	})
}
