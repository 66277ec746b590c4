// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzHandshake: what a request says of the stream that it wants is read in proportion,
// and a stream has at least one direction, and of ports only such as there are.
func FuzzHandshake(f *testing.F) {
	for _, head := range []string{
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
		"Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n",
		"", "Upgrade: x\r\n", "Connection: " + strings.Repeat("upgrade,", 1000) + "\r\n", "Sec-WebSocket-Protocol: " + strings.Repeat(",", 1000) + "\r\n",
	} {
		for _, query := range []string{"stdin=1&stdout=1&tty=1", "input=1&output=1&error=1", "", "port=80,443&port=1", "port=0", "port=65536", "port=-1", "port=" + strings.Repeat("1,", 1000) + "1", "tty=1&stderr=1&stdout=1"} {
			f.Add(query, head)
		}
	}
	f.Fuzz(func(t *testing.T, query, head string) {
		if strings.ContainsAny(query, " \r\n") {
			return
		}
		raw := "POST /exec/ns/p/c?" + query + " HTTP/1.1\r\nHost: n\r\n" + head + "\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		fuzzing.Allocates(t, 1<<20+200*uint64(len(raw)), func() {
			r := r.Clone(t.Context()) // reading its query keeps the query
			fuzzing.Spends(t, time.Second, func() {
				if o, err := remotecommand.NewOptions(r); err == nil && (!o.Stdin && !o.Stdout && !o.Stderr || o.TTY && o.Stderr) {
					t.Errorf("%q asks for %+v", query, o)
				}
				if wsstream.IsWebSocketRequest(r) != (wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) || wsstream.IsWebSocketRequestWithTunnelingProtocol(r)) && !wsstream.IsWebSocketRequest(r) {
					t.Errorf("%q is a session of a WebSocket, and no WebSocket", head)
				}
				if httpstream.IsUpgradeRequest(r) && r.Header.Get("Connection") == "" {
					t.Errorf("%q is an upgrade", head)
				}
				options, err := portforward.NewV4Options(r)
				if err != nil || options == nil {
					return
				}
				for _, port := range options.Ports {
					if port < 1 || port > 65535 {
						t.Errorf("%q asks for port %d", query, port)
					}
				}
			})
		})
	})
}
