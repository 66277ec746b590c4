// SPDX-License-Identifier: Apache-2.0

package gauge

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/mounts"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// NodeCPU is what the whole machine used.
func (r *Reader) NodeCPU() (*resourcev1.CpuUsage, bool) {
	text, ok := r.file(r.host.path("proc/stat"))
	if !ok {
		return nil, false
	}
	return usage.ParseNodeCPU(text)
}

// NodeStalls are the machine's, of "cpu", "memory" or "io"; nil where the kernel
// does not know.
func (r *Reader) NodeStalls(resource string) *resourcev1.Stalls {
	text, ok := r.file(r.host.path("proc/pressure", resource))
	if !ok {
		return nil
	}
	return usage.ParseStalls(text)
}

// BootTime is when the machine started; zero when it does not say.
func (r *Reader) BootTime() time.Time {
	text, ok := r.file(r.host.path("proc/stat"))
	if !ok {
		return time.Time{}
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "btime "); ok {
			if seconds, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return time.Unix(seconds, 0)
			}
		}
	}
	return time.Time{}
}

// Topology counts the machine's sockets and cores. A machine that does not say
// has one core a thread on one socket.
func (r *Reader) Topology(threads uint64) (sockets, cores uint64) {
	dirs, err := filepath.Glob(r.host.path("sys/devices/system/cpu/cpu[0-9]*/topology"))
	if err != nil {
		return 1, threads
	}
	packages, all := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		socket, ok := r.file(dir + "/physical_package_id")
		if !ok {
			continue
		}
		id := string(bytes.TrimSpace(socket))
		core, _ := r.file(dir + "/core_id")
		packages[id] = true
		all[id+"/"+string(bytes.TrimSpace(core))] = true
	}
	if len(packages) == 0 {
		return 1, threads
	}
	return uint64(len(packages)), uint64(len(all))
}

// OwnCgroup is the cgroup this process is in: that of the CPU controller on
// version 1.
func (r *Reader) OwnCgroup() string {
	text, ok := r.file(r.host.path("proc/self/cgroup"))
	if !ok {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		unified := parts[0] == "0" && parts[1] == ""
		if r.host.Version == 2 && unified {
			return parts[2]
		}
		if r.host.Version == 1 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				if controller == "cpuacct" {
					return parts[2]
				}
			}
		}
	}
	return ""
}

// FileSystemOf asks about the file system a folder is on.
func FileSystemOf(dir string) (*resourcev1.FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, fmt.Errorf("file system of %s: %w", dir, err)
	}
	size := uint64(mounts.BlockSize(&st))
	return &resourcev1.FileSystem{
		Mountpoint: dir, Capacity: st.Blocks * size, Available: st.Bavail * size, Used: (st.Blocks - st.Bfree) * size,
		Inodes: st.Files, InodesFree: st.Ffree, InodesUsed: st.Files - st.Ffree,
	}, nil
}

// onDisks are the types of file systems that the kernel answers for by itself, as a kubelet
// looks at them. Others may have a name below /dev as well: those of FUSE, whose server may
// not answer, and those of clusters.
var onDisks = []string{
	"btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fat", "hfs", "hfsplus", "iso9660", "jfs", "msdos", "ntfs", "reiserfs", "squashfs",
	"udf", "vfat", "xfs",
}

// Disks are the block devices that are mounted, each once: at its first mount.
// Network file systems are not asked: one that hangs would hang this.
func (r *Reader) Disks() []*resourcev1.Disk {
	file, err := os.Open(r.host.path("proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // read only
	counters := r.diskstats()
	known := map[string]bool{}
	var all []*resourcev1.Disk
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// proc_pid_mountinfo(5): optional fields end with a dash
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 2 || !slices.Contains(onDisks, rest[0]) || !strings.HasPrefix(rest[1], "/dev/") || known[rest[1]] {
			continue
		}
		known[rest[1]] = true
		fs, err := FileSystemOf(r.host.path(unescape(fields[4])))
		if err != nil {
			continue
		}
		disk := &resourcev1.Disk{Device: rest[1], FileSystem: fs}
		fill(disk, counters[fields[2]])
		all = append(all, disk)
	}
	return all
}

// unescape undoes the octal escapes of mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// diskstats are the counters of /proc/diskstats by "major:minor".
func (r *Reader) diskstats() map[string][]uint64 {
	text, ok := r.file(r.host.path("proc/diskstats"))
	if !ok {
		return nil
	}
	all := map[string][]uint64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 14 {
			continue
		}
		n := make([]uint64, 11)
		for i := range n {
			n[i], _ = strconv.ParseUint(fields[3+i], 10, 64)
		}
		all[fields[0]+":"+fields[1]] = n
	}
	return all
}

func fill(d *resourcev1.Disk, n []uint64) {
	if len(n) < 11 {
		return
	}
	d.Reads, d.ReadsMerged, d.SectorsRead, d.ReadTime = n[0], n[1], n[2], n[3]
	d.Writes, d.WritesMerged, d.SectorsWritten, d.WriteTime = n[4], n[5], n[6], n[7]
	d.InProgress, d.IoTime, d.WeightedIoTime = n[8], n[9], n[10]
}
