// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// Times to wait for devices to appear.
const (
	// deviceWait is for the first device of a disk (the kubelet's).
	deviceWait = 30 * time.Second
	// pathWait is for the other ones, once there is one, and then for multipathd to
	// take them.
	pathWait = 10 * time.Second
	lookEach = 200 * time.Millisecond
)

// stageFolder is where a disk is mounted, relative to the root directory: the kubelet's
// name for it.
func stageFolder(d *supervisorv1.NetworkDisk) string {
	plugins := pod.Layout{Root: "/"}.GlobalPlugins()
	if i := d.GetIscsi(); i != nil {
		return path.Join(plugins, "kubernetes.io/iscsi", "iface-"+record(i), fmt.Sprintf("%s-%s-lun-%d", i.GetPortals()[0], i.GetTarget(), i.GetLun()))[1:]
	}
	f := d.GetFc()
	name := strings.Join(f.GetWwids(), "-")
	if len(f.GetWwns()) > 0 {
		name = fmt.Sprintf("%s-lun-%d", strings.Join(f.GetWwns(), "-"), f.GetLun())
	}
	return path.Join(plugins, "kubernetes.io/fc", name)[1:]
}

// thing is the key by which requests about disks are serialized: the target, because
// its disks share its sessions.
func thing(d *supervisorv1.NetworkDisk) string {
	if i := d.GetIscsi(); i != nil {
		return "iSCSI target " + i.GetTarget()
	}
	return "FC disk " + path.Base(stageFolder(d))
}

// StageDisk implements ToolsServiceServer.
func (s *Server) StageDisk(ctx context.Context, r *supervisorv1.StageDiskRequest) (*supervisorv1.StageDiskResponse, error) {
	if err := checkStage(r); err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return nil, err
	}
	resp := &supervisorv1.StageDiskResponse{}
	err = s.runner.do(ctx, thing(r.GetDisk()), thing(r.GetDisk()), func(t *tools) (err error) {
		d := &disks{tools: t, host: s.machine()}
		if r.GetBlock() {
			resp.Device, err = d.attach(r)
			return err
		}
		rel := stageFolder(r.GetDisk())
		resp.Path = filepath.Join(root, rel)
		if there, err := d.makeFolder(root, rel); err != nil || there {
			return err
		}
		device, err := d.attach(r)
		if err != nil {
			return err
		}
		return d.formatAndMount(r, device, resp.GetPath())
	})
	return resp, err
}

// UnstageDisk implements ToolsServiceServer.
func (s *Server) UnstageDisk(ctx context.Context, r *supervisorv1.UnstageDiskRequest) (*supervisorv1.UnstageDiskResponse, error) {
	if err := checkDisk(r.GetDisk()); err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return nil, err
	}
	err = s.runner.do(ctx, thing(r.GetDisk()), thing(r.GetDisk()), func(t *tools) error {
		d := &disks{tools: t, host: s.machine()}
		if err := d.unmount(root, stageFolder(r.GetDisk())); err != nil {
			return err
		}
		return d.detach(r)
	})
	return &supervisorv1.UnstageDiskResponse{}, err
}

func (s *Server) machine() host {
	if s.Host == "" {
		return "/"
	}
	return host(s.Host)
}

// makeFolder creates the folder a disk is mounted on, and reports whether something is
// mounted there. Links out of the root directory are not followed.
func (d *disks) makeFolder(root, rel string) (there bool, err error) {
	below, err := os.OpenRoot(root)
	if err != nil {
		return false, err
	}
	defer below.Close() //nolint:errcheck // nothing was written by it
	if err := below.MkdirAll(rel, 0o750); err != nil {
		return false, err
	}
	return mounted(root, rel)
}

