// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// The signals of the node. Bytes, inodes or processes.
const (
	MemoryAvailable      = "memory.available"
	AllocatableMemory    = "allocatableMemory.available"
	NodeFSAvailable      = "nodefs.available"
	NodeFSInodes         = "nodefs.inodesFree"
	ImageFSAvailable     = "imagefs.available"
	ImageFSInodes        = "imagefs.inodesFree"
	ContainerFSAvailable = "containerfs.available"
	ContainerFSInodes    = "containerfs.inodesFree"
	PIDAvailable         = "pid.available"
)

// The signals of a pod's own limits, as kubelet_evictions has them.
const (
	EmptyDirLimit  = "emptydirfs.limit"
	PodLimit       = "ephemeralpodfs.limit"
	ContainerLimit = "ephemeralcontainerfs.limit"
)

// Names of what runs short that are no v1.ResourceName.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// Layout says on which file systems the node, images and writable layers are.
type Layout string

// The layouts; the empty one is not known, so that nothing is decided for want of disk.
const (
	// Single: one file system for all.
	Single Layout = "single"
	// Dedicated: images and writable layers are on one of their own.
	Dedicated Layout = "dedicated"
	// Split: images are on one of their own, writable layers on the node's.
	Split Layout = "split"
)

// Config is what the configuration says.
type Config struct {
	// Thresholds are those of [Thresholds].
	Thresholds []kubeletconfig.Threshold
	// Transition is evictionPressureTransitionPeriod.
	Transition time.Duration
	// MaxPodGrace is evictionMaxPodGracePeriod, in seconds.
	MaxPodGrace int64
	// Isolation: pods' limits of local storage count (localStorageCapacityIsolation).
	Isolation bool
	Layout    Layout
}

// Observation is one reading of a signal.
type Observation struct {
	Available, Capacity int64
	// Inactive is what of the memory in use is in no working set; of memory only.
	Inactive int64
	Time     time.Time
}

// Files is what is taken on a file system.
type Files struct{ Bytes, Inodes int64 }

func (f Files) plus(g Files) Files { return Files{f.Bytes + g.Bytes, f.Inodes + g.Inodes} }

// Container is what a container uses. What is nil was not measured.
type Container struct {
	Name string
	// Memory is the working set in bytes.
	Memory *int64
	// Root is the writable layer.
	Root, Logs *Files
}

// Usage is what a pod uses.
type Usage struct {
	// Memory is the working set of the pod's cgroup in bytes; nil if not measured.
	Memory    *int64
	Processes int64
	// Threads are those of all its processes.
	Threads    int64
	Containers []Container
	// Volumes by name are all that were measured.
	Volumes map[string]Files
	// Other are files of the pod on the node's disk that are no volume and no log.
	Other Files
}

// Pod is a pod that may be evicted.
type Pod struct {
	*v1.Pod
	// Usage is nil for a pod of which nothing was measured.
	Usage *Usage
}

// History is what a pass hands to the next.
type History struct {
	// Seen is since when a threshold is met without a break.
	Seen map[Key]time.Time
	// Met are those met for their grace period and not resolved.
	Met map[Key]bool
	// Observed are the times of the observations decided on last.
	Observed map[string]time.Time
	// Conditions by type.
	Conditions map[v1.NodeConditionType]Condition
	// Reclaim is what is under way; nil for none.
	Reclaim *Reclaim
}

// Key identifies a threshold.
type Key struct {
	Signal string
	Hard   bool
}

// Condition is one of MemoryPressure, DiskPressure and PIDPressure.
type Condition struct {
	Under bool
	// Since is when Under last changed.
	Since time.Time
	// Crossed is when a threshold was last found crossed.
	Crossed time.Time
	// Message names what was crossed then.
	Message string
}

// Reclaim is what the node is to free of its own, and for which threshold.
type Reclaim struct {
	Containers, Images bool
	For                Key
	// Asked identifies it.
	Asked time.Time
	// Short says what was available then, for the text of a verdict.
	Short string
}

// Verdict is a pod that must go.
type Verdict struct {
	Pod *v1.Pod
	// Signal is the one that counts it.
	Signal string
	// Message is for the pod's status and event; it ends with a blank.
	Message     string
	Annotations map[string]string
	// Grace in seconds.
	Grace int64
}

// Input is all a pass depends on.
type Input struct {
	Now    time.Time
	Config Config
	// Observed by signal; what could not be read is missing.
	Observed map[string]Observation
	// Pods are those that hold something and are not on their way out.
	Pods []Pod
	// Leaving: a pod evicted before is not gone yet, so that nothing is decided.
	Leaving bool
	// Left is when the last one that was evicted went, or may have gone; zero for none.
	Left time.Time
	// Layers is when the writable layers of Pods were measured, the first of them; zero
	// where one was not.
	Layers time.Time
	// Reclaimed: what History.Reclaim wants was done, or given up, before Observed was
	// read.
	Reclaimed bool
	History   History
}

// Output is what a pass decides.
type Output struct {
	History History
	// Soon: nothing is decided as writable layers have not been measured since the node is
	// short; the next pass is to come soon.
	Soon bool
	// Reclaiming is the resource the node begins to reclaim; empty for none.
	Reclaiming v1.ResourceName
	// Verdicts: more than one only for limits of pods' own.
	Verdicts []Verdict
	// Ages is how old the observations were by which pods were ranked, by signal.
	Ages map[string]time.Duration
}

// resources are what a signal stands for.
var resources = map[string]v1.ResourceName{
	MemoryAvailable: v1.ResourceMemory, AllocatableMemory: v1.ResourceMemory,
	NodeFSAvailable: v1.ResourceEphemeralStorage, ImageFSAvailable: v1.ResourceEphemeralStorage, ContainerFSAvailable: v1.ResourceEphemeralStorage,
	NodeFSInodes: inodes, ImageFSInodes: inodes, ContainerFSInodes: inodes,
	PIDAvailable: pids,
}
