// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/supervisor/gate"
)

// purge is the removal of what a node leaves behind.
type purge struct{ *Plan }

// Purge removes what the node leaves behind once its services are stopped. The runtime
// loses only this node's pods. What it knows the node by goes last, and only when all else
// has gone, so that a purge that failed can be made again.
func (p *Plan) Purge(ctx context.Context, pods []string) error { return purge{p}.run(ctx, pods) }

func (p purge) run(ctx context.Context, pods []string) error {
	left, err := removePods(ctx, p.Endpoint, pods, sandboxRemoval)
	gone := slices.DeleteFunc(slices.Clone(pods), func(uid string) bool { return slices.Contains(left, uid) })
	all := []error{err, unmountBelow(p.RootDir), unshare(p.Run), p.stopSlices(ctx), gate.Undo(gate.DropIn), p.removeCgroups(ctx), p.leaveSharedRoot(ctx, pods), p.removePodFiles(gone)}
	if err := errors.Join(all...); err != nil {
		return err // what the node was, and which pods it had, is for the next purge to know
	}
	if p.Units {
		if err := p.removePrepared(); err != nil {
			return err
		}
	}
	for _, dir := range append(slices.Clone(p.Disposable), p.Run) {
		if err := errors.Join(unmountBelow(dir), removeLed(dir)); err != nil {
			return err
		}
	}
	return nil
}

// socketOfKubelet is the name of the sockets at which device plugins register and at which
// agents ask which devices pods have.
const socketOfKubelet = "kubelet.sock"

// removeLed removes a folder of root's, also one that a link leads to, with the link.
func removeLed(dir string) error {
	led, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = removeFolder(led)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Readlink(dir); err == nil {
		return os.Remove(dir)
	}
	return nil
}

// removeFolder removes a folder; of one that is a disk of its own, all that is on it.
func removeFolder(dir string) error {
	disk, err := mounts.On(dir)
	if err != nil || !disk {
		return errors.Join(err, mounts.RemoveTree(dir))
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, mounts.RemoveTree(filepath.Join(dir, e.Name())))
	}
	return err
}

// removePodFiles removes the pods' folders, logs and log links.
func (p purge) removePodFiles(uids []string) error {
	var all []error
	for _, uid := range uids {
		all = append(all, mounts.RemoveTree(filepath.Join(p.RootDir, "pods", uid)))
		logs, err := filepath.Glob(filepath.Join(p.PodLogsDir, "*_"+uid))
		all = append(all, err)
		for _, dir := range logs {
			all = append(all, os.RemoveAll(dir))
		}
	}
	links, err := os.ReadDir(p.LinksDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all = append(all, err)
	}
	for _, link := range links {
		path := filepath.Join(p.LinksDir, link.Name())
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			all = append(all, os.Remove(path)) // its log is gone
		}
	}
	return errors.Join(all...)
}

// stopSlices removes the slices of a node that had a root of its own: stopping
// one stops those below it.
func (p purge) stopSlices(ctx context.Context) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil || len(root) == 0 || !systemd.IsRunningSystemd() {
		return err
	}
	if len(hostHierarchies().at(root.Path(pod.Systemd))) == 0 {
		return nil
	}
	return StopUnit(ctx, root.Slice())
}

// removeCgroups removes the pods' cgroups of a node that had a root of its own;
// below a shared root other agents' pods may live.
func (p purge) removeCgroups(ctx context.Context) error {
	if p.CgroupRoot == "" || p.CgroupRoot == "/" {
		return nil
	}
	return removeCgroupTrees(ctx, hostHierarchies().at(p.CgroupRoot))
}

// leaveSharedRoot removes the cgroups of this node's pods below the root that all
// agents of a machine share, and those of the QoS classes, which outlive their pods,
// as far as there is no pod in them. A root of the node's own is removed as a whole.
func (p purge) leaveSharedRoot(ctx context.Context, pods []string) error {
	root, err := pod.ParseCgroupRoot(p.CgroupRoot)
	if err != nil || len(root) > 0 {
		return err
	}
	s := sharedRoot{hierarchies: hostHierarchies()}
	if systemd.IsRunningSystemd() {
		s.stop = StopUnit
	}
	return s.leave(ctx, pods)
}

// removePrepared removes the sockets for plugins, the state of managers, of whose pods none is
// left, the folders made for pods and plugins, if they are empty, and the serving certificate
// that nodeapi signed itself. Certificates of the cluster stay: they belong to the node,
// whichever agent it runs.
func (p purge) removePrepared() error {
	all := []error{certFolder{dir: p.CertDir}.remove()}
	layout := pod.Layout{Root: p.RootDir}
	for _, file := range append(layout.ManagerState(), filepath.Join(layout.DevicePlugins(), socketOfKubelet), filepath.Join(layout.PodResources(), socketOfKubelet)) {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			all = append(all, err)
		}
	}
	for _, dir := range []string{
		filepath.Join(p.RootDir, "pods"), filepath.Join(p.RootDir, "image_manager"), filepath.Join(p.RootDir, "checkpoints"),
		filepath.Join(p.RootDir, "plugins_registry"), filepath.Join(p.RootDir, "plugins"), filepath.Join(p.RootDir, "device-plugins"),
		filepath.Join(p.RootDir, "pod-resources"),
		p.CertDir, p.RootDir, p.PodLogsDir, p.LinksDir,
	} {
		empty, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || len(empty) > 0 {
			continue
		}
		all = append(all, err)
		if err := os.Remove(dir); !errors.Is(err, unix.EBUSY) { // a disk of its own stays
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
