// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
	"github.com/sextant-node/sextant/test/fakecri"
)

const loopback = "127.0.0.1"

// check is for a probe that is answered: it has time enough on any machine.
func check(t *testing.T, p *probe.Prober, handler v1.ProbeHandler, s probe.Subject, want schedule.Result, message string) {
	t.Helper()
	checkIn(t, p, 60, handler, s, want, message)
}

// checkIn is for a probe that has some seconds.
func checkIn(t *testing.T, p *probe.Prober, seconds int32, handler v1.ProbeHandler, s probe.Subject, want schedule.Result, message string) {
	t.Helper()
	got := p.Run(t.Context(), v1.Probe{ProbeHandler: handler, TimeoutSeconds: seconds}, s)
	if got.Result != want || !strings.Contains(got.Message, message) {
		t.Errorf("got %v %q, want %v with %q", got.Result, got.Message, want, message)
	}
}

func portOf(t *testing.T, addr net.Addr) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestHTTP(t *testing.T) {
	stuck := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/code/", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/code/"))
		if err != nil {
			code = 500
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "agent=%s accept=%s host=%s x=%s q=%s", r.UserAgent(), r.Header.Get("Accept"), r.Host, r.Header.Get("X"), r.URL.Query().Get("q"))
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/stuck", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "ok")
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "ok")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	defer close(stuck)
	p := &probe.Prober{UserAgent: "kube-probe/1.36"}
	port := portOf(t, plain.Listener.Addr())
	subject := probe.Subject{PodIP: loopback, Container: &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}}
	get := func(path string, edit func(*v1.HTTPGetAction)) v1.ProbeHandler {
		action := &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))}
		if edit != nil {
			edit(action)
		}
		return v1.ProbeHandler{HTTPGet: action}
	}
	check(t, p, get("/code/200", nil), subject, schedule.Success, "")
	check(t, p, get("/code/399", nil), subject, schedule.Success, "")
	check(t, p, get("/code/400", nil), subject, schedule.Failure, "HTTP probe failed with statuscode: 400")
	check(t, p, get("/code/503", nil), subject, schedule.Failure, "statuscode: 503")
	checkIn(t, p, 1, get("/stuck", nil), subject, schedule.Failure, "deadline exceeded")
	check(t, p, get("/short", nil), subject, schedule.Unknown, "read body: unexpected EOF")
	checkIn(t, p, 1, get("/stream", nil), subject, schedule.Unknown, "read body: context deadline exceeded")
	check(t, p, get("/echo", func(a *v1.HTTPGetAction) {
		a.HTTPHeaders = []v1.HTTPHeader{{Name: "User-Agent"}, {Name: "Accept"}}
	}), subject, schedule.Success, "agent= accept= host=")
	check(t, p, get("/echo?q=1", nil), subject, schedule.Success, "agent=kube-probe/1.36 accept=*/* host=127.0.0.1:"+strconv.Itoa(port)+" x= q=1")
	check(t, p, get("/echo", func(a *v1.HTTPGetAction) {
		a.HTTPHeaders = []v1.HTTPHeader{{Name: "host", Value: "example.org"}, {Name: "X", Value: "1"}, {Name: "User-Agent", Value: "mine"}}
	}), subject, schedule.Success, "agent=mine accept=*/* host=example.org x=1")
	check(t, p, get("/code/200", func(a *v1.HTTPGetAction) { a.Port = intstr.FromString("web") }), subject, schedule.Success, "")
	check(t, p, get("/code/200", func(a *v1.HTTPGetAction) { a.Port = intstr.FromString("no") }), subject, schedule.Unknown, `no port named "no"`)
	check(t, p, get("/code/200", func(a *v1.HTTPGetAction) {
		a.Scheme, a.Port = v1.URISchemeHTTPS, intstr.FromInt32(int32(portOf(t, secure.Listener.Addr())))
	}), subject, schedule.Success, "")
	check(t, p, get("/code/200", nil), probe.Subject{Container: subject.Container}, schedule.Unknown, "no IP")
	check(t, p, get("/code/200", func(a *v1.HTTPGetAction) { a.Host = loopback }), probe.Subject{Container: subject.Container}, schedule.Success, "")

	away := p.Run(t.Context(), v1.Probe{ProbeHandler: get("/away", nil), TimeoutSeconds: 60}, subject)
	if away.Result != schedule.Success || !strings.Contains(away.Warning, "http://elsewhere.invalid/") {
		t.Errorf("redirect to another host: %+v, want success with a warning", away)
	}
}