// unmount unmounts a disk and removes its folder.
func (d *disks) unmount(root, rel string) error {
	target := filepath.Join(root, rel)
	if _, err := os.Lstat(filepath.Dir(target)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	there, err := mounted(root, rel)
	if err != nil {
		return err
	}
	if there {
		if _, err := d.run("umount", "--", target); err != nil {
			return said("unmount "+target, err)
		}
		if there, err := mounted(root, rel); err != nil || there {
			return errors.Join(rpc.Conflict.Errorf("%s is still mounted", target), err)
		}
	}
	if err := file.Remove(target); err != nil {
		return fmt.Errorf("folder of the disk: %w", err)
	}
	return nil
}

// attach connects a disk and returns its device.
func (d *disks) attach(r *supervisorv1.StageDiskRequest) (device string, err error) {
	disk := r.GetDisk()
	var expected int
	if i := disk.GetIscsi(); i != nil {
		expected, err = d.connect(i, r)
	} else {
		expected, err = d.lookForFC(disk.GetFc())
	}
	if err != nil {
		return "", err
	}
	paths, err := d.wait(disk, expected)
	if err != nil {
		return "", err
	}
	name, err := d.multipath(paths)
	if err != nil {
		return "", err
	}
	if users := d.host.users(name); len(users) > 0 && !r.GetBlock() {
		return "", rpc.Conflict.Errorf("device %s is not free: %s", name, strings.Join(users, ", "))
	}
	return string(d.host.join("dev", name)), nil
}

// wait waits for the devices of a disk, by name: all that are expected, or those
// present when the time is over.
func (d *disks) wait(disk *supervisorv1.NetworkDisk, expected int) ([]string, error) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	long, some := time.After(d.r.wait(deviceWait)), (<-chan time.Time)(nil)
	for {
		paths := d.host.paths(disk)
		if len(paths) >= expected {
			return paths, nil
		}
		if len(paths) > 0 && some == nil {
			some = time.After(d.r.wait(pathWait))
		}
		select {
		case <-tick.C:
		case <-some:
			return paths, nil
		case <-long:
			if len(paths) > 0 {
				return paths, nil
			}
			return nil, rpc.Conflict.Errorf("%s: no device for unit %d after %s", thing(disk), unit(disk), d.r.wait(deviceWait))
		case <-d.ctx.Done():
			return nil, rpc.Unavailable.Errorf("%s: no device for unit %d yet", thing(disk), unit(disk))
		}
	}
}

// multipath is the device that multipathd made of a disk's paths, else the first path.
// If there are several paths and multipathd runs, it waits for that device.
func (d *disks) multipath(paths []string) (string, error) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	long := time.After(d.r.wait(pathWait))
	_, err := d.r.find("multipath")
	several := len(paths) > 1 && err == nil
	for {
		if name := d.host.multipath(paths); name != "" || !several {
			if name == "" {
				name = paths[0]
			}
			return name, nil
		}
		select {
		case <-tick.C:
		case <-long:
			several = false
		case <-d.ctx.Done():
			return "", rpc.Unavailable.Errorf("%s: multipathd has not taken them yet", strings.Join(paths, ", "))
		}
	}
}

// detach disconnects a disk that is not in use.
func (d *disks) detach(r *supervisorv1.UnstageDiskRequest) error {
	paths := d.host.paths(r.GetDisk())
	for _, name := range paths {
		if users := d.host.users(name); len(users) > 0 {
			return rpc.Conflict.Errorf("device %s is still used: %s", name, strings.Join(users, ", "))
		}
	}
	if name := d.host.multipath(paths); name != "" {
		if users := d.host.users(name); len(users) > 0 {
			return rpc.Conflict.Errorf("device %s is still used: %s", name, strings.Join(users, ", "))
		}
		if _, err := d.run("multipath", "-f", string(d.host.join("dev", name))); err != nil {
			return said("flush multipath device "+name, err)
		}
	}
	if i := r.GetDisk().GetIscsi(); i != nil && !r.GetKeepSession() && !d.sessionUsed(i, paths) {
		return d.logout(i)
	}
	for _, name := range paths {
		if err := d.write(string(d.host.join("sys/block", name, "device/delete")), "1"); err != nil {
			return said("remove device "+name, err)
		}
	}
	return nil
}

// sessionUsed reports whether another disk of an iSCSI target's sessions is used.
func (d *disks) sessionUsed(i *supervisorv1.ISCSIDisk, but []string) bool {
	for _, s := range d.host.sessions(i.GetTarget(), record(i)) {
		for _, name := range s.devices("*") {
			if !slices.Contains(but, name) && len(d.host.users(name)) > 0 {
				return true
			}
		}
	}
	return false
}
