// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"context"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var execTests = []test{
	{"tells exit code and both outputs", func(e *env) {
		c := e.pod().server()
		for _, tt := range []struct {
			cmd         []string
			code        int32
			out, errout string
		}{
			{[]string{"true"}, 0, "", ""},
			{[]string{"false"}, 1, "", ""},
			{[]string{"echo", "a  b", "$HOME"}, 0, "a  b $HOME\n", ""},
			{[]string{"sh", "-c", "echo out; echo err >&2; exit 5"}, 5, "out\n", "err\n"},
			{[]string{"sh", "-c", "echo $1", "x", "arg"}, 0, "arg\n", ""},
		} {
			resp, err := c.exec(20, tt.cmd...)
			e.ok("ExecSync", err)
			if resp.GetExitCode() != tt.code || string(resp.GetStdout()) != tt.out || string(resp.GetStderr()) != tt.errout {
				e.Errorf("%q: %v", tt.cmd, resp)
			}
		}
	}},
	{"shares the container's files", func(e *env) {
		c := e.pod().start("while [ ! -f /tmp/stop ]; do sleep 0.05; done; cat /tmp/stop")
		resp, err := c.exec(20, "cat", "/tmp/stop")
		e.ok("ExecSync", err)
		if resp.GetExitCode() == 0 || len(resp.GetStderr()) == 0 {
			e.Errorf("cat of no file: %v", resp)
		}
		_, err = c.exec(20, "sh", "-c", "echo told > /tmp/stop")
		e.ok("ExecSync", err)
		c.exited()
		c.logged("told")
	}},
	{"a timeout is DeadlineExceeded and hurts nobody", func(e *env) {
		c := e.pod().server()
		began := time.Now()
		_, err := c.exec(1, "sleep", "100")
		e.code("ExecSync", err, codes.DeadlineExceeded)
		if took := time.Since(began); took < time.Second || took > 20*time.Second {
			e.Errorf("took %v", took)
		}
		if st := c.status(); st.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			e.Errorf("the container is %v", st.GetState())
		}
	}},
	{"without a timeout lasts as long as it takes, or until its caller leaves", func(e *env) {
		c := e.pod().server()
		resp, err := c.exec(0, "sh", "-c", "sleep 0.3; echo done")
		e.ok("ExecSync", err)
		if string(resp.GetStdout()) != "done\n" {
			e.Errorf("got %v", resp)
		}
		ctx, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
		defer cancel()
		_, err = e.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sleep", "100"}})
		e.code("ExecSync", err, codes.DeadlineExceeded)
	}},
	{"of what is not there is refused", func(e *env) {
		c := e.pod().server()
		_, err := c.exec(20, "no-such-command")
		e.refused("a missing executable", err)
		_, err = c.exec(20)
		e.refused("no command", err)
	}},
	{"in what does not run is refused", func(e *env) {
		p := e.pod()
		c := p.create(p.commandConfig("true"))
		_, err := c.exec(20, "true")
		e.refused("in a created container", err)
		e.ok("StartContainer", c.start())
		c.exited()
		_, err = c.exec(20, "true")
		e.refused("in an exited container", err)
	}},
	{"by stream has a URL while the container runs", func(e *env) {
		p := e.pod()
		c := p.server()
		exec, err := e.runtime.Exec(e.ctx, &runtimeapi.ExecRequest{ContainerId: c.id, Cmd: []string{"true"}, Stdout: true})
		e.ok("Exec", err)
		attach, err := e.runtime.Attach(e.ctx, &runtimeapi.AttachRequest{ContainerId: c.id, Stdout: true})
		e.ok("Attach", err)
		forward, err := e.runtime.PortForward(e.ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{80}})
		e.ok("PortForward", err)
		for _, raw := range []string{exec.GetUrl(), attach.GetUrl(), forward.GetUrl()} {
			if u, err := url.Parse(raw); err != nil || u.Host == "" {
				e.Errorf("URL %q, %v", raw, err)
			}
		}
		e.ok("StopContainer", c.stop(0))
		_, err = e.runtime.Exec(e.ctx, &runtimeapi.ExecRequest{ContainerId: c.id, Cmd: []string{"true"}, Stdout: true})
		e.refused("Exec in an exited container", err)
		_, err = e.runtime.Exec(e.ctx, &runtimeapi.ExecRequest{ContainerId: "ffffffffffffffff", Cmd: []string{"true"}, Stdout: true})
		e.code("Exec in an unknown container", err, codes.NotFound)
	}},
	{"a container that dies takes it along", func(e *env) {
		c := e.pod().server()
		type answer struct {
			resp *runtimeapi.ExecSyncResponse
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			resp, err := c.exec(80, "sh", "-c", "touch /tmp/begun; sleep 1000")
			got <- answer{resp, err}
		}()
		e.until("the command does not begin", func() bool {
			resp, err := c.exec(20, "test", "-f", "/tmp/begun")
			return err == nil && resp.GetExitCode() == 0
		})
		e.ok("StopContainer", c.stop(0))
		if a := <-got; a.err == nil && a.resp.GetExitCode() == 0 {
			e.Errorf("the command succeeded: %v", a.resp)
		}
	}},
}
