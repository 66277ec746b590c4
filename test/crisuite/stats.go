// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (e *env) checkStats(st *runtimeapi.ContainerStats, c *ctr) {
	e.Helper()
	a := st.GetAttributes()
	if a.GetId() != c.id || !proto.Equal(a.GetMetadata(), c.config.GetMetadata()) || !maps.Equal(a.GetLabels(), c.config.GetLabels()) {
		e.Errorf("attributes %v", a)
	}
	if st.GetCpu().GetTimestamp() == 0 || st.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 {
		e.Errorf("cpu %v", st.GetCpu())
	}
	if st.GetMemory().GetTimestamp() == 0 || st.GetMemory().GetWorkingSetBytes().GetValue() == 0 {
		e.Errorf("memory %v", st.GetMemory())
	}
	if st.GetWritableLayer().GetFsId().GetMountpoint() == "" {
		e.Errorf("writable layer %v", st.GetWritableLayer())
	}
}

var statsTests = []test{
	{"of a running container", func(e *env) {
		c := e.pod().server()
		resp, err := e.runtime.ContainerStats(e.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: c.id})
		e.ok("ContainerStats", err)
		e.checkStats(resp.GetStats(), c)
	}},
	{"of an unknown container are NotFound", func(e *env) {
		_, err := e.runtime.ContainerStats(e.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: "ffffffffffffffff"})
		e.code("ContainerStats", err, codes.NotFound)
		list, err := e.runtime.ListContainerStats(e.ctx, &runtimeapi.ListContainerStatsRequest{
			Filter: &runtimeapi.ContainerStatsFilter{Id: "ffffffffffffffff"},
		})
		e.ok("ListContainerStats", err)
		if len(list.GetStats()) != 0 {
			e.Errorf("got %v", list)
		}
	}},
	{"list filters by ID, sandbox and labels", func(e *env) {
		p, q := e.pod(), e.pod()
		a := p.server()
		q.server()
		for name, filter := range map[string]*runtimeapi.ContainerStatsFilter{
			"ID":      {Id: a.id},
			"sandbox": {PodSandboxId: p.id},
			"labels":  {LabelSelector: a.config.GetLabels()},
		} {
			list, err := e.runtime.ListContainerStats(e.ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
			e.ok("ListContainerStats", err)
			if len(list.GetStats()) != 1 {
				e.Fatalf("%s: got %d", name, len(list.GetStats()))
			}
			e.checkStats(list.GetStats()[0], a)
		}
	}},
	{"of a sandbox, with its network and containers", func(e *env) {
		p := e.pod()
		c := p.server()
		resp, err := e.runtime.PodSandboxStats(e.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
		e.ok("PodSandboxStats", err)
		st := resp.GetStats()
		if st.GetAttributes().GetId() != p.id || !proto.Equal(st.GetAttributes().GetMetadata(), p.config.GetMetadata()) {
			e.Errorf("attributes %v", st.GetAttributes())
		}
		l := st.GetLinux()
		if l.GetCpu().GetTimestamp() == 0 || l.GetMemory().GetWorkingSetBytes() == nil ||
			l.GetNetwork().GetDefaultInterface().GetName() == "" || l.GetProcess().GetProcessCount().GetValue() == 0 {
			e.Errorf("got %v", l)
		}
		if len(l.GetContainers()) != 1 {
			e.Fatalf("containers %v", l.GetContainers())
		}
		e.checkStats(l.GetContainers()[0], c)

		list, err := e.runtime.ListPodSandboxStats(e.ctx, &runtimeapi.ListPodSandboxStatsRequest{
			Filter: &runtimeapi.PodSandboxStatsFilter{Id: p.id},
		})
		e.ok("ListPodSandboxStats", err)
		if len(list.GetStats()) != 1 || list.GetStats()[0].GetAttributes().GetId() != p.id {
			e.Errorf("list %v", list)
		}
	}},
	{"of an unknown sandbox are NotFound", func(e *env) {
		_, err := e.runtime.PodSandboxStats(e.ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: "ffffffffffffffff"})
		e.code("PodSandboxStats", err, codes.NotFound)
	}},
}
