// Package setup makes and removes volumes on disk. Every step is idempotent: it
// makes sure of what it finds, and never empties a volume that is in use.
package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/volume/internal/atomic"
	"github.com/sextant-node/sextant/services/volume/internal/content"
)

// Host is the file system below a root directory.
type Host struct {
	Layout pod.Layout
	Mounts mount.Interface
	// Owner is who volumes belong to: 0, root, as with the kubelet.
	Owner int
}

// NewHost works on the real mounts.
func NewHost(root string) *Host {
	return &Host{Layout: pod.Layout{Root: root}, Mounts: mount.New("")}
}

// Dir is where a volume lives.
func (h *Host) Dir(uid types.UID, plugin, name string) string {
	return h.Layout.Volume(uid, plugin, name)
}

// makeDirs makes the folders above a volume. What podworker owns above it keeps
// its owner.
func (h *Host) makeDirs(uid types.UID, dir string) error {
	podDir := h.Layout.Pod(uid)
	if _, err := os.Stat(podDir); errors.Is(err, fs.ErrNotExist) {
		parent, err := os.Stat(h.Layout.Pods())
		if err != nil {
			return fmt.Errorf("pods folder: %w", err)
		}
		if err := os.Mkdir(podDir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := chownLike(podDir, parent); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o750)
}

// EmptyDir makes an emptyDir volume and returns its path. memory bounds a
// Memory medium, zero for no bound. One that was finished before and is still
// there is left alone: its contents are the containers', and whoever can write
// there could lead a change of rights astray.
func (h *Host) EmptyDir(p *v1.Pod, v *v1.Volume, memory int64, finished bool) (string, error) {
	dir := h.Dir(p.UID, content.EmptyDir, v.Name)
	if finished && h.stands(dir, v.EmptyDir.Medium != v1.StorageMediumDefault) {
		return dir, nil
	}
	if err := h.makeDirs(p.UID, dir); err != nil {
		return "", err
	}
	medium := v.EmptyDir.Medium
	switch {
	case medium == v1.StorageMediumDefault:
	case medium == v1.StorageMediumMemory:
		options := []string{"mode=0777"}
		if memory > 0 {
			options = append(options, fmt.Sprintf("size=%d", memory))
		}
		if err := h.ensureMount("tmpfs", dir, "tmpfs", options); err != nil {
			return "", err
		}
	case medium == v1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(p, medium)
		if err != nil {
			return "", err
		}
		if err := h.ensureMount("nodev", dir, "hugetlbfs", []string{"pagesize=" + size}); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("emptyDir.medium: unknown medium %q", medium)
	}
	// The whole pod may write, whoever it runs as (kubelet: 0777).
	if err := errors.Join(os.Lchown(dir, h.Owner, h.Owner), os.Chmod(dir, 0o777)); err != nil {
		return "", err
	}
	return dir, h.SetGroup(p, dir, false)
}

// stands tells whether a finished volume is still there; one in memory goes with
// a reboot.
func (h *Host) stands(dir string, mounted bool) bool {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return false
	}
	if !mounted {
		return true
	}
	point, err := h.Mounts.IsMountPoint(dir)
	return err == nil && point
}

// pageSize is the medium's own, or the only one the pod asks for.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (string, error) {
	format := func(q resource.Quantity) string { return fmt.Sprint(q.Value()) }
	if text := strings.TrimPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); text != string(medium) {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return "", fmt.Errorf("emptyDir.medium %q: %w", medium, err)
		}
		return format(q), nil
	}
	var sizes []resource.Quantity
	for name := range pod.Requests(p) {
		if q, ok := pod.HugePageSize(name); ok {
			sizes = append(sizes, q)
		}
	}
	if len(sizes) != 1 {
		return "", fmt.Errorf("emptyDir.medium HugePages: the pod requests %d page sizes, want one", len(sizes))
	}
	return format(sizes[0]), nil
}

func (h *Host) ensureMount(source, dir, fstype string, options []string) error {
	mounted, err := h.Mounts.IsMountPoint(dir)
	if err != nil {
		return fmt.Errorf("mount table: %w", err)
	}
	if mounted {
		return nil
	}
	if err := h.Mounts.MountSensitiveWithoutSystemd(source, dir, fstype, options, nil); err != nil {
		return fmt.Errorf("mount %s: %w", fstype, err)
	}
	return nil
}

