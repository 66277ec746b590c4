// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/nodeapi"
)

func TestExec(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	for _, transport := range transports {
		for _, path := range []string{"/exec/ns/p/c", "/exec/ns/p/p/c", "/exec/ns/p/m/c"} {
			var out, errout bytes.Buffer
			err := r.command(transport, path+"?command=sh&command=-c&command=echo+out%3B+echo+err+%3E%262%3B+exit+3&output=1&error=1",
				remotecommand.StreamOptions{Stdout: &out, Stderr: &errout})
			var exit exec.CodeExitError
			if !errors.As(err, &exit) || exit.Code != 3 || out.String() != "out\n" || errout.String() != "err\n" {
				t.Errorf("%s %s: out %q, err %q, %v", transport, path, out.String(), errout.String(), err)
			}
		}
		big := strings.Repeat("0123456789abcdef", 1<<15)
		var out bytes.Buffer
		err := r.command(transport, "/exec/ns/p/c?command=cat&input=1&output=1", remotecommand.StreamOptions{Stdin: strings.NewReader(big), Stdout: &out})
		if err != nil || out.String() != big {
			t.Errorf("%s: %d bytes came back of %d, %v", transport, out.Len(), len(big), err)
		}
		out.Reset()
		err = r.command(transport, "/exec/ns/p/c?command=stty&command=size&output=1&input=1&tty=1", remotecommand.StreamOptions{
			Stdin: &never{r.House.Context().Done()}, Stdout: &out, Tty: true, TerminalSizeQueue: &size{Width: 132, Height: 43},
		})
		if err != nil || out.String() != "43 132\n" {
			t.Errorf("%s: the terminal is %q, %v", transport, out.String(), err)
		}
	}
	if got := r.counter("kubelet_websocket_streaming_requests_total", "exec"); got != 5 {
		t.Errorf("%v WebSocket sessions counted, want 5", got)
	}
	r.Eventually("no session is left", func() bool { return r.counter("sextant_nodeapi_sessions", "exec") == 0 })
}

// never is an input that does not end by itself.
type never struct{ until <-chan struct{} }

func (n *never) Read([]byte) (int, error) { <-n.until; return 0, io.EOF }

// size is a terminal that is resized once.
type size remotecommand.TerminalSize

func (s *size) Next() *remotecommand.TerminalSize {
	if s.Width == 0 {
		return nil
	}
	now := remotecommand.TerminalSize(*s)
	*s = size{}
	return &now
}

// counter is the value of a series with one label.
func (r *streamRig) counter(name, label string) float64 {
	r.Helper()
	families, err := r.kit.Metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func TestAttach(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	for i, transport := range transports {
		reader, writer := io.Pipe()
		input, feedInput := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- r.command(transport, "/attach/ns/p/c?input=1&output=1&error=1", remotecommand.StreamOptions{Stdin: input, Stdout: writer, Stderr: io.Discard})
		}()
		for _, line := range []string{"one\n", "two\n"} {
			if _, err := feedInput.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, len(line))
			if _, err := io.ReadFull(reader, buffer); err != nil || string(buffer) != line {
				t.Errorf("%s: %q, %v", transport, buffer, err)
			}
		}
		r.runtime.Exit(r.container, 0)
		if err := <-ended; err != nil {
			t.Errorf("%s: the container's end: %v", transport, err)
		}
		// A restart: the next caller comes before the news of it.
		r.container = r.start(uint32(i + 1))
		r.observe()
	}
}

