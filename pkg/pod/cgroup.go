// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CgroupDriver says who makes cgroups, and with that how they are called.
type CgroupDriver string

// The drivers, spelled as in KubeletConfiguration.cgroupDriver.
const (
	Cgroupfs CgroupDriver = "cgroupfs"
	Systemd  CgroupDriver = "systemd"
)

// CgroupName is the name of a cgroup independent of the driver: the parts from the root
// down. A part holds neither slash nor underscore.
type CgroupName []string

// Parts of cgroup names.
const (
	kubepods     = "kubepods"
	burstable    = "burstable"
	besteffort   = "besteffort"
	podPrefix    = "pod"
	slice        = ".slice"
	systemdEmpty = "-.slice"
)

// ParseCgroupRoot reads KubeletConfiguration.cgroupRoot, a path in cgroupfs form. Empty
// and "/" are the root of the hierarchy.
func ParseCgroupRoot(root string) (CgroupName, error) {
	var name CgroupName
	for part := range strings.SplitSeq(strings.Trim(root, "/"), "/") {
		switch {
		case part == "":
		case part == "." || part == ".." || strings.Contains(part, "_"):
			return nil, fmt.Errorf("cgroupRoot %q: %q cannot be part of a cgroup name", root, part)
		default:
			name = append(name, part)
		}
	}
	return name, nil
}

// ParseCgroup reads the name of a cgroup that is there already, as systemReservedCgroup and
// kubeReservedCgroup have it: a path, or with systemd a slice, of which the last part
// counts.
func ParseCgroup(text string, d CgroupDriver) (CgroupName, error) {
	if d != Systemd {
		return ParseCgroupRoot(text)
	}
	var name CgroupName
	for part := range strings.SplitSeq(strings.TrimSuffix(path.Base(text), slice), "-") {
		if part == "" || part == "." || part == "/" {
			return nil, fmt.Errorf("%q is not the name of a slice", text)
		}
		name = append(name, strings.ReplaceAll(part, "_", "-"))
	}
	return name, nil
}

// KubepodsCgroup is the parent of all pods. With cgroupsPerQOS off use root itself.
func KubepodsCgroup(root CgroupName) CgroupName { return root.Child(kubepods) }

// QOSCgroup is the parent of the pods of a class; guaranteed pods sit right under
// kubepods.
func QOSCgroup(root CgroupName, class v1.PodQOSClass) CgroupName {
	switch class {
	case v1.PodQOSBurstable:
		return KubepodsCgroup(root).Child(burstable)
	case v1.PodQOSBestEffort:
		return KubepodsCgroup(root).Child(besteffort)
	default:
		return KubepodsCgroup(root)
	}
}

// PodCgroupOf is PodCgroup from its parts.
func PodCgroupOf(root CgroupName, class v1.PodQOSClass, uid types.UID) CgroupName {
	return QOSCgroup(root, class).Child(podPrefix + string(uid))
}

// PodOf is the UID of the pod whose cgroup a folder right below n is; false for any
// other folder.
func (n CgroupName) PodOf(folder string, d CgroupDriver) (uid types.UID, ok bool) {
	prefix := podPrefix
	if d == Systemd {
		if folder, ok = strings.CutSuffix(folder, slice); !ok {
			return "", false
		}
		prefix = n.joined(len(n)) + "-" + podPrefix
	}
	rest, ok := strings.CutPrefix(folder, prefix)
	if d == Systemd {
		rest = strings.ReplaceAll(rest, "_", "-")
	}
	uid = types.UID(rest)
	return uid, ok && CheckUID(uid) == nil
}

// Child is the cgroup of that name below n.
func (n CgroupName) Child(part string) CgroupName {
	return append(append(make(CgroupName, 0, len(n)+1), n...), part)
}

// Path is the path of the cgroup below the mount of a hierarchy, as the driver names it.
func (n CgroupName) Path(d CgroupDriver) string {
	if d == Systemd {
		return n.systemdPath()
	}
	return "/" + path.Join(n...)
}

// Parent is the cgroup as the CRI's cgroup_parent: the path for cgroupfs, the name of
// the slice for systemd.
func (n CgroupName) Parent(d CgroupDriver) string {
	if d == Systemd {
		return n.Slice()
	}
	return n.Path(d)
}

// Slice is the systemd unit of the cgroup: parts joined by dashes, dashes within a part
// as underscores.
func (n CgroupName) Slice() string {
	if len(n) == 0 {
		return systemdEmpty
	}
	return n.joined(len(n)) + slice
}

func (n CgroupName) joined(parts int) string {
	escaped := make([]string, parts)
	for i, part := range n[:parts] {
		escaped[i] = strings.ReplaceAll(part, "-", "_")
	}
	return strings.Join(escaped, "-")
}

func (n CgroupName) systemdPath() string {
	if len(n) == 0 {
		return "/"
	}
	var b strings.Builder
	for i := range n {
		b.WriteByte('/')
		b.WriteString(n.joined(i + 1))
		b.WriteString(slice)
	}
	return b.String()
}
