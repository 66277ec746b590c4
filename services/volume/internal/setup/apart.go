// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/measure"
)

// How long a step in a child may take. A file system that takes longer is as
// good as gone; what is only slow answers the next time.
const (
	lookLimit    = 10 * time.Second
	unmountLimit = 30 * time.Second
	// What a server that is gone keeps from being unmounted is given up after this
	// long (the kubelet's for NFS), with what was written and did not get there.
	forceAfter   = time.Minute
	measureLimit = 2 * time.Minute
	giveLimit    = 30 * time.Minute // every file of a volume
)

// Apart is a Host that leaves to children what may hang: everything on file
// systems other than memory and the root directory's own disk.
type Apart struct {
	*Host
	Children *child.Pool
	// Limit of each step; zero for what suits it.
	Limit time.Duration
}

type subpathArgs struct {
	UID               types.UID
	Volume, Container string
	Index             int
	Path, SubPath     string
}

// unmountArgs is one mount point. It may be detached when it is busy if what is
// mounted there is not ours to end: a part bound by Subpath, which stays mounted
// where it comes from, and what a container mounted in an emptyDir.
type unmountArgs struct {
	Point  string
	Detach bool
	// Force gives up what a server does not answer, in the end.
	Force bool
}

func (u unmountArgs) unmount() error {
	if u.Force {
		// While one thread waits for the server, another ends the waiting.
		force := time.AfterFunc(forceAfter, func() { unix.Unmount(u.Point, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE) }) //nolint:errcheck // the other one tells
		defer force.Stop()
	}
	err := unmount(u.Point)
	if errors.Is(err, unix.EBUSY) && u.Detach {
		err = unix.Unmount(u.Point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}

type giveArgs struct {
	Path       string
	Group      int
	OnMismatch bool
}

// Steps are what children do below a root directory.
func Steps(root string) child.Steps {
	h := NewHost(root)
	return child.Steps{
		"hostPath": child.Step(func(source v1.HostPathVolumeSource) (any, error) {
			return h.HostPath(&v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &source}})
		}),
		"subPath": child.Step(func(a subpathArgs) (any, error) {
			return h.Subpath(a.UID, a.Volume, a.Container, a.Index, a.Path, a.SubPath)
		}),
		"local":   child.Step(func(a localArgs) (any, error) { return h.Local(a.UID, a.Local) }),
		"give":    child.Step(func(a giveArgs) (any, error) { return h.Give(a.Path, a.Group, a.OnMismatch) }),
		"measure": child.Step(func(path string) (any, error) { return h.Measure(path) }),
		"unmount": child.Step(func(points []unmountArgs) (any, error) {
			for _, p := range points {
				if err := p.unmount(); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}),
	}
}

// HostPath makes sure of a hostPath volume. One without a type is not looked at.
func (a Apart) HostPath(v *v1.Volume) (string, error) {
	if kind := v.HostPath.Type; kind == nil || *kind == v1.HostPathUnset {
		return a.Host.HostPath(v)
	}
	table, err := a.table.Now()
	if err != nil {
		return "", err
	}
	path := ""
	err = a.Children.Do(child.Task{
		Step: "hostPath", On: v.HostPath.Path, Place: place(table, v.HostPath.Path), Args: v.HostPath, Limit: cmp.Or(a.Limit, lookLimit),
	}, &path)
	return path, err
}

// Subpath binds a part of a volume.
func (a Apart) Subpath(uid types.UID, volume, container string, index int, volumePath, subPath string) (string, error) {
	table, own, err := a.own(volumePath)
	if err != nil {
		return "", err
	}
	if own {
		return a.Host.Subpath(uid, volume, container, index, volumePath, subPath)
	}
	path := ""
	err = a.Children.Do(child.Task{
		Step: "subPath", On: filepath.Join(volumePath, subPath), Place: place(table, volumePath), Limit: cmp.Or(a.Limit, lookLimit),
		Args: subpathArgs{UID: uid, Volume: volume, Container: container, Index: index, Path: volumePath, SubPath: subPath},
	}, &path)
	return path, err
}

// Give gives a volume to a group.
func (a Apart) Give(path string, group int, onMismatch bool) (refused string, err error) {
	table, own, err := a.own(path)
	if err != nil {
		return "", err
	}
	if own {
		return a.Host.Give(path, group, onMismatch)
	}
	err = a.Children.Do(child.Task{
		Step: "give", On: path, Place: place(table, path), Limit: cmp.Or(a.Limit, giveLimit), Long: true,
		Args: giveArgs{Path: path, Group: group, OnMismatch: onMismatch},
	}, &refused)
	return refused, err
}

// Measure says how full a volume is.
func (a Apart) Measure(path string) (*measure.Reading, error) {
	table, own, err := a.own(path)
	if err != nil {
		return nil, err
	}
	if own {
		return a.Host.Measure(path)
	}
	r := &measure.Reading{}
	err = a.Children.Do(child.Task{Step: "measure", On: path, Place: place(table, path), Args: path, Limit: cmp.Or(a.Limit, measureLimit), Long: true}, r)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Remove unmounts and removes everything volumes left of a pod. Where one of its mounts
// may hang on its own, a child unmounts them all: the newest may be on any of them.
func (a Apart) Remove(uid types.UID) error {
	table, err := a.table.Now()
	if err != nil {
		return err
	}
	root, err := realDir(a.Layout.Root)
	if err != nil || root == "" {
		return err
	}
	dir, err := realDir(a.Layout.Pod(uid))
	if err != nil || dir == "" {
		return err
	}
	points, err := a.points(table, uid)
	if err != nil {
		return err
	}
	if hanging := foreign(table, root, dir); len(hanging) > 0 {
		err = a.unmountApart(dir, points, hanging)
	} else {
		err = unmountAll(points)
	}
	if err != nil {
		return err
	}
	return a.removeFolders(uid)
}

// unmountApart has a child unmount mount points below a pod's folder, some of which may
// hang.
func (a Apart) unmountApart(dir string, points, hanging []string) error {
	all, limit := make([]unmountArgs, 0, len(points)), unmountLimit
	for _, point := range points {
		rel := strings.TrimPrefix(point, dir+"/")
		u := unmountArgs{Point: point, Force: strings.HasPrefix(rel, "volumes/kubernetes.io~nfs/")}
		u.Detach = slices.Contains(hanging, point) && (strings.HasPrefix(rel, "volume-subpaths/") || strings.HasPrefix(rel, "volumes/kubernetes.io~empty-dir/"))
		if u.Force {
			limit += forceAfter
		}
		all = append(all, u)
	}
	return a.Children.Do(child.Task{Step: "unmount", On: hanging[0], Place: dir, Args: all, Limit: cmp.Or(a.Limit, limit)}, nil)
}

// own reports whether a path is the root directory's, with nothing foreign mounted
// there.
func (a Apart) own(path string) (table []*mountinfo.Info, own bool, err error) {
	table, err = a.table.Now()
	if err != nil {
		return nil, false, err
	}
	rel, err := filepath.Rel(a.Layout.Root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return table, false, nil //nolint:nilerr // a path that is not below it
	}
	root, err := realDir(a.Layout.Root)
	if err != nil || root == "" {
		return table, false, err
	}
	return table, len(foreign(table, root, filepath.Join(root, rel))) == 0, nil
}
