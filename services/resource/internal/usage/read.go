// SPDX-License-Identifier: Apache-2.0

package usage

import (
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
)

// Memory is that of a cgroup alone, nil where the kernel does not account for it.
func Memory(src Source, version uint32) *resourcev1.MemoryUsage {
	if version == 2 {
		return memory2(src)
	}
	return memory1(src)
}

// Read makes the reading of one cgroup, without who it is, when it was, and its
// processes' files.
func Read(src Source, version uint32) *resourcev1.CgroupUsage {
	if version == 2 {
		return &resourcev1.CgroupUsage{
			Cpu: cpu2(src), Memory: memory2(src), Io: io2(src), Processes: processes(src),
			IoPressure: pressure(src, "io.pressure"),
		}
	}
	return &resourcev1.CgroupUsage{Cpu: cpu1(src), Memory: memory1(src), Io: io1(src), Processes: processes(src)}
}
