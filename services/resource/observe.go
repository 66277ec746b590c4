// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/usage"
)

// unlimited is from where on a limit of memory is none.
const unlimited = 1 << 62

// observe reads the signals that thresholds are about. What cannot be read is missing:
// it is no shortage.
func (e *evictor) observe(ctx context.Context, now *settings, at time.Time) map[string]eviction.Observation {
	all := map[string]eviction.Observation{}
	note := func(signal string, available, capacity int64) {
		if capacity > 0 {
			all[signal] = eviction.Observation{Available: available, Capacity: capacity, Time: at}
		}
	}
	noteMemory := func(signal string, m *resourcev1.MemoryUsage) {
		if capacity := int64(m.GetLimit()); capacity > 0 {
			set := int64(m.GetWorkingSet())
			all[signal] = eviction.Observation{Available: capacity - set, Capacity: capacity, Inactive: int64(m.GetUsage()) - set, Time: at}
		}
	}
	failed := func(what string, err error) {
		e.log.Warn("node not measured", "what", what, "error", err.Error())
	}
	if meminfo, err := e.node.host.Memory(); err != nil {
		failed("memory", err)
	} else {
		noteMemory(eviction.MemoryAvailable, usage.Root(e.reader.Memory("/"), meminfo))
	}
	if now.qos() {
		if m := e.reader.Memory(pod.KubepodsCgroup(now.root).Path(now.driver)); m != nil && m.Limit != nil && m.GetLimit() < unlimited {
			noteMemory(eviction.AllocatableMemory, m)
		}
	}
	if disk, err := machine.DiskOf(e.node.rootDir); err != nil {
		failed("disk", err)
	} else {
		note(eviction.NodeFSAvailable, disk.Available, disk.Bytes)
		note(eviction.NodeFSInodes, disk.InodesFree, disk.Inodes)
	}
	if most, processes, err := e.node.host.Processes(); err != nil {
		failed("processes", err)
	} else {
		note(eviction.PIDAvailable, most-processes, most)
	}
	if about(now, "imagefs.") || about(now, "containerfs.") || e.layout != eviction.Single {
		systems := e.readings.ofSystemsNow(ctx)
		for prefix, fs := range map[string]*resourcev1.FileSystem{"imagefs.": systems.usage.GetImage(), "containerfs.": systems.usage.GetContainer()} {
			note(prefix+"available", int64(fs.GetAvailable()), int64(fs.GetCapacity()))
			note(prefix+"inodesFree", int64(fs.GetInodesFree()), int64(fs.GetInodes()))
		}
	} else { // the same file system
		note(eviction.ContainerFSAvailable, all[eviction.NodeFSAvailable].Available, all[eviction.NodeFSAvailable].Capacity)
		note(eviction.ContainerFSInodes, all[eviction.NodeFSInodes].Available, all[eviction.NodeFSInodes].Capacity)
	}
	return all
}

func about(now *settings, prefix string) bool {
	return slices.ContainsFunc(now.conf.EvictionThresholds(), func(t kubeletconfig.Threshold) bool { return strings.HasPrefix(t.Signal, prefix) })
}

// findLayout finds out, once, on which file systems images and writable layers are.
func (e *evictor) findLayout(ctx context.Context, now *settings) {
	if e.layout != "" {
		return
	}
	systems := e.readings.ofSystems(ctx)
	image, container := systems.usage.GetImage().GetMountpoint(), systems.usage.GetContainer().GetMountpoint()
	node, err := deviceOf(e.node.rootDir)
	if err != nil || image == "" {
		return // tried again in the next pass
	}
	images, err := deviceOf(image)
	if err != nil {
		return
	}
	layers, err := deviceOf(container)
	if err != nil {
		return
	}
	switch {
	case images == node:
		e.layout = eviction.Single
	case layers == images:
		e.layout = eviction.Dedicated
	case now.conf.Gate("KubeletSeparateDiskGC"):
		e.layout = eviction.Split
	default:
		return // nothing is decided for want of disk, as with a kubelet
	}
	e.log.Info("file systems", "layout", string(e.layout))
}

func deviceOf(dir string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	return st.Dev, err
}

// candidates are the pods that may be evicted, with what they use as far as a decision
// depends on it: a node that is short of nothing, with pods that have no limits of
// local storage, reads nothing of them. layers is eviction.Input's.
func (e *evictor) candidates(ctx context.Context, now *settings, in eviction.Input) (all []eviction.Pod, layers time.Time) {
	signal := eviction.Ranks(in)
	limited := false
	e.ledger.mu.Lock()
	for _, h := range e.ledger.held {
		if h.Releasing || h.Evicting != nil {
			continue
		}
		all = append(all, eviction.Pod{Pod: h.pod})
		limited = limited || in.Config.Isolation && eviction.Limited(h.pod)
	}
	e.ledger.mu.Unlock()
	if signal == "" && (!limited || in.Leaving) {
		return all, layers
	}
	m, layers := e.measurePods(ctx, now, in.Now, signal, all)
	for i := range all {
		all[i].Usage = m[string(all[i].UID)]
	}
	return all, layers
}

