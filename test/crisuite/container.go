// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var containerTests = []test{
	{"goes from created to running to exited", func(e *env) {
		before := time.Now()
		p := e.pod()
		c := p.create(p.shellConfig("sleep 0.2; exit 3"))
		st := c.status()
		if st.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || st.GetStartedAt() != 0 || st.GetFinishedAt() != 0 || st.GetReason() != "" {
			e.Errorf("created: %v", st)
		}
		e.ok("StartContainer", c.start())
		if st = c.status(); st.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || st.GetStartedAt() == 0 {
			e.Errorf("started: %v", st)
		}
		st = c.exited()
		if st.GetExitCode() != 3 || st.GetReason() != "Error" {
			e.Errorf("exited: code %d, reason %q", st.GetExitCode(), st.GetReason())
		}
		if before.Add(-time.Second).UnixNano() > st.GetCreatedAt() || st.GetCreatedAt() > st.GetStartedAt() || st.GetStartedAt() > st.GetFinishedAt() {
			e.Errorf("created %d, started %d, finished %d", st.GetCreatedAt(), st.GetStartedAt(), st.GetFinishedAt())
		}
	}},
	{"status has all it was given", func(e *env) {
		p := e.pod()
		config := p.commandConfig("sleep", "100")
		config.Metadata.Attempt = 4
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/mnt", HostPath: e.TempDir(), Readonly: true}}
		st := p.create(config).status()
		if !proto.Equal(st.GetMetadata(), config.GetMetadata()) {
			e.Errorf("metadata %v", st.GetMetadata())
		}
		if !maps.Equal(st.GetLabels(), config.GetLabels()) || !maps.Equal(st.GetAnnotations(), config.GetAnnotations()) {
			e.Errorf("labels %v, annotations %v", st.GetLabels(), st.GetAnnotations())
		}
		if want := p.logs + "/" + config.GetLogPath(); st.GetLogPath() != want {
			e.Errorf("log path %q, want %q", st.GetLogPath(), want)
		}
		if st.GetImage().GetImage() == "" || st.GetImageRef() == "" {
			e.Errorf("image %v, ref %q", st.GetImage(), st.GetImageRef())
		}
		if id := e.image(config.GetImage().GetImage()).GetId(); e.target.Features.ImageID && st.GetImageId() != id {
			e.Errorf("image ID %q, want %q", st.GetImageId(), id)
		}
		r := st.GetResources().GetLinux()
		if r.GetMemoryLimitInBytes() != 64<<20 || r.GetCpuShares() != 102 {
			e.Errorf("resources %v", r)
		}
		if len(st.GetMounts()) != 1 || st.GetMounts()[0].GetContainerPath() != "/mnt" || !st.GetMounts()[0].GetReadonly() {
			e.Errorf("mounts %v", st.GetMounts())
		}
	}},
	{"status verbose has info", func(e *env) {
		c := e.pod().server()
		resp, err := c.runtime.ContainerStatus(e.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
		e.ok("ContainerStatus", err)
		if resp.GetInfo()["info"] == "" {
			e.Errorf("info %v", resp.GetInfo())
		}
	}},
	{"an unknown one is NotFound", func(e *env) {
		c := &ctr{pod: &pod{env: e}, id: "ffffffffffffffff"}
		_, err := c.tryStatus()
		e.code("ContainerStatus", err, codes.NotFound)
		e.code("StartContainer", c.start(), codes.NotFound)
		_, err = c.exec(1, "true")
		e.code("ExecSync", err, codes.NotFound)
		_, err = e.runtime.ReopenContainerLog(e.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.id})
		e.code("ReopenContainerLog", err, codes.NotFound)
		_, err = e.runtime.UpdateContainerResources(e.ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 10},
		})
		e.code("UpdateContainerResources", err, codes.NotFound)
	}},
	{"starts once", func(e *env) {
		c := e.pod().server()
		e.refused("StartContainer of a running one", c.start())
		e.ok("StopContainer", c.stop(0))
		c.exited()
		e.refused("StartContainer of an exited one", c.start())
	}},
	{"one that cannot start has exited with 128, StartError and the cause", func(e *env) {
		p := e.pod()
		c := p.create(p.commandConfig("/no/such/program"))
		e.refused("StartContainer", c.start())
		st := c.exited()
		if st.GetExitCode() != 128 || st.GetReason() != "StartError" || st.GetMessage() == "" || st.GetFinishedAt() == 0 {
			e.Errorf("got %v", st)
		}
	}},
	{"a name and attempt exists once in a pod, until removed", func(e *env) {
		p := e.pod()
		config := p.commandConfig("sleep", "100")
		c := p.create(config)
		_, err := p.tryCreate(config)
		e.refused("CreateContainer twice", err)
		next := proto.CloneOf(config)
		next.Metadata.Attempt++
		if p.create(next).id == c.id {
			e.Error("two attempts with one ID")
		}
		e.ok("RemoveContainer", c.remove())
		if p.create(config).id == c.id {
			e.Error("an ID came back")
		}
	}},
	{"list filters by ID, sandbox, state and labels", func(e *env) {
		p, q := e.pod(), e.pod()
		a, b := p.server(), q.create(q.commandConfig("true"))
		running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
		created := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}
		for _, tt := range []struct {
			name   string
			filter *runtimeapi.ContainerFilter
			a, b   bool
		}{
			{"none", nil, true, true},
			{"ID", &runtimeapi.ContainerFilter{Id: b.id}, false, true},
			{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: p.id}, true, false},
			{"running", &runtimeapi.ContainerFilter{State: running}, true, false},
			{"created", &runtimeapi.ContainerFilter{State: created}, false, true},
			{"label", &runtimeapi.ContainerFilter{LabelSelector: a.config.GetLabels()}, true, false},
			{"sandbox and state", &runtimeapi.ContainerFilter{PodSandboxId: p.id, State: created}, false, false},
			{"unknown ID", &runtimeapi.ContainerFilter{Id: "ffffffffffffffff"}, false, false},
		} {
			resp, err := e.runtime.ListContainers(e.ctx, &runtimeapi.ListContainersRequest{Filter: tt.filter})
			e.ok("ListContainers", err)
			var hasA, hasB bool
			for _, c := range resp.GetContainers() {
				hasA = hasA || c.GetId() == a.id
				hasB = hasB || c.GetId() == b.id
				if c.GetId() == a.id && (c.GetPodSandboxId() != p.id || !proto.Equal(c.GetMetadata(), a.config.GetMetadata()) ||
					!maps.Equal(c.GetLabels(), a.config.GetLabels()) || !maps.Equal(c.GetAnnotations(), a.config.GetAnnotations()) ||
					c.GetCreatedAt() == 0 || c.GetImageRef() == "") {
					e.Errorf("listed as %v", c)
				}
			}
			if hasA != tt.a || hasB != tt.b {
				e.Errorf("filter %s: has a %v, b %v; want %v, %v", tt.name, hasA, hasB, tt.a, tt.b)
			}
		}
	}},
	{"resources change while it runs, the rest stays", func(e *env) {
		c := e.pod().server()
		_, err := e.runtime.UpdateContainerResources(e.ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20},
		})
		e.ok("UpdateContainerResources", err)
		st := c.status()
		r := st.GetResources().GetLinux()
		if r.GetMemoryLimitInBytes() != 96<<20 || r.GetCpuShares() != 102 || st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			e.Errorf("state %v, resources %v", st.GetState(), r)
		}
	}},
	{"bad requests are refused", func(e *env) {
		p := e.pod()
		config := p.commandConfig("true")
		config.Metadata = nil
		_, err := p.tryCreate(config)
		e.refused("no metadata", err)
		config = p.commandConfig("true")
		config.Image.Image = e.target.Images.Missing
		_, err = p.tryCreate(config)
		e.code("an image that is not there", err, codes.NotFound)
		nowhere := &pod{env: e, id: "ffffffffffffffff", config: p.config}
		_, err = nowhere.tryCreate(p.commandConfig("true"))
		e.code("a sandbox that is not there", err, codes.NotFound)
	}},
}
