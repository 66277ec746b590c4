// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var nodeTests = []test{
	{"version speaks v1 and names the runtime", func(e *env) {
		v, err := e.runtime.Version(e.ctx, &runtimeapi.VersionRequest{})
		e.ok("Version", err)
		if v.GetRuntimeApiVersion() != "v1" || v.GetRuntimeName() == "" || v.GetRuntimeVersion() == "" {
			e.Errorf("got %v", v)
		}
	}},
	{"status has both conditions, true", func(e *env) {
		st, err := e.runtime.Status(e.ctx, &runtimeapi.StatusRequest{})
		e.ok("Status", err)
		got := map[string]bool{}
		for _, c := range st.GetStatus().GetConditions() {
			got[c.GetType()] = c.GetStatus()
		}
		if !got[runtimeapi.RuntimeReady] || !got[runtimeapi.NetworkReady] {
			e.Errorf("conditions %v", st.GetStatus().GetConditions())
		}
		if len(st.GetInfo()) != 0 {
			e.Errorf("info without verbose: %v", st.GetInfo())
		}
	}},
	{"status verbose has info", func(e *env) {
		st, err := e.runtime.Status(e.ctx, &runtimeapi.StatusRequest{Verbose: true})
		e.ok("Status", err)
		if len(st.GetInfo()) == 0 {
			e.Error("no info")
		}
	}},
	{"runtime config tells the cgroup driver, or is unimplemented", func(e *env) {
		resp, err := e.runtime.RuntimeConfig(e.ctx, &runtimeapi.RuntimeConfigRequest{})
		if !e.target.Features.RuntimeConfig {
			e.code("RuntimeConfig", err, codes.Unimplemented)
			return
		}
		e.ok("RuntimeConfig", err)
		if resp.GetLinux() == nil {
			e.Errorf("got %v", resp)
		}
	}},
}
