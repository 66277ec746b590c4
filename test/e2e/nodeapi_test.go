// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
)

// apiCaller is somebody who calls port 10250.
type apiCaller struct {
	certificate *tls.Certificate
	token       string
}

func (c apiCaller) tls() *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the serving certificate may be self-signed
	if c.certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.certificate, nil }
	}
	return config
}

func (e *env) apiAddress() string { return net.JoinHostPort(e.n.IP, strconv.Itoa(e.n.Port)) }

// call makes a request of the node API: its status and body.
func (e *env) call(ctx context.Context, c apiCaller, method, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+e.apiAddress()+path, nil)
	if err != nil {
		return 0, "", err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls(), DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), errors.Join(err, resp.Body.Close())
}

// nodeAPICallers: who they are and what they may do is the API server's to say;
// whatever they send, others are served.
func nodeAPICallers(e *env) {
	stranger, err := harness.SelfSigned("admin", "system:masters")
	if err != nil {
		e.Fatal(err)
	}
	reader := "reader-" + e.ns
	e.n.cp.Kubectl(e, "create", "clusterrole", reader, "--verb=get", "--resource=nodes/metrics,nodes/pods")
	e.n.cp.Kubectl(e, "create", "clusterrolebinding", reader, "--clusterrole="+reader, "--user="+reader)
	e.Cleanup(func() {
		for _, kind := range []string{"clusterrole", "clusterrolebinding"} {
			e.n.cp.TryKubectl(context.Background(), "delete", kind, reader)
		}
	})
	token := strings.TrimSpace(e.n.cp.Kubectl(e, "-n", e.ns, "create", "token", "default"))
	admin := apiCaller{certificate: e.n.cp.ClientCertificate(e, "admin", "system:masters")}
	may := apiCaller{certificate: e.n.cp.ClientCertificate(e, reader)}
	for _, test := range []struct {
		name         string
		who          apiCaller
		method, path string
		code         int
		body         string
	}{
		{"admin", admin, "GET", "/pods", 200, `"kind":"PodList"`},
		{"admin", admin, "GET", "/configz", 200, `"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"`},
		{"admin", admin, "GET", "/healthz", 200, "ok"},
		{"admin", admin, "GET", "/readyz?exclude=bus", 200, "ok"},
		{"admin", admin, "GET", "/livez/podworker", 200, "ok"},
		{"admin", admin, "GET", "/metrics/slis", 200, "kubernetes_healthcheck{"},
		{"admin", admin, "GET", "/logs/", 200, "<pre>"},
		{"admin", admin, "GET", "/flagz", 200, "kubelet flagz"},
		{"admin", admin, "GET", "/statusz", 200, "kubelet statusz"},
		{"admin", admin, "PUT", "/debug/flags/v", 400, "invalid syntax"},
		{"admin, where nothing is", admin, "GET", "/none", 404, "404 page not found"},
		{"reader", may, "GET", "/metrics", 200, "kubelet_http_requests_total"},
		{"reader", may, "GET", "/pods", 200, `"kind":"PodList"`},
		{"reader, another verb", may, "POST", "/pods", 403, "Forbidden (user=" + reader + ", verb=create, resource=nodes, subresource(s)=[pods proxy])"},
		{"reader, another path", may, "GET", "/configz", 403, "subresource(s)=[configz proxy])"},
		{"reader, into a container", may, "GET", "/exec/ns/pod/container", 403, "verb=create"},
		{"service account", apiCaller{token: token}, "GET", "/metrics", 403, "user=system:serviceaccount:" + e.ns + ":default"},
		{"bad token", apiCaller{token: token + "x"}, "GET", "/metrics", 401, "Unauthorized"},
		{"nobody", apiCaller{}, "GET", "/metrics", 401, "Unauthorized"},
		{"expired", apiCaller{certificate: e.n.cp.ClientCertificateUntil(e, time.Now().Add(-time.Minute), "admin", "system:masters")}, "GET", "/pods", 401, "Unauthorized"},
		{"wrong authority", apiCaller{certificate: stranger}, "GET", "/pods", 401, "Unauthorized"},
	} {
		// RBAC that was just made takes a moment; a yes is asked for again at once, a
		// no is remembered for 30 s.
		harness.Eventually(e, 4*time.Minute, test.name+" "+test.method+" "+test.path, func(ctx context.Context) error {
			code, body, err := e.call(ctx, test.who, test.method, test.path)
			if err == nil && (code != test.code || !strings.Contains(body, test.body)) {
				err = fmt.Errorf("%d %.300q, want %d with %q", code, body, test.code, test.body)
			}
			return err
		})
	}
	e.crowd(admin)
}

