// SPDX-License-Identifier: Apache-2.0

// Package machine reads what the machine is: cores, memory, disk, identity. It
// reads /proc and /sys below a root, so that a test can show it any machine.
package machine

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/pkg/mounts"
)

// Host is a machine seen through a root folder, "/" for this one.
type Host struct{ Root string }

func (h Host) path(parts ...string) string {
	return filepath.Join(append([]string{cmp.Or(h.Root, "/")}, parts...)...)
}

func (h Host) text(parts ...string) string {
	data, err := os.ReadFile(h.path(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Facts do not change while the machine is up.
type Facts struct {
	MachineID, SystemUUID, BootID, Kernel, OSImage string
	OperatingSystem, Architecture                  string
	CgroupVersion                                  uint32
	SwapBytes                                      int64
	Cores                                          int64
	// AppArmor: the kernel enforces AppArmor profiles.
	AppArmor bool
	// Capacity without pods, which the configuration sets, and without disk.
	Capacity v1.ResourceList
}

// Read gathers the facts. Missing identity is empty; missing cores or memory is
// an error, for nothing can be admitted without.
func (h Host) Read() (*Facts, error) {
	f := &Facts{
		MachineID:  cmp.Or(h.text("etc/machine-id"), h.text("var/lib/dbus/machine-id")),
		SystemUUID: h.text("sys/class/dmi/id/product_uuid"),
		BootID:     h.text("proc/sys/kernel/random/boot_id"),
		Kernel:     h.text("proc/sys/kernel/osrelease"),
		OSImage:    h.osImage(), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		CgroupVersion: 1, Capacity: v1.ResourceList{},
	}
	f.SystemUUID = cmp.Or(f.SystemUUID, f.MachineID)
	f.AppArmor = strings.HasPrefix(h.text("sys/module/apparmor/parameters/enabled"), "Y")
	if _, err := os.Stat(h.path("sys/fs/cgroup/cgroup.controllers")); err == nil {
		f.CgroupVersion = 2
	}
	online, err := cpuset.Parse(h.text("sys/devices/system/cpu/online"))
	if err != nil || online.IsEmpty() {
		return nil, fmt.Errorf("cores online: %w", cmp.Or(err, fs.ErrNotExist))
	}
	f.Cores = int64(online.Size())
	memory, err := h.Memory()
	if err != nil {
		return nil, err
	}
	f.SwapBytes = memory["SwapTotal"]
	f.Capacity[v1.ResourceCPU] = *resource.NewQuantity(f.Cores, resource.DecimalSI)
	f.Capacity[v1.ResourceMemory] = *resource.NewQuantity(memory["MemTotal"], resource.BinarySI)
	return f, h.hugePages(f.Capacity)
}

// Memory is /proc/meminfo in bytes.
func (h Host) Memory() (map[string]int64, error) {
	file, err := os.Open(h.path("proc/meminfo"))
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	values := map[string]int64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) > 1 && fields[1] == "kB" {
			n <<= 10
		}
		values[name] = n
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if values["MemTotal"] == 0 {
		return nil, errors.New("memory: meminfo has no MemTotal")
	}
	return values, nil
}

func (h Host) osImage() string {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		for line := range strings.SplitSeq(h.text(file), "\n") {
			if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				return strings.Trim(value, `"'`) // os-release(5): either quote
			}
		}
	}
	return "Linux"
}

// hugePages adds capacity for each page size the kernel knows.
func (h Host) hugePages(capacity v1.ResourceList) error {
	const prefix = "hugepages-"
	dirs, err := filepath.Glob(h.path("sys/kernel/mm/hugepages", prefix+"*kB"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), prefix), "kB"), 10, 64)
		if err != nil {
			continue
		}
		pages, err := strconv.ParseInt(strings.TrimSpace(readFile(filepath.Join(dir, "nr_hugepages"))), 10, 64)
		if err != nil {
			continue
		}
		size := resource.NewQuantity(kb<<10, resource.BinarySI)
		capacity[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(pages*kb<<10, resource.BinarySI)
	}
	return nil
}

func readFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// Disk is a file system's size and what is left of it, in bytes and inodes.
type Disk struct{ Bytes, Available, Inodes, InodesFree int64 }

// DiskOf asks about the file system a folder is on.
func DiskOf(dir string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("disk of %s: %w", dir, err)
	}
	size := mounts.BlockSize(&st)
	return Disk{
		Bytes: int64(st.Blocks) * size, Available: int64(st.Bavail) * size,
		Inodes: int64(st.Files), InodesFree: int64(st.Ffree),
	}, nil
}

// Processes is how many there may be and how many there are.
func (h Host) Processes() (most, now int64, err error) {
	most, err = strconv.ParseInt(h.text("proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("pid_max: %w", err)
	}
	if threads, err := strconv.ParseInt(h.text("proc/sys/kernel/threads-max"), 10, 64); err == nil {
		most = min(most, threads)
	}
	// loadavg's fourth field is "runnable/all".
	fields := strings.Fields(h.text("proc/loadavg"))
	if len(fields) < 4 {
		return 0, 0, errors.New("loadavg: too few fields")
	}
	_, all, _ := strings.Cut(fields[3], "/")
	now, err = strconv.ParseInt(all, 10, 64)
	return most, now, err
}