// HostPath makes sure of a hostPath volume (v1.HostPathType) and returns its path.
func (h *Host) HostPath(v *v1.Volume) (string, error) {
	source := v.HostPath
	kind := v1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	if kind == v1.HostPathUnset {
		return source.Path, nil
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			if err := os.MkdirAll(source.Path, 0o755); err != nil {
				return "", fmt.Errorf("hostPath: %w", err)
			}
			return source.Path, os.Lchown(source.Path, h.Owner, h.Owner)
		case v1.HostPathFileOrCreate:
			f, err := os.OpenFile(source.Path, os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return "", fmt.Errorf("hostPath: %w", err)
			}
			return source.Path, errors.Join(f.Chown(h.Owner, h.Owner), f.Close())
		}
	}
	if err != nil {
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, strings.ToLower(string(kind)))
	}
	m := info.Mode()
	ok := map[v1.HostPathType]bool{
		v1.HostPathDirectory: m.IsDir(), v1.HostPathDirectoryOrCreate: m.IsDir(),
		v1.HostPathFile: m.IsRegular(), v1.HostPathFileOrCreate: m.IsRegular(),
		v1.HostPathSocket:   m&fs.ModeSocket != 0,
		v1.HostPathCharDev:  m&fs.ModeCharDevice != 0,
		v1.HostPathBlockDev: m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0,
	}
	if !ok[kind] {
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, strings.ToLower(string(kind)))
	}
	return source.Path, nil
}

// Files makes a volume of files, in memory where it must be, and returns its
// path.
func (h *Host) Files(p *v1.Pod, v *v1.Volume, set *content.Set, now time.Time) (string, error) {
	dir := h.Dir(p.UID, content.Plugin(v), v.Name)
	if err := h.makeDirs(p.UID, dir); err != nil {
		return "", err
	}
	if content.InMemory(v) {
		if err := h.ensureMount("tmpfs", dir, "tmpfs", []string{"mode=0755"}); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	group := h.Owner
	fsGroup := p.Spec.SecurityContext != nil && p.Spec.SecurityContext.FSGroup != nil
	if fsGroup {
		group = int(*p.Spec.SecurityContext.FSGroup)
	}
	files := make(map[string]atomic.File, len(set.Files))
	for name, f := range set.Files {
		file := atomic.File{Data: f.Data, Mode: fs.FileMode(f.Mode), UID: h.Owner, GID: group}
		if f.UID != nil {
			file.UID = int(*f.UID)
		}
		if fsGroup {
			file.Mode |= 0o440 // files of the API are read-only
		}
		files[name] = file
	}
	if _, err := atomic.Write(dir, files, now); err != nil {
		return "", err
	}
	if err := os.Lchown(dir, h.Owner, group); err != nil {
		return "", err
	}
	return dir, nil
}

// SetGroup gives a volume to the pod's fsGroup (v1.PodSecurityContext.FSGroup):
// group id, group rights, and the setgid bit on folders.
func (h *Host) SetGroup(p *v1.Pod, dir string, readOnly bool) error {
	if p.Spec.SecurityContext == nil || p.Spec.SecurityContext.FSGroup == nil {
		return nil
	}
	group := int(*p.Spec.SecurityContext.FSGroup)
	bits := fs.FileMode(0o660)
	if readOnly {
		bits = 0o440
	}
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil && *policy == v1.FSGroupChangeOnRootMismatch {
		if matches(dir, group, bits) {
			return nil
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | bits
		if d.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		if err := os.Lchown(path, -1, group); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	})
}

func matches(dir string, group int, bits fs.FileMode) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	mode := fs.FileMode(st.Mode & 0o777)
	return int(st.Gid) == group && mode&bits == bits && st.Mode&unix.S_ISGID != 0
}

// Remove unmounts and removes everything volumes left of a pod. A folder that
// is still a mount point is an error, never removed with what is behind it.
func (h *Host) Remove(uid types.UID) error {
	points, err := h.Mounts.List()
	if err != nil {
		return fmt.Errorf("mount table: %w", err)
	}
	roots := []string{h.Layout.VolumeSubpaths(uid), h.Layout.Volumes(uid), h.Layout.VolumeDevices(uid), h.Layout.Plugins(uid)}
	for i := len(points) - 1; i >= 0; i-- { // the newest first
		for _, root := range roots {
			if !strings.HasPrefix(points[i].Path, root+"/") {
				continue
			}
			if err := h.Mounts.Unmount(points[i].Path); err != nil {
				return fmt.Errorf("unmount %s: %w", points[i].Path, err)
			}
		}
	}
	for _, root := range roots {
		if err := os.RemoveAll(root); err != nil {
			return err
		}
	}
	return nil
}

// Found lists the pods that have volumes on disk, with the volumes' names.
func (h *Host) Found() (map[types.UID][]string, error) {
	entries, err := os.ReadDir(h.Layout.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[types.UID][]string{}
	for _, e := range entries {
		uid := types.UID(e.Name())
		volumes, err := filepath.Glob(filepath.Join(h.Layout.Volumes(uid), "*", "*"))
		if err != nil || len(volumes) == 0 {
			continue
		}
		for _, dir := range volumes {
			found[uid] = append(found[uid], filepath.Base(dir))
		}
	}
	return found, nil
}