// How long a pass waits for what pods have on disks: one that ranks pods by memory or
// processes takes no more of it than names and limits of pods' own.
const (
	disksWait       = 2 * time.Second
	disksWaitBeside = 500 * time.Millisecond
)

// measurePods reads what pods use: of all pods if they are ranked for a signal, else what
// is on disks of those with limits. layers is when writable layers were measured, the first
// of them; zero where one was not.
func (e *evictor) measurePods(ctx context.Context, now *settings, at time.Time, signal string, pods []eviction.Pod) (m measurement, layers time.Time) {
	wait, volumes := disksWait, &volumev1.StatsRequest{}
	switch {
	case eviction.OfDisk(signal):
		volumes.Since = timestamppb.New(e.shortSince(at))
	case signal != "":
		wait = disksWaitBeside
	}
	// Both are asked at once: one that is slow does not hide the other.
	asked, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	read := e.layers.ask(ctx)
	m = measurement{}
	layout := pod.Layout{Root: e.node.rootDir}
	for _, p := range pods {
		if signal != "" || eviction.Limited(p.Pod) {
			m.files(p.Pod, podFiles(layout, now.conf.Kubelet.PodLogsDir, target{uid: string(p.UID), namespace: p.Namespace, name: p.Name}))
		}
	}
	if resp, err := e.volumes.Stats(asked, volumes); err != nil {
		e.log.Warn("volumes not measured", "error", err.Error())
	} else {
		for _, v := range resp.GetVolumes() {
			if u := m[v.GetUid()]; u != nil {
				u.Volumes[v.GetName()] = eviction.Files{Bytes: int64(v.GetUsed()), Inodes: int64(v.GetInodesUsed())}
			}
		}
	}
	select {
	case <-read:
	case <-asked.Done():
	}
	names := map[string]string{} // of containers, by id
	if last, ok := e.layers.newest(); ok {
		layers = last.asked
		for _, c := range last.containers {
			names[c.id] = c.name
			if m.layer(c) && c.at.Before(layers) {
				layers = c.at
			}
		}
	}
	if signal != "" {
		reading := e.readings.ofCgroupsNow(now)
		for _, p := range reading.GetPods() {
			m.cgroup(p, names)
		}
	}
	return m, layers
}

// measurement is what pods use, by UID.
type measurement map[string]*eviction.Usage

func (m measurement) files(p *v1.Pod, f *resourcev1.PodFiles) {
	u := &eviction.Usage{Volumes: map[string]eviction.Files{}, Other: eviction.Files{Bytes: int64(f.GetOtherBytes()), Inodes: int64(f.GetOtherInodes())}}
	m[string(p.UID)] = u
	for _, l := range f.GetLogs() {
		container(u, l.GetContainer()).Logs = &eviction.Files{Bytes: int64(l.GetBytes()), Inodes: int64(l.GetInodes())}
	}
}

// shortSince is since when the node is short of the disk that it got short of last; at
// where this pass is the first to see it.
func (e *evictor) shortSince(at time.Time) time.Time {
	last := time.Time{}
	for key, since := range e.history.Seen {
		if strings.Contains(key.Signal, "fs.") && since.After(last) {
			last = since
		}
	}
	if last.IsZero() {
		return at
	}
	return last
}

// layer notes a container's writable layer; false for a container of no candidate.
func (m measurement) layer(c layer) bool {
	u := m[c.pod]
	if u == nil || c.used == nil {
		return u != nil
	}
	// Of several instances of a container, those that are dead have layers too.
	if into := container(u, c.name); into.Root == nil || into.Root.Bytes < c.used.Bytes {
		into.Root = c.used
	}
	return true
}

func (m measurement) cgroup(p *resourcev1.PodUsage, names map[string]string) {
	u := m[p.GetUid()]
	if u == nil || p.GetCgroup().GetMemory() == nil {
		return
	}
	set := int64(p.GetCgroup().GetMemory().GetWorkingSet())
	u.Memory, u.Threads = &set, int64(p.GetCgroup().GetProcesses().GetThreads())
	for _, c := range p.GetContainers() {
		u.Processes += int64(c.GetProcesses().GetProcesses())
		name := names[path.Base(c.GetName())]
		if name == "" || c.GetMemory() == nil {
			continue
		}
		container(u, name).Memory = new(int64(c.GetMemory().GetWorkingSet()))
	}
}

// container is that of a name, made if it is not there.
func container(u *eviction.Usage, name string) *eviction.Container {
	i := slices.IndexFunc(u.Containers, func(c eviction.Container) bool { return c.Name == name })
	if i < 0 {
		u.Containers, i = append(u.Containers, eviction.Container{Name: name}), len(u.Containers)
	}
	return &u.Containers[i]
}
