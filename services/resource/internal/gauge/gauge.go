// SPDX-License-Identifier: Apache-2.0

// Package gauge reads what cgroups and processes use, from cgroupfs and /proc
// below a root folder, so that a test can show it any tree.
//
// It owns nothing and remembers nothing but buffers. A cgroup or process that
// goes while it is read is left out, as if it had gone before.
package gauge

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// Host is a machine seen through a root folder, "/" for this one.
type Host struct {
	Root string
	// Version of cgroups, 1 or 2.
	Version uint32
}

func (h Host) path(parts ...string) string {
	return filepath.Join(append([]string{cmp.Or(h.Root, "/")}, parts...)...)
}

// Reader reads with buffers of its own: one goroutine at a time.
type Reader struct {
	host   Host
	buffer []byte
	// devices names block devices by number.
	devices map[[2]uint64]string
	// at is the cgroup whose folders are open, by controller.
	at      string
	folders map[string]int
}

// NewReader makes a reader.
func (h Host) NewReader() *Reader {
	return &Reader{
		host: h, buffer: make([]byte, 16<<10),
		devices: map[[2]uint64]string{}, folders: map[string]int{},
	}
}

// file reads a file by its path into the buffer.
func (r *Reader) file(path string) ([]byte, bool) {
	text, err := r.read(unix.AT_FDCWD, path)
	return text, err == nil
}

// enough of a page was free when the kernel stopped: its files of many records
// come in pieces of nearly a page, so that a smaller piece is the last one.
const enough = 2048

// read reads a file whole into the buffer. The poller and the stat calls of
// os.ReadFile would cost more than the kernel does.
func (r *Reader) read(dir int, path string) ([]byte, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	n := 0
	for {
		if n == len(r.buffer) {
			r.buffer = append(r.buffer, make([]byte, len(r.buffer))...)
		}
		more, err := unix.Read(fd, r.buffer[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		if n += more; more < enough {
			return r.buffer[:n], nil
		}
	}
}

// leave closes the folders of a cgroup that was read.
func (r *Reader) leave() {
	for controller, fd := range r.folders {
		if fd >= 0 {
			_ = unix.Close(fd) // read only
		}
		delete(r.folders, controller)
	}
}

// Read implements usage.Source for the cgroup that is being read.
func (r *Reader) Read(controller, file string) ([]byte, bool) {
	if r.host.Version == 2 {
		controller = ""
	}
	dir, ok := r.folders[controller]
	if !ok {
		var err error
		dir, err = unix.Open(r.host.folder(controller, r.at), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			dir = -1
		}
		r.folders[controller] = dir
	}
	if dir < 0 {
		return nil, false
	}
	text, err := r.read(dir, file)
	return text, err == nil
}

// folder of a cgroup. Version 1 controllers that are mounted together have links
// by their single names.
func (h Host) folder(controller, cgroup string) string {
	if h.Version == 2 {
		controller = ""
	}
	return h.path("sys/fs/cgroup", controller, cgroup)
}

// walked is the version 1 hierarchy that says which cgroups there are: the one
// that every runtime makes them in, and whose accounting matters most.
const walked = "memory"

// Cgroup reads one cgroup and counts its own processes' files; ok is false when
// it is not there.
func (r *Reader) Cgroup(path string, now time.Time) (reading *resourcev1.CgroupUsage, pids []int, ok bool) {
	var st unix.Stat_t
	r.at = path
	defer r.leave()
	if err := unix.Stat(r.host.folder(walked, path), &st); err != nil {
		return nil, nil, false
	}
	reading = usage.Read(r, r.host.Version)
	reading.Path, reading.Time = path, timestamppb.New(now)
	reading.Created = timestamppb.New(time.Unix(st.Mtim.Unix()))
	for _, io := range reading.GetIo() {
		io.Device = r.device(io.GetMajor(), io.GetMinor())
	}
	if text, ok := r.Read(walked, "cgroup.procs"); ok {
		pids = usage.ParsePIDs(text)
	}
	reading.Processes.Processes = uint64(len(pids))
	for i, pid := range pids {
		process := r.host.path("proc", strconv.Itoa(pid))
		reading.Processes.FileDescriptors += openFiles(process)
		if i > 0 {
			continue
		}
		if text, ok := r.file(process + "/limits"); ok {
			if limit, ok := usage.ParseOpenFilesLimit(text); ok {
				reading.Processes.OpenFilesLimit = &limit
			}
		}
	}
	return reading, pids, true
}

// Memory is that of a cgroup alone: of all that Cgroup reads, the processes' files are most.
func (r *Reader) Memory(path string) *resourcev1.MemoryUsage {
	r.at = path
	defer r.leave()
	return usage.Memory(r, r.host.Version)
}

// openFiles counts a process's open files. The size of the folder says it since
// Linux 6.2; before, and in a copied tree, they are counted.
func openFiles(process string) uint64 {
	dir := process + "/fd"
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Type == unix.PROC_SUPER_MAGIC && st.Size > 0 {
		return uint64(st.Size)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return uint64(len(entries))
}

// Interfaces are those of the network namespace of the first process that is
// still there.
func (r *Reader) Interfaces(pids []int) []*resourcev1.NetworkInterface {
	for _, pid := range pids {
		if text, ok := r.file(r.host.path("proc", strconv.Itoa(pid), "net/dev")); ok {
			return usage.ParseInterfaces(text)
		}
	}
	return nil
}

// Children are the names of the cgroups right below one.
func (r *Reader) Children(path string) []string {
	entries, err := os.ReadDir(r.host.folder(walked, path))
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all
}

// device is a block device's path: sysfs knows its name.
func (r *Reader) device(major, minor uint64) string {
	key := [2]uint64{major, minor}
	if name, ok := r.devices[key]; ok {
		return name
	}
	name := fmt.Sprintf("%d:%d", major, minor) // of a device that is gone
	text, ok := r.file(r.host.path("sys/dev/block", name, "uevent"))
	if ok {
		for line := range strings.Lines(string(text)) {
			if found, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
				name = "/dev/" + found
			}
		}
	}
	r.devices[key] = name
	return name
}
