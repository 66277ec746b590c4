// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"maps"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var sandboxTests = []test{
	{"run makes it ready, with an address and all it was given", func(e *env) {
		before := time.Now()
		p := e.pod()
		st := p.status()
		if st.GetId() != p.id || st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			e.Errorf("ID %q, state %v", st.GetId(), st.GetState())
		}
		if !proto.Equal(st.GetMetadata(), p.config.GetMetadata()) {
			e.Errorf("metadata %v, want %v", st.GetMetadata(), p.config.GetMetadata())
		}
		if !maps.Equal(st.GetLabels(), p.config.GetLabels()) || !maps.Equal(st.GetAnnotations(), p.config.GetAnnotations()) {
			e.Errorf("labels %v, annotations %v", st.GetLabels(), st.GetAnnotations())
		}
		if _, err := netip.ParseAddr(st.GetNetwork().GetIp()); err != nil {
			e.Errorf("address: %v", err)
		}
		created := time.Unix(0, st.GetCreatedAt())
		if created.Before(before.Add(-time.Second)) || created.After(time.Now().Add(time.Second)) {
			e.Errorf("created at %v, ran at %v", created, before)
		}
	}},
	{"addresses differ", func(e *env) {
		a, b := e.pod().status().GetNetwork().GetIp(), e.pod().status().GetNetwork().GetIp()
		if a == b {
			e.Errorf("both have %s", a)
		}
	}},
	{"on the host network it has no address", func(e *env) {
		config := e.podConfig()
		config.Hostname = ""
		config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}
		st := e.runPod(config).status()
		if ip := st.GetNetwork().GetIp(); ip != "" {
			e.Errorf("address %q", ip)
		}
		if n := st.GetLinux().GetNamespaces().GetOptions().GetNetwork(); n != runtimeapi.NamespaceMode_NODE {
			e.Errorf("network namespace %v", n)
		}
	}},
	{"list filters by ID, state and labels", func(e *env) {
		a, b := e.pod(), e.pod()
		_, err := e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.id})
		e.ok("StopPodSandbox", err)
		ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		notReady := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
		for _, tt := range []struct {
			name   string
			filter *runtimeapi.PodSandboxFilter
			a, b   bool
		}{
			{"none", nil, true, true},
			{"ID", &runtimeapi.PodSandboxFilter{Id: a.id}, true, false},
			{"ready", &runtimeapi.PodSandboxFilter{State: ready}, true, false},
			{"not ready", &runtimeapi.PodSandboxFilter{State: notReady}, false, true},
			{"label", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"uid": b.config.Labels["uid"]}}, false, true},
			{"common label", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"crisuite": "yes"}}, true, true},
			{"all of them", &runtimeapi.PodSandboxFilter{Id: a.id, State: notReady}, false, false},
			{"unknown ID", &runtimeapi.PodSandboxFilter{Id: "ffffffffffffffff"}, false, false},
		} {
			resp, err := e.runtime.ListPodSandbox(e.ctx, &runtimeapi.ListPodSandboxRequest{Filter: tt.filter})
			e.ok("ListPodSandbox", err)
			var hasA, hasB bool
			for _, sb := range resp.GetItems() {
				hasA = hasA || sb.GetId() == a.id
				hasB = hasB || sb.GetId() == b.id
				if sb.GetId() == a.id && (!proto.Equal(sb.GetMetadata(), a.config.GetMetadata()) || !maps.Equal(sb.GetLabels(), a.config.GetLabels()) ||
					!maps.Equal(sb.GetAnnotations(), a.config.GetAnnotations()) || sb.GetCreatedAt() == 0) {
					e.Errorf("listed as %v", sb)
				}
			}
			if hasA != tt.a || hasB != tt.b {
				e.Errorf("filter %s: has a %v, b %v; want %v, %v", tt.name, hasA, hasB, tt.a, tt.b)
			}
		}
	}},
	{"a name and attempt exists once, until removed", func(e *env) {
		p := e.pod()
		_, err := e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
		e.refused("RunPodSandbox twice", err)
		next := proto.CloneOf(p.config)
		next.Metadata.Attempt++
		if e.runPod(next).id == p.id {
			e.Error("two attempts with one ID")
		}
		_, err = e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		e.ok("StopPodSandbox", err)
		_, err = e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
		e.refused("RunPodSandbox while the stopped one exists", err)
		_, err = e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		e.ok("RemovePodSandbox", err)
		if e.runPod(p.config).id == p.id {
			e.Error("an ID came back")
		}
	}},
	{"stop kills what runs, keeps the record, and may be repeated", func(e *env) {
		p := e.pod()
		c := p.server()
		for range 2 {
			_, err := e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
			e.ok("StopPodSandbox", err)
		}
		st := p.status()
		if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
			e.Errorf("state %v, address %q", st.GetState(), st.GetNetwork().GetIp())
		}
		if cs := c.exited(); cs.GetExitCode() != 137 {
			e.Errorf("its container: %v", cs)
		}
		_, err := p.tryCreate(e.commandConfig("true"))
		e.refused("CreateContainer in it", err)
	}},
	{"a container created before the stop does not start after it", func(e *env) {
		p := e.pod()
		c := p.create(e.commandConfig("true"))
		_, err := e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		e.ok("StopPodSandbox", err)
		e.refused("StartContainer", c.start())
	}},
	{"remove takes a running one with all it has, and may be repeated", func(e *env) {
		p := e.pod()
		c := p.server()
		for range 2 {
			_, err := e.runtime.RemovePodSandbox(e.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
			e.ok("RemovePodSandbox", err)
		}
		_, err := e.runtime.PodSandboxStatus(e.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
		e.code("PodSandboxStatus", err, codes.NotFound)
		_, err = c.tryStatus()
		e.code("ContainerStatus", err, codes.NotFound)
		// containerd 1.6 says NotFound, later ones nothing.
		_, err = e.runtime.StopPodSandbox(e.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		e.code("StopPodSandbox", err, codes.OK, codes.NotFound)
		_, err = p.tryCreate(e.commandConfig("true"))
		e.code("CreateContainer", err, codes.NotFound)
	}},
	{"status verbose has info", func(e *env) {
		p := e.pod()
		resp, err := e.runtime.PodSandboxStatus(e.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
		e.ok("PodSandboxStatus", err)
		if resp.GetInfo()["info"] == "" {
			e.Errorf("info %v", resp.GetInfo())
		}
	}},
	{"bad requests are refused", func(e *env) {
		_, err := e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{}})
		e.refused("no metadata", err)
		_, err = e.runtime.RunPodSandbox(e.ctx, &runtimeapi.RunPodSandboxRequest{Config: e.podConfig(), RuntimeHandler: "no-such-handler"})
		e.refused("unknown handler", err)
		_, err = e.runtime.PodSandboxStatus(e.ctx, &runtimeapi.PodSandboxStatusRequest{})
		e.refused("status of no ID", err)
	}},
}
