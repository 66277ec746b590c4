// Package stats turns readings into the kubelet's three ways of telling them: the
// stats summary, /metrics/resource and /metrics/cadvisor. It is pure: readings
// in, answers out, and time is in the readings.
//
// A reading that is missing is missing in the answer, and nothing else is: absent
// is not zero.
package stats

import (
	"cmp"
	"slices"
	"time"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Input is all that is known. Any part may be missing.
type Input struct {
	NodeName string
	// Usage is resource's reading.
	Usage *resourcev1.UsageResponse
	// Pods are those that run something, by UID.
	Pods map[string]*Pod
	// Volumes are volume's readings.
	Volumes []*volumev1.VolumeStats
	// Layers are the writable layers of containers by id, from the runtime.
	Layers map[string]Layer
}

// Pod is what the runtime has of a pod.
type Pod struct {
	UID, Namespace, Name string
	// Created is when its newest sandbox was.
	Created    time.Time
	Containers []Container
	// Sandboxes are ids.
	Sandboxes []string
}

// Container is one that runs.
type Container struct {
	ID, Name, Image string
	Created         time.Time
}

// Layer is what a container wrote into its root file system.
type Layer struct {
	// Mountpoint tells the file system it is on.
	Mountpoint    string
	Bytes, Inodes *uint64
	Time          time.Time
}

// pod is a pod with its readings.
type pod struct {
	*Pod
	usage *resourcev1.PodUsage // nil: not read
	// containers have one reading each at most, sorted by name.
	containers []container
	sandboxes  []container
}

type container struct {
	Container
	usage *resourcev1.CgroupUsage // nil: not read
}

// pods joins what the runtime says with what was read, sorted by name.
func (in *Input) pods() []pod {
	read := map[string]*resourcev1.PodUsage{}
	for _, p := range in.Usage.GetPods() {
		read[p.GetUid()] = p
	}
	var all []pod
	for uid, known := range in.Pods {
		p := pod{Pod: known, usage: read[uid]}
		delete(read, uid)
		cgroups := map[string]*resourcev1.CgroupUsage{}
		for _, c := range p.usage.GetContainers() {
			cgroups[c.GetName()] = c
		}
		for _, c := range known.Containers {
			p.containers = append(p.containers, container{c, cgroups[c.ID]})
		}
		for _, id := range known.Sandboxes {
			if c := cgroups[id]; c != nil {
				p.sandboxes = append(p.sandboxes, container{Container{ID: id, Name: sandboxName, Image: sandboxImage, Created: known.Created}, c})
			}
		}
		// The newest of a name is the one that counts.
		slices.SortFunc(p.containers, func(a, b container) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), b.Created.Compare(a.Created))
		})
		p.containers = slices.CompactFunc(p.containers, func(a, b container) bool { return a.Name == b.Name })
		all = append(all, p)
	}
	// A pod whose record is not there yet is known by its cgroup.
	for uid, usage := range read {
		all = append(all, pod{Pod: &Pod{UID: uid, Namespace: usage.GetNamespace(), Name: usage.GetName(), Created: usage.GetCgroup().GetCreated().AsTime()}, usage: usage})
	}
	slices.SortFunc(all, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// busy are the pods that run a container: the kubelet does not tell of others in
// its summary.
func (in *Input) busy() []pod {
	return slices.DeleteFunc(in.pods(), func(p pod) bool { return len(p.containers) == 0 })
}

const (
	// sandboxName is the container name of a pod's sandbox: none, so that queries
	// for container!="" leave it out.
	sandboxName = ""
	// sandboxImage stands for the sandbox's image, which the CRI does not tell:
	// dashboards leave out rows without an image.
	sandboxImage = "pause"
)
