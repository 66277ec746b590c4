// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resources are what a leak would show in.
type resources struct{ goroutines, files int }

func used(t testing.TB) resources {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resources{runtime.NumGoroutine(), len(open)}
}

// slack is what may differ without a leak: connections between the services of
// the rig come and go.
const slack = 20

// settles waits until no more is in use than before.
func (r *rig) settles(before resources) {
	r.Helper()
	var now resources
	r.Eventually("goroutines and files are back where they were", func() bool {
		now = used(r)
		return now.goroutines <= before.goroutines+slack && now.files <= before.files+slack
	})
}

// hangUp closes many connections without a word.
func hangUp(conns []net.Conn) {
	for _, c := range conns {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		_ = c.Close()
	}
}

// answers fails unless a caller who behaves is served at once.
func (r *rig) answers() {
	r.Helper()
	began := time.Now()
	expect(r, "a caller who behaves", r.get("/healthz/ping"), 200, "ok")
	if took := time.Since(began); took > time.Minute {
		r.Errorf("it took %s", took)
	}
}

// TestIdleConnections: ten thousand callers who connect and say nothing, some of
// them after a handshake or a request.
func TestIdleConnections(t *testing.T) {
	r := newRig(t, alwaysAllow)
	r.answers()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	before := used(t)
	const mostWaiting = 1000
	many := min(10000, int(limit.Max)-before.files-2*mostWaiting)
	if many < 2*mostWaiting {
		t.Fatalf("only %d files may be open: too few for this test", limit.Max)
	}
	var conns []net.Conn
	defer func() { hangUp(conns) }()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	held := memory.HeapInuse + memory.StackInuse
	for i := range many {
		var conn net.Conn
		var err error
		if i%25 == 0 {
			conn, err = r.tryDial(who{})
		} else {
			conn, err = net.Dial("tcp", address(r.port))
		}
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		if i%100 == 0 {
			if _, err := io.WriteString(conn, "GET /healthz/ping HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.answers()
	r.Eventually("no more than the limit are kept", func() bool { return used(t).goroutines <= before.goroutines+mostWaiting+slack })
	runtime.GC()
	runtime.ReadMemStats(&memory)
	if now := memory.HeapInuse + memory.StackInuse; now > held+150<<20 {
		t.Errorf("%d MiB more than before", (now-held)>>20)
	}
	r.answers()
	hangUp(conns)
	conns = nil
	r.settles(before)
	r.answers()
}

// TestSlowHeaders: callers who send a header a byte at a time take nobody's
// place.
func TestSlowHeaders(t *testing.T) {
	r := newRig(t, alwaysAllow)
	r.answers()
	before := used(t)
	var conns []net.Conn
	defer func() { hangUp(conns) }()
	for i := range 1200 {
		conn, err := net.Dial("tcp", address(r.port))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if i%20 != 0 {
			_, _ = conn.Write([]byte{22}) // the first byte of a handshake
			continue
		}
		secure := tls.Client(conn, callerTLS(who{}))
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"G", "ET /pods HTTP/1.1\r\n", "X: "} {
			if _, err := io.WriteString(secure, part); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.answers()
	hangUp(conns)
	conns = nil
	r.settles(before)
}

// TestBodies: who is refused is told so at once, whatever they have yet to send.
func TestBodies(t *testing.T) {
	r := newRig(t, nil)
	before := used(t)
	for _, headers := range []string{"Content-Length: 1000000000", "Transfer-Encoding: chunked"} {
		conn := r.dial(who{})
		if _, err := io.WriteString(conn, "POST /run/ns/p/c HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n\r\n1"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || !resp.Close {
			t.Errorf("%s: %v, %v", headers, resp, err)
		}
		_ = conn.Close()
	}
	r.settles(before)
}

// TestMalformedRequests: headers that are too long, and what is not HTTP at all.
func TestMalformedRequests(t *testing.T) {
	r := newRig(t, alwaysAllow)
	before := used(t)
	good := "GET /healthz/ping HTTP/1.1\r\nHost: x\r\n"
	for name, test := range map[string]struct{ send, status, later string }{
		"a header of a megabyte":       {good + "X: " + strings.Repeat("x", 1<<20+4096) + "\r\n\r\n", "431", ""},
		"very many headers":            {good + strings.Repeat("X: y\r\n", (1<<20+8192)/6) + "\r\n", "431", ""},
		"a path of a megabyte":         {"GET /" + strings.Repeat("x", 1<<20+4096) + " HTTP/1.1\r\n\r\n", "431", ""},
		"no host":                      {"GET /pods HTTP/1.1\r\n\r\n", "400", ""},
		"two hosts":                    {good + "Host: y\r\n\r\n", "400", ""},
		"garbage":                      {"\x00\x01\x02garbage\r\n\r\n", "400", ""},
		"another protocol":             {"SSH-2.0-x\r\n\r\n", "400", ""},
		"an old version":               {"GET /healthz/ping HTTP/0.9\r\n\r\n", "505", ""},
		"a method with a blank":        {"G T /pods HTTP/1.1\r\nHost: x\r\n\r\n", "400", ""},
		"garbage behind a request":     {good + "\r\n" + "garbage\r\n\r\n", "200", "400 Bad Request"},
		"two lengths":                  {"POST /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "400", ""},
		"bad chunks":                   {"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400", ""},
		"an unknown encoding":          {"POST /pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: zip\r\n\r\n", "501", ""},
		"a path that is no path":       {"GET * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404", ""},
		"a proxy's request":            {"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "404", ""},
		"an expectation":               {good + "Expect: miracles\r\n\r\n", "417", ""},
		"HTTP/2 without being offered": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100), "404", ""},
	} {
		status, all := r.raw(test.send)
		if status != test.status || !strings.Contains(all, test.later) {
			t.Errorf("%s: %s %.200q, want %s, then %q", name, status, all, test.status, test.later)
		}
		if test.later == "" && strings.Count(all, "HTTP/1.") > 1 {
			t.Errorf("%s was answered more than once: %.200q", name, all)
		}
	}
	r.answers()
	r.settles(before)
}

// TestHTTP2Garbage: frames that make no sense end their connection only.
func TestHTTP2Garbage(t *testing.T) {
	r := newRig(t, alwaysAllow)
	before := used(t)
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, frames := range map[string]string{
		"no preface":              "garbage that is longer than the preface would have been",
		"garbage for settings":    preface + strings.Repeat("\xff", 64),
		"a frame that is too big": preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"data on no stream":       preface + settings + "\x00\x00\x01\x00\x00\x00\x00\x00\x00x",
		"an even stream":          preface + settings + "\x00\x00\x01\x01\x05\x00\x00\x00\x02\x82",
		"headers that do not end": preface + settings + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82" + "\x00\x00\x01\x00\x00\x00\x00\x00\x01x",
		"bad compression":         preface + settings + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
	} {
		config := callerTLS(who{})
		config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", address(r.port), config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, frames); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
	r.answers()
	r.settles(before)
}

// TestBadCredentialsLeakNothing: refusals, many at a time.
func TestBadCredentialsLeakNothing(t *testing.T) {
	r := newRig(t, nil)
	stranger := newAuthority(t)
	callers := map[string]struct {
		who  who
		code int
	}{
		"nobody":          {who{}, 401},
		"wrong authority": {who{certificate: stranger.sign(t, "system:masters", time.Hour, x509.ExtKeyUsageClientAuth, "system:masters")}, 401},
		"expired":         {who{certificate: r.ca.sign(t, "admin", -time.Minute, x509.ExtKeyUsageClientAuth, "system:masters")}, 401},
		"bad token":       {who{token: "bad"}, 401},
		"not allowed":     {who{token: "good"}, 403},
	}
	before := used(t)
	done := make(chan string)
	for name, caller := range callers {
		for _, request := range []string{"GET /pods", "POST /run/ns/p/c", "GET /exec/ns/p/c", "DELETE /configz", "GET /logs/", "PUT /debug/flags/v"} {
			method, path, _ := strings.Cut(request, " ")
			go func() {
				wrong := ""
				if a := r.do(caller.who, method, path); a.code != caller.code {
					wrong = fmt.Sprintf("%s, %s: %d %q, want %d", name, request, a.code, a.body, caller.code)
				}
				done <- wrong
			}()
		}
	}
	for range len(callers) * 6 {
		if wrong := <-done; wrong != "" {
			t.Error(wrong)
		}
	}
	r.settles(before)
}
