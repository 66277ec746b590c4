// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/devices/checkpoint"
)

// Record is what is journaled of what was chosen.
func (g Given) Record() *resourcev1.PluginDevices {
	out := &resourcev1.PluginDevices{Resource: g.Resource, Prestart: g.Prestart}
	for _, d := range g.Devices {
		one := &resourcev1.PluginDevice{Id: d.ID, Topology: d.NUMA}
		for _, n := range d.Nodes {
			one.Nodes = append(one.Nodes, int64(n))
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}

// Use adds the devices of a pod's containers to used, by resource.
func Use(used map[string]sets.Set[string], containers []*resourcev1.ContainerAllocation) {
	for _, c := range containers {
		for _, d := range c.GetPluginDevices() {
			if used[d.GetResource()] == nil {
				used[d.GetResource()] = sets.New[string]()
			}
			used[d.GetResource()].Insert(RecordIDs(d)...)
		}
	}
}

// RecordIDs are the IDs of the devices in a record.
func RecordIDs(d *resourcev1.PluginDevices) []string {
	ids := make([]string, 0, len(d.GetDevices()))
	for _, one := range d.GetDevices() {
		ids = append(ids, one.GetId())
	}
	return ids
}

// Answer notes a plugin's answer in a record, and adds what it says to what the container
// gets. Where several plugins say something of the same variable, path or annotation, the
// first holds.
func Answer(c *resourcev1.ContainerAllocation, d *resourcev1.PluginDevices, answer []byte) error {
	said := &pluginapi.ContainerAllocateResponse{}
	if err := proto.Unmarshal(answer, said); err != nil {
		return fmt.Errorf("answer of the device plugin of %s: %w", d.GetResource(), err)
	}
	d.Answered, d.Answer = true, answer
	c.Envs, c.Annotations = under(c.GetEnvs(), said.GetEnvs()), under(c.GetAnnotations(), said.GetAnnotations())
	for _, m := range said.GetMounts() {
		if !slices.ContainsFunc(c.GetMounts(), func(have *resourcev1.ContainerMount) bool { return have.GetContainerPath() == m.GetContainerPath() }) {
			c.Mounts = append(c.Mounts, &resourcev1.ContainerMount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), ReadOnly: m.GetReadOnly()})
		}
	}
	for _, one := range said.GetDevices() {
		if !slices.ContainsFunc(c.GetDevices(), func(have *resourcev1.ContainerDevice) bool { return have.GetContainerPath() == one.GetContainerPath() }) {
			c.Devices = append(c.Devices, &resourcev1.ContainerDevice{HostPath: one.GetHostPath(), ContainerPath: one.GetContainerPath(), Permissions: one.GetPermissions()})
		}
	}
	for _, one := range said.GetCdiDevices() {
		if !slices.Contains(c.GetCdiDevices(), one.GetName()) {
			c.CdiDevices = append(c.CdiDevices, one.GetName())
		}
	}
	return nil
}

// under adds to a map what it does not have.
func under(have, more map[string]string) map[string]string {
	if len(more) == 0 {
		return have
	}
	all := maps.Clone(more)
	maps.Copy(all, have)
	return all
}

// Entries are what the kubelet's file has of a pod: what plugins have answered about.
func Entries(uid string, containers []*resourcev1.ContainerAllocation) (entries []checkpoint.PodDevicesEntry) {
	for _, c := range containers {
		for _, d := range c.GetPluginDevices() {
			if !d.GetAnswered() {
				continue
			}
			ids := checkpoint.DevicesPerNUMA{}
			for _, one := range d.GetDevices() {
				nodes := one.GetNodes()
				if len(nodes) == 0 {
					nodes = []int64{checkpoint.WithoutNUMA}
				}
				for _, n := range nodes {
					ids[n] = append(ids[n], one.GetId())
				}
			}
			entries = append(entries, checkpoint.PodDevicesEntry{
				PodUID: uid, ContainerName: c.GetName(), ResourceName: d.GetResource(), DeviceIDs: ids, AllocResp: d.GetAnswer(),
			})
		}
	}
	return entries
}

// FromEntry is what the kubelet's file has of one container and resource.
func FromEntry(e checkpoint.PodDevicesEntry) *resourcev1.PluginDevices {
	out := &resourcev1.PluginDevices{Resource: e.ResourceName}
	at := map[string]*resourcev1.PluginDevice{}
	for _, n := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
		for _, id := range e.DeviceIDs[n] {
			if at[id] == nil {
				at[id] = &resourcev1.PluginDevice{Id: id}
				out.Devices = append(out.Devices, at[id])
			}
			if n != checkpoint.WithoutNUMA {
				at[id].Topology, at[id].Nodes = true, append(at[id].Nodes, n)
			}
		}
	}
	return out
}

// Health is how the devices of a pod are, by what plugins say now. A device whose plugin is
// away, or does not list it any more, is in an unknown state (k8s.io/api/core/v1,
// ResourceHealth).
func Health(containers []*resourcev1.ContainerAllocation, inventory Inventory) (all []*resourcev1.DeviceHealth) {
	for _, c := range containers {
		for _, d := range c.GetPluginDevices() {
			r := inventory[d.GetResource()]
			for _, id := range RecordIDs(d) {
				h := &resourcev1.DeviceHealth{Container: c.GetName(), Resource: d.GetResource(), Id: id, Health: "Unknown"}
				switch have, listed := r.device(id); {
				case r == nil || r.State == Away || r.State == Gone:
					h.Message = "the device plugin of " + d.GetResource() + " is not registered"
				case !listed:
					h.Message = "the device plugin of " + d.GetResource() + " does not list the device"
				case have.Healthy:
					h.Health = pluginapi.Healthy
				default:
					h.Health = pluginapi.Unhealthy
				}
				all = append(all, h)
			}
		}
	}
	return all
}

func (r *Resource) device(id string) (Device, bool) {
	if r == nil {
		return Device{}, false
	}
	d, ok := r.Devices[id]
	return d, ok
}
