// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/nodeapi"
)

// upgraded is a session that a caller has by hand.
func (r *streamRig) upgraded(path string, headers ...string) net.Conn {
	r.Helper()
	conn, err := tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		r.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		r.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nConnection: Upgrade\r\n%s\r\n\r\n", path, strings.Join(headers, "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		r.Fatalf("%s: %v, %v", path, resp, err)
	}
	return conn
}

// The ways to speak with the node after an upgrade.
var (
	spdyHeaders = []string{"Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"}
	wsHeaders   = []string{"Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: http://x", "Sec-WebSocket-Protocol: v5.channel.k8s.io"}
	tunHeaders  = []string{"Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io"}
	pfHeaders   = []string{"Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: portforward.k8s.io"}
)

// TestBadStreams: garbage, silence and sudden ends leave nothing behind: no
// session, no goroutine, no connection.
func TestBadStreams(t *testing.T) {
	r := newStreamRig(t, nodeapi.Config{}, nil)
	const silent = "/exec/ns/p/c?command=sleep&command=infinity&output=1&input=1"
	kinds := []struct {
		name, path string
		headers    []string
	}{
		{"SPDY exec", silent, spdyHeaders}, {"WebSocket exec", silent, wsHeaders}, {"WebSocket attach", "/attach/ns/p/c?output=1&input=1", wsHeaders},
		{"SPDY port-forward", "/portForward/ns/p", pfHeaders}, {"WebSocket port-forward", "/portForward/ns/p", tunHeaders},
	}
	behaviours := map[string]func(net.Conn){
		"vanishes":       func(net.Conn) {},
		"sends noise":    func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("\xff\x00\x80\x7f garbage", 1000))) },
		"sends zeros":    func(c net.Conn) { _, _ = c.Write(make([]byte, 1<<16)) },
		"sends HTTP":     func(c net.Conn) { _, _ = c.Write([]byte("GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")) },
		"begins a frame": func(c net.Conn) { _, _ = c.Write([]byte{0x82, 0xff, 0x7f}) },
		"says a huge one": func(c net.Conn) {
			_, _ = c.Write([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
		},
		"a huge stream":   func(c net.Conn) { _, _ = c.Write([]byte{0x80, 0x03, 0x00, 0x01, 0x00, 0xff, 0xff, 0xff}) },
		"closes politely": func(c net.Conn) { _, _ = c.Write([]byte{0x88, 0x80, 0, 0, 0, 0}) },
		"half-closes":     func(c net.Conn) { _ = c.(*tls.Conn).CloseWrite() },
	}
	once := func() {
		for _, kind := range kinds {
			for name, behave := range behaviours {
				conn := r.upgraded(kind.path, kind.headers...)
				behave(conn)
				if err := conn.Close(); err != nil && !strings.Contains(err.Error(), "broken pipe") && !strings.Contains(err.Error(), "reset") {
					t.Errorf("%s %s: %v", kind.name, name, err)
				}
			}
		}
		r.Eventually("no session is left", func() bool {
			return r.counter("sextant_nodeapi_sessions", "exec")+r.counter("sextant_nodeapi_sessions", "attach")+r.counter("sextant_nodeapi_sessions", "portforward") == 0
		})
	}
	for range 3 {
		once()
	}
	r.Eventually("handlers are gone", func() bool { return handlers() == 0 })
	runtimes := r.streamPort()
	r.Eventually("connections are closed", func() bool { return connections(t, int(r.port), runtimes) == 0 })
	expect(t, "the port", r.do(who{token: "good"}, "GET", "/runningpods/"), 200, "PodList")
}

// streamPort is where the runtime serves streams.
func (r *streamRig) streamPort() int {
	r.Helper()
	resp, err := r.cri.Exec(r.House.Context(), &runtimeapi.ExecRequest{ContainerId: r.container, Cmd: []string{"true"}, Stdout: true})
	if err != nil {
		r.Fatal(err)
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil {
		r.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		r.Fatal(err)
	}
	return port
}

// connections counts those that the node has with callers and with the runtime
// (proc(5): local and remote address in hexadecimal, state 1 is established and 8
// has been closed by the other end alone).
func connections(t *testing.T, node, runtimes int) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		ours := strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", node)) || strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", runtimes))
		if ours && (fields[3] == "01" || fields[3] == "08") {
			n++
		}
	}
	return n
}

// handlers counts the goroutines of sessions, whoever's code they are in.
func handlers() (n int) {
	buffer := make([]byte, 8<<20)
	for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		for _, code := range []string{"services/nodeapi.(*Service).carry", "services/nodeapi.(*streamConn)", "apiserver/pkg/util/proxy.", "apimachinery/pkg/util/proxy."} {
			if strings.Contains(stack, code) {
				n++
				break
			}
		}
	}
	return n
}