// TestHTTP2: a server that speaks HTTP/2 alone is probed over it, each time on a connection
// of its own.
func TestHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
		fmt.Fprintf(w, "%s, agent=%s", r.Proto, r.UserAgent())
	}))
	server.EnableHTTP2 = true
	var opened atomic.Int32
	closed := make(chan struct{}, 2)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed <- struct{}{}
		}
	}
	server.StartTLS()
	defer server.Close()
	handler := v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/", Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt32(int32(portOf(t, server.Listener.Addr()))),
	}}
	for range 2 {
		check(t, &probe.Prober{UserAgent: "kube-probe/1.36"}, handler, probe.Subject{PodIP: loopback, Container: &v1.Container{}},
			schedule.Success, "HTTP/2.0, agent=kube-probe/1.36")
	}
	<-closed
	<-closed
	if n := opened.Load(); n != 2 {
		t.Errorf("%d connections for two probes", n)
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, listener.Addr())
	handler := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
	subject := probe.Subject{PodIP: loopback, Container: &v1.Container{}}
	p := &probe.Prober{}
	check(t, p, handler, subject, schedule.Success, "")
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, p, handler, subject, schedule.Failure, "connection refused")
}

func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	server, healthy := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, healthy)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	service := "app"
	handler := v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(portOf(t, listener.Addr())), Service: &service}}
	subject := probe.Subject{PodIP: loopback}
	p := &probe.Prober{}
	check(t, p, handler, subject, schedule.Failure, "NotFound")
	healthy.SetServingStatus(service, healthpb.HealthCheckResponse_NOT_SERVING)
	check(t, p, handler, subject, schedule.Failure, "service unhealthy")
	healthy.SetServingStatus(service, healthpb.HealthCheckResponse_SERVING)
	check(t, p, handler, subject, schedule.Success, "")
}

// notYet closes the first connection, as a server that is about to start.
type notYet struct {
	net.Listener
	first sync.Once
}

func (l *notYet) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.first.Do(func() {
		if err == nil {
			_ = conn.Close()
			conn, err = l.Listener.Accept()
		}
	})
	return conn, err
}

// TestGRPCWaits: a server that takes no connection at first has the timeout of the probe to
// start; one that takes none, or does not answer, has failed by then.
func TestGRPCWaits(t *testing.T) {
	listen := func() (net.Listener, v1.ProbeHandler) {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		return listener, v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(portOf(t, listener.Addr()))}}
	}
	p, subject := &probe.Prober{}, probe.Subject{PodIP: loopback}
	listener, handler := listen()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(&notYet{Listener: listener}) }()
	defer server.Stop()
	check(t, p, handler, subject, schedule.Success, "")

	silent, handler := listen()
	defer silent.Close()
	checkIn(t, p, 1, handler, subject, schedule.Failure, "timeout: failed to connect service")
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	checkIn(t, p, 1, handler, subject, schedule.Failure, "connection refused")

	listener, handler = listen()
	stuck, release := grpc.NewServer(), make(chan struct{})
	healthpb.RegisterHealthServer(stuck, hanging{release: release})
	go func() { _ = stuck.Serve(listener) }()
	defer stuck.Stop()
	defer close(release)
	checkIn(t, p, 1, handler, subject, schedule.Failure, "timeout: health rpc did not complete in time")
}

// hanging is a health service that does not answer.
type hanging struct {
	healthpb.UnimplementedHealthServer
	release chan struct{}
}

func (h hanging) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	<-h.release
	return nil, status.Error(codes.Canceled, "released")
}

func TestExec(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "fake/sleep"}}})
	client := runtimeapi.NewRuntimeServiceClient(rt.Conn(t))
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}, LogDirectory: t.TempDir()}
	sandbox, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "fake/sleep"}, LogPath: "0.log"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: rt.Socket(), Timeout: time.Hour}) // as prober does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	p := &probe.Prober{Runtime: runtimeapi.NewRuntimeServiceClient(conn)}
	subject := probe.Subject{ContainerID: c.GetContainerId()}
	exec := func(command ...string) v1.ProbeHandler {
		return v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}
	}
	check(t, p, exec("true"), subject, schedule.Success, "")
	check(t, p, exec("sh", "-c", "echo no; exit 1"), subject, schedule.Failure, "no")
	checkIn(t, p, 1, exec("sleep", "1000"), subject, schedule.Failure, `command timed out: "sleep 1000" timed out after 1s`)
	check(t, p, exec("true"), probe.Subject{ContainerID: "gone"}, schedule.Unknown, "")
	rt.Fail(fakecri.Match{Method: "ExecSync"}, 2, status.Error(codes.Unknown, "no such process"))
	check(t, p, exec("true"), subject, schedule.Success, "") // at the third try
	rt.Fail(fakecri.Match{Method: "ExecSync"}, 3, status.Error(codes.Unknown, "no such process"))
	check(t, p, exec("true"), subject, schedule.Unknown, "rpc error: code = Unknown desc = no such process") // a kubelet's words
	rt.Fail(fakecri.Match{Method: "ExecSync"}, 1, status.Error(codes.Unavailable, "runtime restarts"))
	check(t, p, exec("true"), subject, schedule.Unknown, "runtime restarts")
	stall := rt.Stall(fakecri.Match{Method: "ExecSync"})
	p.Slack = 10 * time.Millisecond
	checkIn(t, p, 1, exec("true"), subject, schedule.Unknown, "the runtime did not answer")
	stall.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.Run(ctx, v1.Probe{}, subject); got.Result != schedule.Unknown {
		t.Errorf("no handler: %v", got.Result)
	}
}
