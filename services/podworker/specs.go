// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// specs makes the specifications of an action from what was known when it began.
type specs struct {
	in      *Inputs
	lookups *lookups
	uid     types.UID
	pod     *v1.Pod
	print   uint64 // of the pod
	facts   *step.Facts
	// record is nil when the runtime has nothing of the pod.
	record *observe.Record
}

func (w *worker) specs() *specs {
	s := &specs{in: w.l.in, lookups: w.l.lookups, uid: w.uid, facts: &w.facts}
	s.pod, s.print = w.pod()
	s.record, _ = w.fresh.current()
	return s
}

func (s *specs) sandbox(attempt uint32) actuate.SandboxSpec {
	return actuate.SandboxSpec{Pod: s.pod, Attempt: attempt, RuntimeHandler: s.lookups.handler(s.pod).Name, CgroupParent: s.cgroupParent()}
}

// cgroupParent is the pod's cgroup; empty before resource has answered.
func (s *specs) cgroupParent() string {
	if s.facts.Admitted == nil {
		return ""
	}
	return s.facts.Admitted.CgroupParent
}

func (s *specs) image(a step.Action) actuate.ImageSpec {
	spec := actuate.ImageSpec{Pod: s.pod, Container: a.Container, Image: a.Image, RuntimeHandler: s.lookups.handler(s.pod).Name, CgroupParent: s.cgroupParent()}
	if a.Volume != "" {
		spec.Container = ""
		for i := range s.pod.Spec.Volumes {
			if v := &s.pod.Spec.Volumes[i]; v.Name == a.Volume && v.Image != nil {
				spec.Policy = v.Image.PullPolicy
			}
		}
		return spec
	}
	if c, _ := pod.FindContainer(s.pod, a.Container); c != nil {
		spec.Policy = c.ImagePullPolicy
	}
	return spec
}

func (s *specs) container(a step.Action) actuate.ContainerSpec {
	spec := actuate.ContainerSpec{
		SandboxID: a.Sandbox, Container: a.Container, RestartCount: a.Attempt, ImageRef: a.Ref,
		Volumes: s.volumes(), Allocation: s.allocation(a.Container),
	}
	attempt := uint32(0)
	var have []step.Instance
	if s.record != nil {
		for _, sandbox := range s.record.Sandboxes {
			if sandbox.ID == a.Sandbox {
				attempt, spec.PodIPs = sandbox.Attempt, sandbox.IPs
			}
		}
		have = s.record.Containers
	}
	spec.Target, spec.TargetID = s.target(a.Container, have)
	spec.Sandbox = s.sandbox(attempt)
	return spec
}

// target names the container whose processes an ephemeral one is to see, and finds
// its instance: the one that runs, else the newest.
func (s *specs) target(name string, have []step.Instance) (target, id string) {
	for i := range s.pod.Spec.EphemeralContainers {
		if e := &s.pod.Spec.EphemeralContainers[i]; e.Name == name {
			target = e.TargetContainerName
		}
	}
	if target == "" {
		return "", ""
	}
	for _, o := range have { // newest first
		switch {
		case o.Name != target || o.State == step.Created:
		case o.State == step.Running:
			return target, o.ID
		case id == "":
			id = o.ID
		}
	}
	return target, id
}

// mounted is what the pod's containers may mount, by volume name.
func (s *specs) volumes() map[string]actuate.Volume {
	volumes := map[string]actuate.Volume{}
	block := map[string]bool{}
	for _, c := range pod.Containers(s.pod) {
		for _, d := range c.VolumeDevices {
			block[d.Name] = true
		}
	}
	readOnly := map[string]bool{}
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		readOnly[v.Name] = volumetype.ReadOnly(v)
		if v.Image != nil {
			volumes[v.Name] = actuate.Volume{Image: &runtimeapi.ImageSpec{
				Image:              s.facts.Images[step.Action{Kind: step.Pull, Volume: v.Name}.Key()].Ref,
				UserSpecifiedImage: v.Image.Reference, Annotations: s.pod.Annotations,
			}}
		}
	}
	item, _ := s.in.Volumes.Get(string(s.uid))
	for _, v := range item.GetVolumes() {
		if _, image := volumes[v.GetName()]; image || v.GetHostPath() == "" {
			continue
		}
		volumes[v.GetName()] = actuate.Volume{HostPath: v.GetHostPath(), Block: block[v.GetName()], ReadOnly: readOnly[v.GetName()], Relabel: v.GetRelabel()}
	}
	return volumes
}

func (s *specs) kill(a step.Action) actuate.KillSpec {
	spec := actuate.KillSpec{
		Pod: s.pod, Container: a.Container, ContainerID: a.ID, Grace: a.Grace, Message: a.Message,
		RunPreStop: a.Tell, Told: a.Kind == step.PreStop && !a.Tell,
	}
	if a.Kind == step.Stop && a.Grace <= minGrace {
		spec.Grace = 0 // no time for a hook; the runtime gets its minimum all the same
	}
	if s.record != nil {
		spec.Annotations = s.record.Statuses[a.ID].GetAnnotations()
		for _, sandbox := range s.record.Sandboxes {
			if len(sandbox.IPs) > 0 {
				spec.PodIPs = sandbox.IPs
				break
			}
		}
	}
	return spec
}

// minGrace is the least the runtime gets to stop a container.
const minGrace = 2 * time.Second

func (s *specs) resize(a step.Action) actuate.ResizeSpec {
	spec := actuate.ResizeSpec{SandboxID: a.Sandbox}
	if s.record != nil {
		for _, sandbox := range s.record.Sandboxes {
			if sandbox.ID == a.Sandbox {
				spec.Sandbox = s.sandbox(sandbox.Attempt)
			}
		}
	}
	if spec.Sandbox.Pod == nil {
		spec.Sandbox = s.sandbox(0)
	}
	item, _ := s.in.Allocations.Get(string(s.uid))
	if item.GetAllocation() > item.GetSettled() {
		spec.MemoryLimit = ptr.To(item.GetMemoryLimit())
	}
	for _, c := range a.Changes {
		spec.Changes = append(spec.Changes, actuate.SizeChange{Container: c.Container, ID: c.ID, From: c.From, To: c.To, Allocation: s.allocation(c.Container)})
	}
	return spec
}

// allocation is what resource gives to a container, as the replica has it.
func (s *specs) allocation(container string) actuate.Allocation {
	item, _ := s.in.Allocations.Get(string(s.uid))
	return allocationOf(item, container)
}
