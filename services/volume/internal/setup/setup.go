// SPDX-License-Identifier: Apache-2.0

// Package setup makes and removes volumes on disk. Every step is idempotent: it
// makes sure of what it finds, and never empties a volume that is in use.
//
// Whether a volume stands is read from the disk alone, with the kubelet's own marks:
// a file "ready" for an emptyDir, the link "..data" for a volume of files. So a
// node changes its agent, and loses its journal, without a volume being made
// over under the containers that use it.
package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/atomic"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// Host is the file system below a root directory.
type Host struct {
	Layout pod.Layout
	// Owner is who volumes belong to: 0, root, as with the kubelet.
	Owner int

	table mounts.Table
}

// NewHost works below the kubelet's root directory.
func NewHost(root string) *Host { return &Host{Layout: pod.Layout{Root: root}} }

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
		if st, ok := parent.Sys().(*syscall.Stat_t); ok {
			if err := os.Lchown(podDir, int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
	}
	// podworker reads env files (fileKeyRef) in emptyDirs. The pod's folder above
	// keeps all others out.
	if err := os.MkdirAll(filepath.Dir(dir), 0o751); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o750)
}

// StandingFiles reports whether a volume of files was written before, and where.
func (h *Host) StandingFiles(p *v1.Pod, v *v1.Volume) (path string, ok bool) {
	dir := h.Dir(p.UID, volumetype.Of(v).Plugin, v.Name)
	return dir, atomic.Written(dir)
}

// Files makes a volume of files, in memory where it must be, and returns its
// path.
func (h *Host) Files(p *v1.Pod, v *v1.Volume, set *content.Set, now time.Time) (string, error) {
	dir := h.Dir(p.UID, volumetype.Of(v).Plugin, v.Name)
	if err := h.makeDirs(p.UID, dir); err != nil {
		return "", err
	}
	// Version 0.1 wrote downward API volumes on the disk. One that it made stays there: the
	// containers have that folder, and would see nothing of another.
	if standing := v.DownwardAPI != nil && atomic.Written(dir); content.InMemory(v) && !standing {
		if err := ensureTmpfs(dir, tmpfsRights, set.Memory); err != nil {
			return "", err
		}
	}
	folder := atomic.Folder{Path: dir, UID: h.Owner, GID: h.Owner, Root: rootRights(content.InMemory(v)), Mode: 0o755}
	group, grouped := fsGroup(p)
	if grouped {
		folder.GID = group
		folder.Root |= fs.ModeSetgid
		folder.Mode |= fs.ModeSetgid
	}
	files := make(map[string]atomic.File, len(set.Files))
	for name, f := range set.Files {
		file := atomic.File{Data: f.Data, Mode: fs.FileMode(f.Mode) & fs.ModePerm, UID: h.Owner, GID: folder.GID}
		if f.UID != nil {
			file.UID = int(*f.UID)
		}
		if grouped {
			file.Mode |= 0o440 // files of the API are read-only
		}
		files[name] = file
	}
	if _, err := folder.Write(files, now); err != nil {
		return "", err
	}
	return dir, nil
}

// Measure says how full a volume is.
func (h *Host) Measure(path string) (*measure.Reading, error) { return measure.Volume(path) }

// Found lists the pods that have folders of volumes on disk, with the names of the volumes
// that are in them: a kubelet leaves the folders of a pod empty for a while.
func (h *Host) Found() (map[types.UID][]string, error) {
	pods, err := os.ReadDir(h.Layout.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[types.UID][]string{}
	for _, p := range pods {
		uid := types.UID(p.Name())
		for _, folder := range h.folders(uid) {
			if _, err := os.Lstat(folder); err == nil {
				found[uid] = []string{}
			}
		}
		plugins, err := os.ReadDir(h.Layout.Volumes(uid))
		if err != nil {
			continue // not a pod's folder, or one without volumes
		}
		for _, plugin := range plugins {
			volumes, err := os.ReadDir(filepath.Join(h.Layout.Volumes(uid), plugin.Name()))
			if err != nil {
				continue
			}
			for _, v := range volumes {
				found[uid] = append(found[uid], v.Name())
			}
		}
	}
	return found, nil
}
