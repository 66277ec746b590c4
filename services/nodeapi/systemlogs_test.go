// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

func TestSystemLogs(t *testing.T) {
	r := newRig(t, alwaysAllow)
	for name, text := range map[string]string{"syslog": "one\n", "folder/x.log": "x\n"} {
		path := filepath.Join(r.logs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.logs), "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, "listing", r.get("/logs/"), 200, `<a href="syslog">syslog</a>`)
	expect(t, "file", r.get("/logs/syslog"), 200, "one\n")
	expect(t, "folder", r.get("/logs/folder/"), 200, "x.log")
	expect(t, "a query while that is off", r.get("/logs/?query=syslog"), 200, "<pre>")
	expect(t, "another method", r.do(who{}, http.MethodPost, "/logs/"), 405, "")
	// Whatever a path looks like on the wire, it leads to the folder or nowhere.
	for _, path := range []string{
		"/logs/../secret", "/logs/%2e%2e/secret", "/logs/%2e%2e%2fsecret", "/logs/..%2fsecret", "/logs/%252e%252e/secret", "/logs/....//secret",
		"/logs/folder/../../secret", "/logs/folder/%2e%2e/%2e%2e/secret", "/logs/%00", "/logs/syslog%00.log", "/logs//../secret", "/logs/%5c..%5csecret",
		"/logs/%2fetc/passwd", "//logs/../../secret", "/logs/..;/secret",
	} {
		status, body := r.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if strings.Contains(body, "secret\n") || strings.HasSuffix(body, "\r\n\r\nsecret") || strings.Contains(body, "root:") {
			t.Errorf("%s: %s %q", path, status, body)
		}
		switch status {
		case "301", "307", "308", "400", "404":
		default:
			t.Errorf("%s: %s %q", path, status, body)
		}
	}
	on := true
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.EnableSystemLogQuery = &on })
	r.Eventually("queries", func() bool { return r.get("/logs/?query=syslog").body == "one\n" })
	expect(t, "a bad one", r.get("/logs/?query="), 400, "may not be empty")
	expect(t, "one with a path", r.get("/logs/syslog?query=syslog"), 406, "path not allowed in query mode")
	off := false
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.EnableSystemLogHandler = &off })
	r.Eventually("switched off", func() bool { return r.get("/logs/").body == "logs endpoint is disabled.\n" })
	expect(t, "switched off", r.get("/logs/syslog"), 405, "")
}

// raw sends bytes as they are and reads the answer to its end: its status, and
// all of it.
func (r *rig) raw(request string) (status, all string) {
	r.Helper()
	conn := r.dial(who{})
	defer conn.Close()
	if _, err := conn.Write([]byte(request)); err != nil {
		r.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	if err != nil && len(data) == 0 {
		r.Fatal(err)
	}
	if fields := strings.Fields(string(data)); len(fields) > 1 {
		status = fields[1]
	}
	return status, string(data)
}

func (r *rig) dial(w who) net.Conn {
	r.Helper()
	conn, err := r.tryDial(w)
	if err != nil {
		r.Fatal(err)
	}
	return conn
}