func TestPortForward(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	for _, transport := range transports {
		conn, err := r.forward(transport, "/portForward/ns/p")
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				want := strings.Repeat(fmt.Sprintf("connection %d;", i), 1<<12)
				got, failure, err := ask(conn, i, echoPort, want)
				if err != nil || got != want || failure != "" {
					t.Errorf("%s: connection %d: %d bytes of %d, %q, %v", transport, i, len(got), len(want), failure, err)
				}
			})
		}
		all.Wait()
		if _, failure, err := ask(conn, 99, 9, ""); err != nil || !strings.Contains(failure, "connection refused") {
			t.Errorf("%s: a port nobody listens on: %q, %v", transport, failure, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := r.counter("kubelet_websocket_streaming_requests_total", "portforward"); got != 1 {
		t.Errorf("%v WebSocket sessions counted, want 1", got)
	}
	r.Eventually("no session is left", func() bool { return r.counter("sextant_nodeapi_sessions", "portforward") == 0 })
}

// ask is one connection of a port-forward session: it sends, says that this was
// all, and reads.
func ask(conn httpstream.Connection, request, port int, send string) (got, failure string, err error) {
	headers := http.Header{}
	headers.Set(v1.PortHeader, fmt.Sprint(port))
	headers.Set(v1.PortForwardRequestIDHeader, fmt.Sprint(request))
	headers.Set(v1.StreamType, v1.StreamTypeError)
	errs, err := conn.CreateStream(headers)
	if err != nil {
		return "", "", err
	}
	defer conn.RemoveStreams(errs)
	if err := errs.Close(); err != nil {
		return "", "", err
	}
	headers.Set(v1.StreamType, v1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return "", "", err
	}
	defer conn.RemoveStreams(data)
	told := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(errs) // its end is all that matters
		told <- string(text)
	}()
	if _, err := io.WriteString(data, send); err != nil {
		return "", "", err
	}
	if err := data.Close(); err != nil {
		return "", "", err
	}
	received, err := io.ReadAll(data)
	return string(received), <-told, err
}

