// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// order is negative if a goes before b.
type order func(a, b Pod) int

// first puts what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// by makes an order of a measure: what has none goes first.
func by[T any](measure func(Pod) (T, bool), compare func(a, b T) int) order {
	return func(a, b Pod) int {
		m, hasA := measure(a)
		n, hasB := measure(b)
		if !hasA || !hasB {
			return first(!hasA, !hasB)
		}
		return compare(m, n)
	}
}

func larger(a, b int64) int { return cmp.Compare(b, a) }

// threads are what the kernel counts. A kubelet looks at processes alone: of pods with the
// same number it takes any.
func threads(p Pod) int64 {
	if p.Usage == nil {
		return 0
	}
	return p.Usage.Threads
}

// Rank orders pods for a signal, the first to be evicted first.
func Rank(pods []Pod, signal string, layout Layout) []Pod {
	var orders []order
	switch r := resources[signal]; r {
	case v1.ResourceMemory:
		memory := func(p Pod) (int64, bool) {
			if p.Usage == nil {
				return 0, false
			}
			return ptr.Deref(p.Usage.Memory, 0), true
		}
		orders = overRequest(memory, func(p Pod) int64 { return requestOf(p, v1.ResourceMemory) }, func(p Pod) int64 { return requestOf(p, v1.ResourceMemory) })
	case pids:
		orders = []order{priority, by(func(p Pod) (int64, bool) {
			if p.Usage == nil {
				return 0, false
			}
			return p.Usage.Processes, true
		}, larger), by(func(p Pod) (int64, bool) { return threads(p), true }, larger)}
	default:
		measure := measured(signal, layout)
		taken := func(p Pod) (int64, bool) {
			if p.Usage == nil {
				return 0, false
			}
			files := onDisk(p, measure)
			if r == inodes {
				return files.Inodes, true
			}
			return files.Bytes, true
		}
		// A request of storage counts against inodes too, as if it were one of them.
		storage := func(p Pod) int64 { return requestOf(p, v1.ResourceEphemeralStorage) }
		exceeds := storage
		if r == inodes {
			exceeds = func(Pod) int64 { return 0 }
		}
		orders = overRequest(taken, exceeds, storage)
	}
	ranked := slices.Clone(pods)
	slices.SortStableFunc(ranked, func(a, b Pod) int {
		for _, o := range orders {
			if c := o(a, b); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.UID, b.UID) // a kubelet leaves it to chance
	})
	return ranked
}

// overRequest orders by whether usage exceeds a request, by priority, and by how much
// usage is over a request.
func overRequest(usage func(Pod) (int64, bool), exceeded, request func(Pod) int64) []order {
	return []order{
		by(func(p Pod) (bool, bool) {
			n, ok := usage(p)
			return n > exceeded(p), ok
		}, first),
		priority,
		by(func(p Pod) (int64, bool) {
			n, ok := usage(p)
			return n - request(p), ok
		}, larger),
	}
}

func priority(a, b Pod) int { return cmp.Compare(pod.Priority(a.Pod), pod.Priority(b.Pod)) }

func requestOf(p Pod, name v1.ResourceName) int64 {
	q := pod.Requests(p.Pod)[name]
	return q.Value()
}

// parts of a pod's usage of disk.
type parts struct{ root, logs, volumes bool }

// measured are the parts that are on the file system of a signal.
func measured(signal string, layout Layout) parts {
	images, nodefs := signal == ImageFSAvailable || signal == ImageFSInodes, signal == NodeFSAvailable || signal == NodeFSInodes
	switch {
	case layout == Dedicated && nodefs:
		return parts{logs: true, volumes: true}
	case layout == Dedicated:
		return parts{root: true}
	case layout == Split && images:
		return parts{}
	}
	return parts{root: true, logs: true, volumes: true}
}

// onDisk is what some parts of a pod take together.
func onDisk(p Pod, what parts) Files {
	var sum Files
	add := func(f *Files) {
		if f != nil {
			sum = sum.plus(*f)
		}
	}
	for _, c := range p.Usage.Containers {
		if what.root {
			add(c.Root)
		}
		if what.logs {
			add(c.Logs)
		}
	}
	if what.volumes {
		for _, v := range p.Spec.Volumes {
			if f, ok := p.Usage.Volumes[v.Name]; ok && local(v) {
				add(&f)
			}
		}
	}
	return sum
}

// local reports whether a volume takes the node's disk.
func local(v v1.Volume) bool {
	return v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}
