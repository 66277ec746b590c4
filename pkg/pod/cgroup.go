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

// PodCgroup is the cgroup of a pod.
func PodCgroup(root CgroupName, p *v1.Pod) CgroupName {
	return PodCgroupOf(root, QOS(p), p.UID)
}

// PodCgroupOf is PodCgroup from its parts.
func PodCgroupOf(root CgroupName, class v1.PodQOSClass, uid types.UID) CgroupName {
	return QOSCgroup(root, class).Child(podPrefix + string(uid))
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

// Parent is how a runtime is told the cgroup as a parent (CRI cgroup_parent): the path
// for cgroupfs, the name of the slice for systemd.
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

// ParseCgroupPath is the inverse of Path.
func ParseCgroupPath(p string, d CgroupDriver) CgroupName {
	p = strings.Trim(p, "/")
	if p == "" || p == systemdEmpty {
		return nil
	}
	if d != Systemd {
		return strings.Split(p, "/")
	}
	unit := strings.TrimSuffix(path.Base(p), slice)
	parts := strings.Split(unit, "-")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "_", "-")
	}
	return parts
}

// ParsePodCgroup returns the UID of the pod the cgroup belongs to; ok is false for
// cgroups that are no pod's.
func ParsePodCgroup(n CgroupName) (uid types.UID, ok bool) {
	if len(n) < 2 {
		return "", false
	}
	id, found := strings.CutPrefix(n[len(n)-1], podPrefix)
	if !found || id == "" || id == "s" {
		return "", false
	}
	switch n[len(n)-2] {
	case kubepods, burstable, besteffort:
		return types.UID(id), true
	}
	return "", false
}
