// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/rand/v2"

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	reference "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	"github.com/sextant-node/sextant/services/resource/internal/layout"
)

// someMachine is a regular machine: up to 4 sockets with up to 4 NUMA nodes each, or up to 4
// NUMA nodes with up to 3 sockets each, never more than 8 nodes; caches that divide a node's
// cores or none; cores of 1, 2 or 4 threads, numbered side by side or one round of all cores
// after the other. Memory and huge pages differ from node to node.
func someMachine(r *rand.Rand) *layout.Layout {
	sockets, nodes := 1+r.IntN(4), 1+r.IntN(4)
	switch r.IntN(3) {
	case 0:
		nodes = sockets
	case 1: // several nodes a socket
		nodes = min(8/sockets, nodes) * sockets
	default: // several sockets a node
		sockets = nodes * (1 + r.IntN(3))
	}
	units := max(sockets, nodes)
	caches, threads := 1+r.IntN(3), []int{1, 2, 2, 2, 4}[r.IntN(5)]
	cores := caches * (1 + r.IntN(4)) // of a unit
	noCache, rounds := r.IntN(3) == 0, r.IntN(2) == 0
	total := units * cores
	var cpus []layout.CPU
	for core := range total {
		unit, first := core/cores, core*threads
		if rounds {
			first = core
		}
		c := layout.CPU{Core: first, Socket: unit * sockets / units, Node: unit * nodes / units}
		c.Cache = unit*caches + core%cores*caches/cores
		if noCache {
			c.Cache = c.Socket
		}
		for thread := range threads {
			c.ID = first + thread
			if rounds {
				c.ID = first + thread*total
			}
			cpus = append(cpus, c)
		}
	}
	var memory []layout.Memory
	for id := range nodes {
		m := layout.Memory{Node: id, Bytes: uint64(4+r.IntN(5)) << 30, HugePages: map[uint64]uint64{2048: uint64(r.IntN(4)) * 128}}
		memory = append(memory, m)
	}
	machine, err := layout.New(cpus, memory)
	if err != nil {
		panic(err)
	}
	return machine
}

// cadvisors is the machine as the reference learns of it.
func cadvisors(l *layout.Layout) *cadvisor.MachineInfo {
	info := &cadvisor.MachineInfo{
		NumCores: len(l.CPUs), NumSockets: len(l.Units(layout.Socket)), NumPhysicalCores: len(l.Units(layout.Core)),
	}
	for _, m := range l.Memory {
		n := cadvisor.Node{Id: m.Node, Memory: m.Bytes, Distances: m.Distances}
		for kib, pages := range m.HugePages {
			n.HugePages = append(n.HugePages, cadvisor.HugePagesInfo{PageSize: kib, NumPages: pages})
		}
		for _, id := range layout.Units(layout.In(l.CPUs, layout.Node, m.Node), layout.Core) {
			core := cadvisor.Core{Id: id}
			for _, c := range layout.In(l.CPUs, layout.Core, id) {
				core.SocketID, core.Threads = c.Socket, append(core.Threads, c.ID)
				core.UncoreCaches = []cadvisor.Cache{{Id: c.Cache, Level: 3}}
			}
			n.Cores = append(n.Cores, core)
		}
		info.Topology = append(info.Topology, n)
	}
	return info
}

// cpuTopology is what the reference makes of the machine.
func cpuTopology(l *layout.Layout) *reference.CPUTopology {
	t, err := reference.Discover(klog.Logger{}, cadvisors(l))
	if err != nil {
		panic(err)
	}
	return t
}
