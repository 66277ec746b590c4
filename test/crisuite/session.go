// SPDX-License-Identifier: Apache-2.0

package crisuite

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// talk is a session with a URL the runtime gave, to its end.
func (e *env) talk(raw string, options remotecommand.StreamOptions) error {
	e.Helper()
	u, err := url.Parse(raw)
	e.ok("URL "+raw, err)
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	e.ok("executor", err)
	return executor.StreamWithContext(e.ctx, options)
}

// execSession is a command with streams.
func (e *env) execSession(c *ctr, in string, cmd ...string) (out, errout string, err error) {
	e.Helper()
	resp, err := e.runtime.Exec(e.ctx, &runtimeapi.ExecRequest{ContainerId: c.id, Cmd: cmd, Stdin: in != "", Stdout: true, Stderr: true})
	e.ok("Exec", err)
	var outb, errb bytes.Buffer
	options := remotecommand.StreamOptions{Stdout: &outb, Stderr: &errb}
	if in != "" {
		options.Stdin = strings.NewReader(in)
	}
	err = e.talk(resp.GetUrl(), options)
	return outb.String(), errb.String(), err
}

var sessionTests = []test{
	{"a command's outputs and exit code arrive", func(e *env) {
		c := e.pod().server()
		out, errout, err := e.execSession(c, "", "sh", "-c", "echo out; echo err >&2; exit 7")
		var exit exec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 7 || out != "out\n" || errout != "err\n" {
			e.Errorf("out %q, err %q, %v", out, errout, err)
		}
		if _, _, err := e.execSession(c, "", "true"); err != nil {
			e.Errorf("true: %v", err)
		}
		if _, _, err := e.execSession(c, "", "no-such-command"); err == nil {
			e.Errorf("a missing executable ran")
		}
	}},
	{"standard input arrives, and its end", func(e *env) {
		c := e.pod().server()
		want := strings.Repeat("0123456789abcdef", 1<<16)
		out, _, err := e.execSession(c, want, "cat")
		if err != nil || out != want {
			e.Errorf("%d bytes came back of %d, %v", len(out), len(want), err)
		}
	}},
	{"attach is the container's own streams", func(e *env) {
		p := e.pod()
		config := p.commandConfig("cat")
		config.Stdin, config.StdinOnce = true, true
		c := p.create(config)
		e.ok("StartContainer", c.start())
		resp, err := e.runtime.Attach(e.ctx, &runtimeapi.AttachRequest{ContainerId: c.id, Stdin: true, Stdout: true, Stderr: true})
		e.ok("Attach", err)
		var out bytes.Buffer
		if err := e.talk(resp.GetUrl(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: io.Discard}); err != nil {
			e.Errorf("attach: %v", err)
		}
		if out.String() != "hello\n" {
			e.Errorf("it said %q", out.String())
		}
		if st := c.exited(); st.GetExitCode() != 0 {
			e.Errorf("exit code %d", st.GetExitCode())
		}
	}},
	{"a port nobody listens on is told", func(e *env) {
		p := e.pod()
		p.server()
		resp, err := e.runtime.PortForward(e.ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.id})
		e.ok("PortForward", err)
		u, err := url.Parse(resp.GetUrl())
		e.ok("URL", err)
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		e.ok("transport", err)
		conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u).Dial("portforward.k8s.io")
		e.ok("dial", err)
		defer conn.Close() //nolint:errcheck // the test's end
		headers := http.Header{"Port": {"9"}, "Requestid": {"1"}, "Streamtype": {"error"}}
		failure, err := conn.CreateStream(headers)
		e.ok("error stream", err)
		headers.Set("streamType", "data")
		data, err := conn.CreateStream(headers)
		e.ok("data stream", err)
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = io.Copy(io.Discard, data) }) // ends with the connection
		text, err := io.ReadAll(failure)
		if err != nil || !strings.Contains(string(text), "9") {
			e.Errorf("told %q, %v", text, err)
		}
		e.ok("close", conn.Close())
		wait.Wait()
	}},
}
