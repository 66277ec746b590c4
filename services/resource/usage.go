// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/wire"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/gauge"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// ofCgroups, ofSystems and ofFiles are at most a second old.
func (r *readings) ofCgroups(now *settings) *resourcev1.UsageResponse {
	return r.cgroups.get(r.now, func(at time.Time) *resourcev1.UsageResponse { return r.readCgroups(now, at) })
}

// ofCgroupsNow is ofCgroups without one that was made before: a pod is not evicted for what
// another has taken since.
func (r *readings) ofCgroupsNow(now *settings) *resourcev1.UsageResponse {
	return r.cgroups.anew(r.now, func(at time.Time) *resourcev1.UsageResponse { return r.readCgroups(now, at) })
}

// usage is a reading of all, with disks if asked to.
func (r *readings) usage(ctx context.Context, now *settings, disk bool) *resourcev1.UsageResponse {
	reading := r.ofCgroups(now)
	if !disk {
		return reading
	}
	systems, files := r.ofSystems(ctx), r.ofFiles(now)
	return &resourcev1.UsageResponse{
		Machine: reading.GetMachine(), Node: reading.GetNode(), System: reading.GetSystem(), Pods: reading.GetPods(),
		Disk: &resourcev1.DiskUsage{
			Time: systems.usage.GetTime(), Node: systems.usage.GetNode(), Image: systems.usage.GetImage(),
			Container: systems.usage.GetContainer(), Runtime: systems.usage.GetRuntime(), Pods: files,
		},
		Errors: append(slices.Clip(reading.GetErrors()), systems.errors...),
	}
}

// readCgroups reads them all, pods in parallel; callers hold the shelf.
func (r *readings) readCgroups(now *settings, at time.Time) *resourcev1.UsageResponse {
	first := r.readers[0]
	answer := &resourcev1.UsageResponse{Machine: machineInfo(r.node.facts, first), Node: readNode(r.node.host, first, at)}
	if answer.GetNode().GetCgroup().GetCpu() == nil || answer.GetNode().GetCgroup().GetMemory() == nil {
		answer.Errors = append(answer.Errors, "the root cgroup could not be read")
	}
	for _, role := range systemCgroups(now, first.OwnCgroup()) {
		if c, _, ok := first.Cgroup(role.path, at); ok {
			c.Name = role.name
			answer.System = append(answer.System, c)
		}
	}
	targets := r.targets()
	read := make([]*resourcev1.PodUsage, len(targets))
	var taken atomic.Int64
	var readers sync.WaitGroup
	for _, reader := range r.readers {
		readers.Go(func() {
			for {
				i := int(taken.Add(1)) - 1
				if i >= len(targets) {
					return
				}
				read[i] = readPod(reader, targets[i], at)
			}
		})
	}
	readers.Wait()
	answer.Pods = slices.DeleteFunc(read, func(p *resourcev1.PodUsage) bool { return p == nil })
	r.rate(answer, at)
	return answer
}

// rate adds what is used per second; callers hold the shelf.
func (r *readings) rate(answer *resourcev1.UsageResponse, at time.Time) {
	one := func(c *resourcev1.CgroupUsage) {
		if c.GetCpu() != nil {
			c.Cpu.UsageNanoCores = r.rates.Rate(c.GetPath(), c.GetCpu().GetUsage(), at)
		}
	}
	one(answer.GetNode().GetCgroup())
	for _, c := range answer.GetSystem() {
		one(c)
	}
	for _, p := range answer.GetPods() {
		one(p.GetCgroup())
		for _, c := range p.GetContainers() {
			one(c)
		}
	}
	r.rates.Sweep(at)
}

// readPod reads a pod's cgroup and those right below it, the containers'; nil
// when it is not there.
func readPod(r *gauge.Reader, t target, at time.Time) *resourcev1.PodUsage {
	c, pids, ok := r.Cgroup(t.cgroup, at)
	if !ok {
		return nil
	}
	p := &resourcev1.PodUsage{Uid: t.uid, Namespace: t.namespace, Name: t.name, Cgroup: c}
	for _, folder := range r.Children(t.cgroup) {
		id, ok := usage.ContainerID(folder)
		if !ok {
			continue
		}
		c, own, ok := r.Cgroup(path.Join(t.cgroup, folder), at)
		if !ok {
			continue
		}
		c.Name = id
		p.Containers = append(p.Containers, c)
		pids = append(pids, own...)
	}
	// All containers of a pod share its network, the sandbox's among them.
	p.Network = r.Interfaces(pids)
	return p
}

func readNode(host machine.Host, r *gauge.Reader, at time.Time) *resourcev1.NodeUsage {
	n := &resourcev1.NodeUsage{Network: r.Interfaces([]int{1}), Disks: r.Disks()}
	c, _, ok := r.Cgroup("/", at)
	if !ok {
		c = &resourcev1.CgroupUsage{Path: "/", Time: timestamppb.New(at)}
	}
	if c.GetCpu() == nil {
		c.Cpu, _ = r.NodeCPU()
	}
	if memory, err := host.Memory(); err == nil {
		c.Memory = usage.Root(c.GetMemory(), memory)
	}
	if c.GetCpu() != nil && c.GetCpu().GetPressure() == nil {
		c.Cpu.Pressure = r.NodeStalls("cpu")
	}
	if c.GetMemory() != nil && c.GetMemory().GetPressure() == nil {
		c.Memory.Pressure = r.NodeStalls("memory")
	}
	if c.GetIoPressure() == nil {
		c.IoPressure = r.NodeStalls("io")
	}
	if most, all, err := host.Processes(); err == nil {
		n.MaxPids, n.Processes = most, all
	}
	n.BootTime = wire.Time(r.BootTime())
	n.Cgroup = c
	return n
}

func machineInfo(facts *machine.Facts, r *gauge.Reader) *resourcev1.Machine {
	m := &resourcev1.Machine{
		MachineId: facts.MachineID, SystemUuid: facts.SystemUUID, BootId: facts.BootID,
		KernelVersion: facts.Kernel, OsImage: facts.OSImage, Cores: uint64(facts.Cores), Swap: uint64(facts.SwapBytes),
	}
	memory := facts.Capacity[v1.ResourceMemory]
	m.Memory = uint64(memory.Value())
	m.Sockets, m.PhysicalCores = r.Topology(m.GetCores())
	return m
}
