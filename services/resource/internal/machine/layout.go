// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
)

// Layout reads how CPUs and memory lie from /sys/devices/system. CPUs that are offline are
// left out. A machine without NUMA nodes has one for each socket.
//
// What the CPU manager calls an uncore cache is a cache of level 3 or more that is shared
// by a part of the NUMA node only; the first counts. Without one the socket takes its place.
func (h Host) Layout() (*layout.Layout, error) {
	online, err := cpuset.Parse(h.text("sys/devices/system/cpu/online"))
	if err != nil {
		return nil, fmt.Errorf("cpus online: %w", err)
	}
	var cpus []layout.CPU
	for _, id := range online.List() {
		c, err := h.cpu(id)
		if err != nil {
			return nil, fmt.Errorf("cpu %d: %w", id, err)
		}
		cpus = append(cpus, c)
	}
	memory, err := h.numaNodes(cpus)
	if err != nil {
		return nil, err
	}
	cores(cpus)
	for i := range cpus {
		cpus[i].Cache = h.uncore(cpus[i], cpus)
	}
	return layout.New(cpus, memory)
}

// cpu is a CPU with its core as the kernel numbers it within the socket.
func (h Host) cpu(id int) (layout.CPU, error) {
	c := layout.CPU{ID: id}
	var err error
	if c.Core, err = strconv.Atoi(h.text("sys/devices/system/cpu", "cpu"+strconv.Itoa(id), "topology/core_id")); err != nil {
		return c, fmt.Errorf("core_id: %w", err)
	}
	if c.Socket, err = strconv.Atoi(h.text("sys/devices/system/cpu", "cpu"+strconv.Itoa(id), "topology/physical_package_id")); err != nil {
		return c, fmt.Errorf("physical_package_id: %w", err)
	}
	c.Node = c.Socket
	return c, nil
}

// cores gives each core the lowest id of its CPUs.
func cores(cpus []layout.CPU) {
	type core struct{ node, socket, id int }
	first := map[core]int{}
	for i, c := range cpus {
		k := core{c.Node, c.Socket, c.Core}
		if _, ok := first[k]; !ok {
			first[k] = c.ID
		}
		cpus[i].Core = first[k]
	}
}

// uncore is the id of the CPU's uncore cache.
func (h Host) uncore(c layout.CPU, all []layout.CPU) int {
	core := 0
	for _, other := range all {
		if other.Node == c.Node && other.Core == c.Core {
			core++
		}
	}
	// As many threads as the node had if all its cores were like this one.
	whole := len(layout.Units(layout.In(all, layout.Node, c.Node), layout.Core)) * core
	dirs, _ := filepath.Glob(h.path("sys/devices/system/cpu", "cpu"+strconv.Itoa(c.Core), "cache/index*")) // the pattern is good
	slices.Sort(dirs)
	for _, dir := range dirs {
		level, err := strconv.Atoi(strings.TrimSpace(readFile(filepath.Join(dir, "level"))))
		if err != nil || level < 3 {
			continue
		}
		shared, err := cpuset.Parse(strings.TrimSpace(readFile(filepath.Join(dir, "shared_cpu_list"))))
		if err != nil || shared.Size() == whole {
			continue
		}
		if id, err := strconv.Atoi(strings.TrimSpace(readFile(filepath.Join(dir, "id")))); err == nil {
			return id
		}
	}
	return c.Socket
}

// numaNodes reads the nodes, and sets that of each CPU.
func (h Host) numaNodes(cpus []layout.CPU) ([]layout.Memory, error) {
	entries, err := os.ReadDir(h.path("sys/devices/system/node"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("numa nodes: %w", err)
	}
	var all []layout.Memory
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		m, of, err := h.numaNode(id)
		if err != nil {
			return nil, fmt.Errorf("numa node %d: %w", id, err)
		}
		all = append(all, m)
		for i := range cpus {
			if of.Contains(cpus[i].ID) {
				cpus[i].Node = id
			}
		}
	}
	if len(all) == 0 {
		for _, id := range layout.Units(cpus, layout.Node) {
			all = append(all, layout.Memory{Node: id})
		}
	}
	return all, nil
}

func (h Host) numaNode(id int) (layout.Memory, cpuset.CPUSet, error) {
	m, dir := layout.Memory{Node: id, HugePages: map[uint64]uint64{}}, h.path("sys/devices/system/node", "node"+strconv.Itoa(id))
	cpus, err := cpuset.Parse(strings.TrimSpace(readFile(filepath.Join(dir, "cpulist"))))
	if err != nil {
		return m, cpus, fmt.Errorf("cpulist: %w", err)
	}
	for line := range strings.Lines(readFile(filepath.Join(dir, "meminfo"))) {
		// Node 0 MemTotal:       16318500 kB
		if fields := strings.Fields(line); len(fields) >= 4 && fields[2] == "MemTotal:" {
			kib, err := strconv.ParseUint(fields[3], 10, 64)
			if err != nil {
				return m, cpus, fmt.Errorf("meminfo: %w", err)
			}
			m.Bytes = kib << 10
		}
	}
	for word := range strings.FieldsSeq(readFile(filepath.Join(dir, "distance"))) {
		d, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return m, cpus, fmt.Errorf("distance: %w", err)
		}
		m.Distances = append(m.Distances, d)
	}
	sizes, _ := filepath.Glob(filepath.Join(dir, "hugepages/hugepages-*kB")) // the pattern is good
	for _, size := range sizes {
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(size), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		if m.HugePages[kib], err = strconv.ParseUint(strings.TrimSpace(readFile(filepath.Join(size, "nr_hugepages"))), 10, 64); err != nil {
			return m, cpus, fmt.Errorf("hugepages: %w", err)
		}
	}
	return m, cpus, nil
}
