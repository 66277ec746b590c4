// SPDX-License-Identifier: Apache-2.0

// Package record turns what the runtime lists into what changed and what a pod
// looks like. It is pure: lists in, fingerprints and records out.
package record

import (
	"fmt"
	"hash/fnv"
	"path"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/wire"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// Listing is what the runtime lists of one pod.
type Listing struct {
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
}

// Group sorts lists by pod UID. What carries no pod UID is not a pod's.
func Group(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[string]*Listing {
	pods := map[string]*Listing{}
	of := func(labels map[string]string) *Listing {
		uid := labels[pod.PodUIDLabel]
		if uid == "" {
			return nil
		}
		if pods[uid] == nil {
			pods[uid] = &Listing{}
		}
		return pods[uid]
	}
	for _, s := range sandboxes {
		if l := of(s.GetLabels()); l != nil {
			l.Sandboxes = append(l.Sandboxes, s)
		}
	}
	for _, c := range containers {
		if l := of(c.GetLabels()); l != nil {
			l.Containers = append(l.Containers, c)
		}
	}
	return pods
}

// Live reports whether something of the pod runs.
func (l *Listing) Live() bool {
	return slices.ContainsFunc(l.Sandboxes, func(s *runtimeapi.PodSandbox) bool {
		return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}) || slices.ContainsFunc(l.Containers, func(c *runtimeapi.Container) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
}

// See takes the states from the statuses of what is listed, which are newer than a list,
// and removes what has none: it has vanished. A status that is nil is none.
func (l *Listing) See(sandboxes []*runtimeapi.PodSandboxStatus, containers []*runtimeapi.ContainerStatus) {
	sandboxStates, containerStates := map[string]runtimeapi.PodSandboxState{}, map[string]runtimeapi.ContainerState{}
	for _, s := range sandboxes {
		if s != nil {
			sandboxStates[s.GetId()] = s.GetState()
		}
	}
	for _, c := range containers {
		if c != nil {
			containerStates[c.GetId()] = c.GetState()
		}
	}
	l.Sandboxes = slices.DeleteFunc(l.Sandboxes, func(s *runtimeapi.PodSandbox) bool {
		state, there := sandboxStates[s.GetId()]
		s.State = state
		return !there
	})
	l.Containers = slices.DeleteFunc(l.Containers, func(c *runtimeapi.Container) bool {
		state, there := containerStates[c.GetId()]
		c.State = state
		return !there
	})
}

// Fingerprint is equal for two listings that show the same things in the same
// states.
func (l *Listing) Fingerprint() uint64 {
	if l == nil || len(l.Sandboxes)+len(l.Containers) == 0 {
		return 0
	}
	lines := make([]string, 0, len(l.Sandboxes)+len(l.Containers))
	for _, s := range l.Sandboxes {
		lines = append(lines, fmt.Sprintf("s %s %d", s.GetId(), s.GetState()))
	}
	for _, c := range l.Containers {
		lines = append(lines, fmt.Sprintf("c %s %d", c.GetId(), c.GetState()))
	}
	slices.Sort(lines)
	h := fnv.New64a()
	for _, line := range lines {
		_, _ = h.Write([]byte(line)) // a hash does not fail
	}
	return h.Sum64()
}

// Build makes the record of one pod; nil when the runtime has nothing of it.
// Statuses come in any order. Their mounts are removed, but those that readers use.
// What was listed but has vanished since has no status and is left out.
func Build(uid string, listing *Listing, sandboxes []*runtimeapi.PodSandboxStatus, containers []*runtimeapi.ContainerStatus) (*plegv1.PodRecord, error) {
	if len(sandboxes)+len(containers) == 0 {
		return nil, nil
	}
	r := &plegv1.PodRecord{Uid: uid, SandboxOf: map[string]string{}}
	slices.SortFunc(sandboxes, pod.NewerSandbox)
	slices.SortFunc(containers, pod.NewerContainer)
	for _, s := range sandboxes {
		data, err := wire.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.GetId(), err)
		}
		r.Sandboxes = append(r.Sandboxes, data)
		name(r, s.GetLabels())
	}
	present := map[string]bool{}
	for _, c := range containers {
		c.Mounts = used(c)
		data, err := wire.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", c.GetId(), err)
		}
		r.Containers = append(r.Containers, data)
		name(r, c.GetLabels())
		present[c.GetId()] = true
	}
	for _, c := range listing.Containers {
		if present[c.GetId()] {
			r.SandboxOf[c.GetId()] = c.GetPodSandboxId()
		}
	}
	return r, nil
}

// used are the mounts that readers of records use: those that are read-only all the way down,
// which a pod's status tells (KEP-3857), the file of the termination message, which podworker
// reads, and images, which it does not remove.
func used(c *runtimeapi.ContainerStatus) (kept []*runtimeapi.Mount) {
	said := path.Join("/", c.GetAnnotations()[pod.TerminationMessagePathAnnotation])
	for _, m := range c.GetMounts() {
		if m.GetRecursiveReadOnly() || m.GetImage().GetImage() != "" || m.GetContainerPath() == said {
			kept = append(kept, m)
		}
	}
	return kept
}

func name(r *plegv1.PodRecord, labels map[string]string) {
	if r.GetName() == "" {
		r.Name, r.Namespace = labels[pod.PodNameLabel], labels[pod.PodNamespaceLabel]
	}
}
