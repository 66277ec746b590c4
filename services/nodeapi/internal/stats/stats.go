// SPDX-License-Identifier: Apache-2.0

// Package stats makes of readings the stats summary, /metrics/resource and
// /metrics/cadvisor. It is pure: readings in, answers out, with time in the readings. What
// was not read is missing in the answer, and is not zero.
package stats

import (
	"cmp"
	"slices"
	"time"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// Input is all readings. Any part may be missing.
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

// Container is a running one.
type Container struct {
	ID, Name, Image string
	Created         time.Time
}

// Layer is what a container wrote into its root file system.
type Layer struct {
	// Mountpoint is that of its file system.
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
		// Of one name the newest counts.
		slices.SortFunc(p.containers, func(a, b container) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), b.Created.Compare(a.Created))
		})
		p.containers = slices.CompactFunc(p.containers, func(a, b container) bool { return a.Name == b.Name })
		all = append(all, p)
	}
	// A pod that pleg has not seen yet is known by its cgroup.
	for uid, usage := range read {
		all = append(all, pod{Pod: &Pod{UID: uid, Namespace: usage.GetNamespace(), Name: usage.GetName(), Created: usage.GetCgroup().GetCreated().AsTime()}, usage: usage})
	}
	slices.SortFunc(all, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// busy are the pods with a running container, which alone are in the kubelet's summary.
func (in *Input) busy() []pod {
	return slices.DeleteFunc(in.pods(), func(p pod) bool { return len(p.containers) == 0 })
}

const (
	// sandboxName is empty, so that queries for container!="" leave sandboxes out.
	sandboxName = ""
	// sandboxImage replaces the image, which the CRI does not have: dashboards leave out
	// rows without one.
	sandboxImage = "pause"
)

// swapLimit is a container's limit of swap, at most the machine's; none without either, as
// with cAdvisor.
func swapLimit(usage *resourcev1.MemoryUsage, m *resourcev1.Machine) (limit uint64, ok bool) {
	if usage == nil || m == nil || usage.SwapLimit == nil {
		return 0, false
	}
	return min(usage.GetSwapLimit(), m.GetSwap()), true
}