func TestStreamStatuses(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
	for _, test := range []struct {
		name, path string
		headers    map[string]string
		code       int
		text       string
	}{
		{"no streams", "/exec/ns/p/c?command=true", upgrade, 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"streams that are not exactly 1", "/exec/ns/p/c?command=true&output=true", upgrade, 400, "you must specify"},
		{"a terminal has no standard error", "/exec/ns/p/c?command=true&tty=1&error=1", upgrade, 400, "you must specify"},
		{"attach without streams", "/attach/ns/p/c", upgrade, 400, "you must specify"},
		{"no pod", "/exec/ns/q/c?command=true&output=1", upgrade, 404, "pod does not exist"},
		{"no pod to attach to", "/attach/ns/q/c?output=1", upgrade, 404, "pod does not exist"},
		{"no pod to forward to", "/portForward/ns/q", upgrade, 404, "pod does not exist"},
		{"another namespace", "/exec/ms/p/c?command=true&output=1", upgrade, 404, "pod does not exist"},
		{"another uid", "/exec/ns/p/x/c?command=true&output=1", upgrade, 404, "pod not found"},
		{"another uid to forward to", "/portForward/ns/p/x", upgrade, 404, "pod not found"},
		{"no container", "/exec/ns/p/q?command=true&output=1", upgrade, 500, `container not found ("q")`},
		{"no container to attach to", "/attach/ns/p/q?output=1", upgrade, 500, "container q not found in pod p_ns"},
		{"one that does not run", "/exec/ns/p/down?command=true&output=1", upgrade, 500, `container not found ("down")`},
		{"no upgrade", "/exec/ns/p/c?command=true&output=1", nil, 500, "Upgrade request required"},
		{"no upgrade to forward", "/portForward/ns/p", nil, 500, "Upgrade request required"},
		{"what is no upgrade", "/exec/ns/p/c?command=true&output=1", map[string]string{"Connection": "Upgrade", "Upgrade": "nonsense"}, 400, ""},
		{"a protocol nobody speaks", "/exec/ns/p/c?command=true&output=1", map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v9.channel.k8s.io"}, 403, "unable to upgrade"},
		{"a WebSocket by POST", "/exec/ns/p/c?command=true&output=1", map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}, 405, "bad method"},
		{"a WebSocket that forwards no port", "/portForward/ns/p", map[string]string{"Connection": "Upgrade", "Upgrade": "websocket"}, 400, "query parameter"},
		{"too few parts", "/exec/ns/p", upgrade, 404, ""},
		{"a way out", "/exec/../../etc/passwd", upgrade, 307, ""},
	} {
		req, err := http.NewRequest(http.MethodPost, "https://"+address(r.port)+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer good")
		for key, value := range test.headers {
			req.Header.Set(key, value)
		}
		resp, err := r.client(who{}).Do(req)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != test.code || !strings.Contains(string(body), test.text) {
			t.Errorf("%s: %d %q, want %d %q", test.name, resp.StatusCode, body, test.code, test.text)
		}
	}
	// A runtime that no longer has what pleg saw, or that is away.
	r.runtime.Forget(r.container)
	if a := r.upgradeTo("/exec/ns/p/c?command=true&output=1"); a.code != 404 || !strings.Contains(a.body, "not found") {
		t.Errorf("forgotten by the runtime: %d %q", a.code, a.body)
	}
}

// upgradeTo asks for a SPDY session that is refused.
func (r *streamRig) upgradeTo(path string) answer {
	r.Helper()
	req, err := http.NewRequest(http.MethodPost, "https://"+address(r.port)+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer good"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	resp, err := r.client(who{}).Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{resp.StatusCode, string(body), resp.Header}
}

// TestEnteringNeedsCreate: a WebSocket begins with a GET, which is no reading.
func TestEnteringNeedsCreate(t *testing.T) {
	for _, kubelets := range []bool{false, true} {
		r := newStreamRig(t, nodeapi.Config{GetStreams: kubelets}, nil)
		reader := func(v *reviews) {
			clear(v.allow)
			v.allow["alice get proxy"] = true
		}
		r.reviews.set(reader)
		r.ahead.Store(int64(time.Hour)) // what was allowed is forgotten
		var out bytes.Buffer
		err := r.command("WebSocket", "/exec/ns/p/c?command=echo&command=in&output=1", remotecommand.StreamOptions{Stdout: &out})
		if entered := err == nil && out.String() == "in\n"; entered != kubelets {
			t.Errorf("the kubelet's rule %t: %q, %v", kubelets, out.String(), err)
		}
		if _, err := r.forward("WebSocket", "/portForward/ns/p"); (err == nil) != kubelets {
			t.Errorf("the kubelet's rule %t: port-forward: %v", kubelets, err)
		}
		want := "Forbidden (user=alice, verb=create, resource=nodes, subresource(s)=[proxy])"
		expect(t, "post", r.do(who{token: "good"}, "POST", "/exec/ns/p/c?command=true&output=1"), 403, want)
		expect(t, "run", r.do(who{token: "good"}, "POST", "/run/ns/p/c?cmd=true"), 403, want)
		if told := strings.Contains(r.log.String(), "need only the verb get"); told != kubelets {
			t.Errorf("the switch is told of: %t, want %t", told, kubelets)
		}
	}
}

func TestSessionsAreWrittenDown(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	var out bytes.Buffer
	if err := r.command("WebSocket", "/exec/ns/p/c?command=echo&command=secret+of+nobody&output=1", remotecommand.StreamOptions{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	expect(t, "run", r.do(who{token: "good"}, "POST", "/run/ns/p/c?cmd=echo+x"), 200, "x")
	r.Eventually("both ends are told", func() bool { return strings.Count(r.log.String(), `"msg":"session ended"`) == 2 })
	for _, want := range []string{
		`"msg":"session begins","kind":"exec","user":"alice","groups":["admins","system:authenticated"],"remote":"127.0.0.1:`,
		`"pod":"ns/p","uid":"p","container":"c","command":["echo","secret of nobody"]`,
		`"msg":"session begins","kind":"run","user":"alice"`,
	} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("%s is not in %s", want, r.log.String())
		}
	}
}

// TestSessionsNeedNobodyElse: once it is there, a session goes on without any
// other service.
func TestSessionsNeedNobodyElse(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	for _, transport := range transports {
		input, send := io.Pipe()
		output, receive := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- r.command(transport, "/exec/ns/p/c?command=cat&input=1&output=1", remotecommand.StreamOptions{Stdin: input, Stdout: receive})
		}()
		exchange := func(text string) {
			t.Helper()
			if _, err := io.WriteString(send, text); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, len(text))
			if _, err := io.ReadFull(output, buffer); err != nil || string(buffer) != text {
				t.Fatalf("%s: %q, %v", transport, buffer, err)
			}
		}
		exchange("before")
		defer func() {
			exchange("after")
			_ = send.Close()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", transport, err)
			}
		}()
	}
	r.stopPleg()
	r.stopWorker()
	r.stopNeighbours()
}

func TestIdleSessionsEnd(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, func(c *kubeletconfig.Config) {
		c.Kubelet.StreamingConnectionIdleTimeout.Duration = 200 * time.Millisecond
	})
	for _, transport := range transports {
		// How a client takes its connection's end is its own affair.
		err := r.command(transport, "/exec/ns/p/c?command=sleep&command=infinity&output=1", remotecommand.StreamOptions{Stdout: io.Discard})
		if r.House.Context().Err() != nil {
			t.Errorf("%s: it did not end: %v", transport, err)
		}
	}
	r.Eventually("no session is left", func() bool { return r.counter("sextant_nodeapi_sessions", "exec") == 0 })
}
