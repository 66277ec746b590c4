// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/test/fakecri"
)

const patienceOfTests = 2 * time.Minute

// everybody lets the uid of the test speak for every service.
func everybody() house.Identities {
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = uint32(os.Geteuid())
	}
	return ids
}

// serve runs a broker in front of a runtime's endpoint until the test ends.
func serve(t *testing.T, cfg Config, ids house.Identities, reapers ...Reaper) (*Broker, *prometheus.Registry) {
	t.Helper()
	cfg.Socket = filepath.Join(t.TempDir(), "cri.sock")
	deps := Deps{Identities: ids}
	if len(reapers) > 0 {
		deps.Reaper = reapers[0]
	}
	return serveAt(t, cfg, deps)
}

// serveAt is serve with the socket and the rest of what the broker works with.
func serveAt(t *testing.T, cfg Config, deps Deps) (*Broker, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	deps.Log, deps.Metrics = slog.New(slog.DiscardHandler), reg
	b, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("broker ended with %v", err)
		}
	})
	select {
	case <-b.server.Listening():
	case err := <-ended:
		t.Fatalf("broker ended: %v", err)
	}
	return b, reg
}

// becomes waits until the broker's connection to the runtime is ready, or is not.
func becomes(t *testing.T, b *Broker, ready bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	for state := b.runtime.GetState(); (state == connectivity.Ready) != ready; state = b.runtime.GetState() {
		if !b.runtime.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection to the runtime stays %s", state)
		}
	}
}

func client(t *testing.T, b *Broker) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: b.cfg.Socket, Timeout: patienceOfTests})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func sandboxRequest(name string) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}}
}

func TestForwardsCallsAndCodes(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	ctx := t.Context()

	made, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest("web"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := rc.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetItems()) != 1 || list.GetItems()[0].GetId() != made.GetPodSandboxId() {
		t.Fatalf("listed %v, want the sandbox %s", list.GetItems(), made.GetPodSandboxId())
	}

	want := status.New(codes.ResourceExhausted, "no more of it")
	rt.Fail(fakecri.Match{Method: "PodSandboxStatus"}, 1, want.Err())
	_, err = rc.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: made.GetPodSandboxId()})
	if s, _ := status.FromError(err); s.Code() != want.Code() || s.Message() != want.Message() {
		t.Errorf("got %v %q, want the runtime's %v %q", s.Code(), s.Message(), want.Code(), want.Message())
	}
}

func TestForwardsEventStreams(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))

	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	events, err := rc.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// An event before the runtime has opened the stream is lost, so make more
	// until one arrives.
	go func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := b.Runtime().RunPodSandbox(ctx, sandboxRequest(fmt.Sprint("web", i))); err != nil {
				return
			}
		}
	}()
	event, err := events.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if event.GetContainerId() == "" {
		t.Errorf("event without an id: %v", event)
	}
}

func TestStreamOfARuntimeWithoutEvents(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{Flavor: fakecri.Containerd16})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	events, err := runtimeapi.NewRuntimeServiceClient(client(t, b)).GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = events.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

func TestAuthorizesEachMethod(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	conn := client(t, b)
	for _, tc := range []struct {
		method string
		want   codes.Code
	}{
		{"/runtime.v1.RuntimeService/ListContainers", codes.OK},
		{"/runtime.v1.RuntimeService/StopContainer", codes.PermissionDenied},
		{"/runtime.v1.RuntimeService/RunPodSandbox", codes.PermissionDenied},
		{"/runtime.v1.ImageService/RemoveImage", codes.PermissionDenied},
		{"/runtime.v1.RuntimeService/Nonsense", codes.PermissionDenied},
		// Granted to all by the house, but nothing the broker has.
		{"/grpc.health.v1.Health/Check", codes.Unimplemented},
	} {
		t.Run(tc.method, func(t *testing.T) {
			rt.ResetCalls()
			err := conn.Invoke(t.Context(), tc.method, &runtimeapi.ListContainersRequest{}, &runtimeapi.ListContainersResponse{})
			if status.Code(err) != tc.want {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if reached := rt.Count(fakecri.Match{}); (reached > 0) != (tc.want == codes.OK) {
				t.Errorf("the runtime saw %d calls", reached)
			}
		})
	}
}

// Environment of the process that plays a stranger.
const strangerEnv = "BROKER_TEST_STRANGER_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(strangerEnv); socket != "" {
		fmt.Print(callAsStranger(socket))
		return
	}
	os.Exit(m.Run())
}

func callAsStranger(socket string) string {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Timeout: patienceOfTests})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(context.Background(), &runtimeapi.VersionRequest{})
	return status.Code(err).String()
}

func TestRefusesStrangers(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	if os.Geteuid() != 0 {
		b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, house.Identities{})
		if got := callAsStranger(b.cfg.Socket); got != codes.Unavailable.String() {
			t.Errorf("a stranger got %s, want no connection", got)
		}
		return
	}
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	// The test's folders are for root only; a stranger needs a way to the socket.
	public, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(public) })
	socket, self := filepath.Join(public, "cri.sock"), filepath.Join(public, "stranger")
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(public, 0o755), os.WriteFile(self, binary, 0o755), os.Chmod(self, 0o755), os.Link(b.cfg.Socket, socket)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), strangerEnv+"="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := string(out); got != codes.Unavailable.String() {
		t.Errorf("a stranger got %s, want no connection", got)
	}
	if n := rt.Count(fakecri.Match{}); n != 0 {
		t.Errorf("the runtime saw %d calls of a stranger", n)
	}
}