// crowd is two thousand callers who say nothing, or next to nothing.
func (e *env) crowd(admin apiCaller) {
	hello, err := e.n.hello(e.Context(), house.NodeAPI)
	if err != nil {
		e.Fatal(err)
	}
	files := func() int {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", hello.GetPid()))
		if err != nil {
			e.Fatal(err)
		}
		return len(open)
	}
	before := files()
	var conns []net.Conn
	hangUp := func() {
		for _, c := range conns {
			_ = c.Close()
		}
		conns = nil
	}
	defer hangUp()
	for i := range 2000 {
		conn, err := net.DialTimeout("tcp", e.apiAddress(), time.Minute)
		if err != nil {
			e.Fatal(err)
		}
		conns = append(conns, conn)
		if i%2 == 0 {
			_, _ = conn.Write([]byte{22, 3, 1}) // the beginning of a handshake; it may be hung up on already
		}
	}
	slow, err := tls.Dial("tcp", e.apiAddress(), apiCaller{}.tls())
	if err != nil {
		e.Fatal(err)
	}
	conns = append(conns, slow)
	if _, err := io.WriteString(slow, "GET /pods HTTP/1.1\r\nHost: node\r\nX-Slow: "); err != nil {
		e.Fatal(err)
	}
	if code, body, err := e.call(e.Context(), admin, "GET", "/healthz/ping"); err != nil || code != 200 || body != "ok" {
		e.Errorf("beside the crowd: %d %q, %v", code, body, err)
	}
	// Headers that do not end are waited for 32 s.
	_ = slow.SetReadDeadline(time.Now().Add(time.Minute)) // on a socket
	if _, err := slow.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		e.Error("slow headers are waited for without end")
	}
	hangUp()
	harness.Eventually(e, usual, "nodeapi's files are closed", func(context.Context) error {
		if now := files(); now > before+100 { // others call as well
			return fmt.Errorf("%d open, %d before", now, before)
		}
		return nil
	})
	if again, err := e.n.hello(e.Context(), house.NodeAPI); err != nil || again.GetPid() != hello.GetPid() {
		e.Errorf("nodeapi was restarted: %v, %v", again, err)
	}
}

// openFiles are the files with a name that a process has open.
func openFiles(e *env, pid int) []string {
	e.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		e.Fatal(err)
	}
	var files []string
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(target, "/") { // not a socket, not closed meanwhile
			files = append(files, target)
		}
	}
	return files
}

// nodeAPIFiles: the process that faces the network has nothing open, and can open
// nothing, that would make it more than a reader of the node.
func nodeAPIFiles(e *env) {
	hello, err := e.n.hello(e.Context(), house.NodeAPI)
	if err != nil {
		e.Fatal(err)
	}
	status := procStatus(e, hello.GetPid())
	if status["CapEff"] != strings.Repeat("0", 16) || status["CapBnd"] == "" {
		e.Errorf("capabilities %s", status["CapEff"])
	}
	// Its own folders, and the limits the Go runtime looks at.
	own := []string{filepath.Join(e.n.Run, "nodeapi"), filepath.Join(e.n.State, "nodeapi"), "/sys/fs/cgroup/", "/proc/self/"}
	inherited := openFiles(e, os.Getpid()) // of whoever started the test
	for _, file := range openFiles(e, int(hello.GetPid())) {
		switch {
		case file == os.DevNull, strings.HasSuffix(file, "/nodeapi.log"), slices.Contains(inherited, file):
		case !slices.ContainsFunc(own, func(folder string) bool { return strings.HasPrefix(file, folder) }):
			e.Errorf("nodeapi has %s open", file)
		}
	}
	for _, peer := range harness.ConnectedTo(e, strings.TrimPrefix(e.n.Runtime.Endpoint(), "unix://")) {
		if peer.PID == int(hello.GetPid()) {
			e.Error("nodeapi is connected to the container runtime")
		}
	}
	// The node's keys, wherever they are, and the runtime's socket are out of reach.
	uid, err := strconv.Atoi(strings.Fields(status["Uid"])[0])
	if err != nil {
		e.Fatal(err)
	}
	var groups []uint32
	for _, g := range strings.Fields(status["Groups"]) {
		if gid, err := strconv.Atoi(g); err == nil {
			groups = append(groups, uint32(gid))
		}
	}
	as := func(name string, args ...string) error {
		cmd := exec.CommandContext(e.Context(), name, args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: groups}}
		return cmd.Run()
	}
	kept := 0
	for _, keeper := range []house.Service{house.Config, house.Status} { // the credential is in what they keep
		err := filepath.WalkDir(e.n.paths.StateOf(keeper), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // it went
			}
			kept++
			if as("test", "-r", path) == nil {
				e.Errorf("nodeapi may read %s", path)
			}
			return nil
		})
		if err != nil {
			e.Fatal(err)
		}
	}
	if kept == 0 {
		e.Error("config and status keep nothing: the test sees nothing")
	}
	socket := strings.TrimPrefix(e.n.Runtime.Endpoint(), "unix://")
	if as("test", "-w", socket) == nil {
		e.Errorf("nodeapi may connect to %s", socket)
	}
	if err := as("test", "-r", filepath.Join(e.n.Run, "nodeapi")); err != nil {
		e.Errorf("not even its own folder can be read so: %v", err)
	}
}
