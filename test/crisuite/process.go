// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var processTests = []test{
	{"ends: code and reason", func(e *env) {
		p := e.pod()
		for _, tt := range []struct {
			script string
			code   int32
			reason string
		}{
			{"exit 0", 0, "Completed"},
			{"true", 0, "Completed"},
			{"false", 1, "Error"},
			{"exit 42", 42, "Error"},
			{"false && exit 3; true || exit 4; exit 255", 255, "Error"},
			{"no-such-command", 127, "Error"},
			{"sh -c 'exit 9'; exit 10", 10, "Error"},
			{"if [ a = a ]; then exit 11; else exit 12; fi", 11, "Error"},
		} {
			st := p.start(tt.script).exited()
			if st.GetExitCode() != tt.code || st.GetReason() != tt.reason {
				e.Errorf("%s: code %d, reason %q; want %d, %q", tt.script, st.GetExitCode(), st.GetReason(), tt.code, tt.reason)
			}
		}
	}},
	{"out of memory is OOMKilled", func(e *env) {
		p := e.pod()
		config := p.commandConfig("tail", "/dev/zero")
		config.Linux.Resources.MemoryLimitInBytes = 24 << 20
		c := p.create(config)
		e.ok("StartContainer", c.start())
		if st := c.exited(); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			e.Errorf("code %d, reason %q", st.GetExitCode(), st.GetReason())
		}
	}},
	{"sees its command and arguments, environment and host name", func(e *env) {
		p := e.pod()
		config := p.commandConfig("sh", "-c")
		config.Args = []string{`echo "$COLOUR $0 $1"; hostname`, "zero", "one two"}
		config.Envs = []*runtimeapi.KeyValue{{Key: "COLOUR", Value: []byte("deep blue")}}
		c := p.create(config)
		e.ok("StartContainer", c.start())
		c.exited()
		c.logged("deep blue zero one two")
		c.logged(p.config.GetHostname())
	}},
	{"reads and writes the host's files under its mounts", func(e *env) {
		p := e.pod()
		dir := e.TempDir()
		message := filepath.Join(dir, "termination-log")
		for name, text := range map[string]string{"in": "from outside\n", "termination-log": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				e.Fatal(err)
			}
		}
		config := p.shellConfig("cat /in/in; echo no > /in/out && exit 3; echo bye > /dev/termination-log")
		config.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/in", HostPath: dir, Readonly: true},
			{ContainerPath: "/dev/termination-log", HostPath: message},
		}
		c := p.create(config)
		e.ok("StartContainer", c.start())
		if st := c.exited(); st.GetExitCode() != 0 {
			e.Errorf("exit code %d", st.GetExitCode())
		}
		c.logged("from outside")
		if got, err := os.ReadFile(message); err != nil || string(got) != "bye\n" {
			e.Errorf("termination log %q, %v", got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
			e.Error("wrote under a read-only mount")
		}
	}},
	{"runs as the user and in the directory it is given", func(e *env) {
		p := e.pod()
		config := p.shellConfig("id -u; id -g; pwd")
		config.WorkingDir = "/tmp"
		config.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: 1234}
		config.Linux.SecurityContext.RunAsGroup = &runtimeapi.Int64Value{Value: 4321}
		c := p.create(config)
		e.ok("StartContainer", c.start())
		c.exited()
		for _, want := range []string{"1234", "4321", "/tmp"} {
			c.logged(want)
		}
	}},
	{"a read-only root is read-only", func(e *env) {
		p := e.pod()
		config := p.shellConfig("touch /new 2>/dev/null || exit 30")
		config.Linux.SecurityContext.ReadonlyRootfs = true
		c := p.create(config)
		e.ok("StartContainer", c.start())
		if st := c.exited(); st.GetExitCode() != 30 {
			e.Errorf("exit code %d", st.GetExitCode())
		}
	}},
	{"finds the pod's resolver configuration and host name", func(e *env) {
		config := e.podConfig()
		config.DnsConfig = &runtimeapi.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local", "example.com"}, Options: []string{"ndots:5"},
		}
		p := e.runPod(config)
		c := p.start("cat /etc/resolv.conf /etc/hostname")
		c.exited()
		for _, want := range []string{"nameserver 10.96.0.10", "search default.svc.cluster.local example.com", "options ndots:5", config.GetHostname()} {
			c.logged(want)
		}
	}},
	{"one pod's containers end apart", func(e *env) {
		p := e.pod()
		a, b := p.server(), p.server()
		e.ok("StopContainer", a.stop(30))
		if st := b.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			e.Errorf("the other is %v", st.GetState())
		}
	}},
}