func TestRuntimeAwayAndBack(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	version := func() error {
		_, err := rc.Version(t.Context(), &runtimeapi.VersionRequest{})
		return err
	}
	if err := version(); err != nil {
		t.Fatal(err)
	}
	rt.Down()
	becomes(t, b, false)
	if err := version(); status.Code(err) != codes.Unavailable {
		t.Errorf("runtime away: %v, want Unavailable", err)
	}
	rt.Up()
	becomes(t, b, true)
	if err := version(); err != nil {
		t.Errorf("runtime back: %v", err)
	}
}

func TestServesBeforeTheRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	b, _ := serve(t, Config{RuntimeEndpoint: "unix://" + socket}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	if _, err := rc.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	fakecri.Start(t, fakecri.Config{Socket: socket})
	becomes(t, b, true)
	if _, err := rc.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
		t.Error(err)
	}
}

func TestStalledCallHarmsNobody(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	stall := rt.Stall(fakecri.Match{Method: "ListContainers"})
	const stuck = 200 // more than the usual limit on streams of one connection
	ended := make(chan error, stuck)
	for range stuck {
		go func() {
			_, err := rc.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			ended <- err
		}()
	}
	if err := stall.Wait(ctx, stuck); err != nil {
		t.Fatalf("%d of %d calls arrived: %v", stall.Caught(), stuck, err)
	}
	if _, err := rc.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil {
		t.Errorf("another call beside the stalled ones: %v", err)
	}
	stall.Release()
	for range stuck {
		if err := <-ended; err != nil {
			t.Errorf("after the release: %v", err)
		}
	}
}

func TestTimeoutIsTheConfigured(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Timeout: func() time.Duration { return 20 * time.Millisecond }}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	rt.Stall(fakecri.Match{Method: "ListContainers"})
	if _, err := rc.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("forwarded: %v, want DeadlineExceeded", err)
	}
	if _, err := b.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("in process: %v, want DeadlineExceeded", err)
	}
}

func TestGarbageOnTheSocket(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	for _, garbage := range []string{"", "\x00\x01\x02", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 9000), strings.Repeat("x", 1<<20)} {
		conn, err := net.Dial("unix", b.cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage) // the broker may hang up in the middle
		_ = conn.Close()
	}
	// A request that is no protobuf is the runtime's to refuse.
	conn := client(t, b)
	err := conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/ListContainers", &frame{[]byte("\xff\xff\xff")}, &frame{}, grpc.ForceCodecV2(rawCodec{}))
	if status.Code(err) != codes.Internal {
		t.Errorf("garbage request: %v, want the runtime's Internal", err)
	}
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

func TestSeparateImageEndpoint(t *testing.T) {
	rt, images := fakecri.Start(t, fakecri.Config{}), fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), ImageEndpoint: images.Socket()}, everybody())
	conn := client(t, b)
	if _, err := runtimeapi.NewImageServiceClient(conn).ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Images().ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Fatal(err)
	}
	if rt.Count(fakecri.Match{Method: "ListImages"}) != 0 || images.Count(fakecri.Match{Method: "ListImages"}) != 2 {
		t.Error("images were asked of the wrong service")
	}
}

func TestMetricsCount(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, reg := serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	rc := runtimeapi.NewRuntimeServiceClient(client(t, b))
	rt.Fail(fakecri.Match{Method: "ListPodSandbox"}, 1, status.Error(codes.Internal, "no"))
	_, _ = rc.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if _, err := b.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "operation_type" && l.GetValue() == "list_podsandbox" {
					got[f.GetName()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	if got["kubelet_runtime_operations_total"] != 2 || got["kubelet_runtime_operations_errors_total"] != 1 || got["kubelet_runtime_operations_duration_seconds"] != 2 {
		t.Errorf("got %v, want 2 operations, 1 error, 2 durations", got)
	}
}

func TestOperationNames(t *testing.T) {
	for name, want := range map[string]string{
		"/runtime.v1.RuntimeService/RunPodSandbox":            "run_podsandbox",
		"/runtime.v1.RuntimeService/UpdateContainerResources": "update_container",
		"/runtime.v1.RuntimeService/ExecSync":                 "exec_sync",
		"/runtime.v1.RuntimeService/GetContainerEvents":       "get_container_events",
		"/runtime.v1.RuntimeService/RuntimeConfig":            "runtime_config",
		"/runtime.v1.ImageService/ImageFsInfo":                "image_fs_info",
	} {
		if got := methods[name].operation; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, tc := range []struct{ give, want string }{
		{"unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"},
		{"/run/crio.sock", "/run/crio.sock"},
		{"tcp://localhost:1", ""},
		{"", ""},
	} {
		got, err := endpoint("container-runtime-endpoint", tc.give)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q, %v", tc.give, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "container-runtime-endpoint") {
			t.Errorf("%q: error does not name the field: %v", tc.give, err)
		}
	}
}
