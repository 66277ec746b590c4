// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

var quiet = slog.New(slog.DiscardHandler)

// node answers Hello as a test tells it to.
type node struct {
	nodev1.UnimplementedNodeServiceServer
	plegv1.UnimplementedPlegServiceServer
	hello func(context.Context) error
}

func (n *node) Hello(ctx context.Context, req *nodev1.HelloRequest) (*nodev1.HelloResponse, error) {
	return &nodev1.HelloResponse{Service: "here", HealthReason: req.GetService() + " caf\xe9"}, n.hello(ctx)
}

func everybody(uid int) house.Identities {
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = uint32(uid)
	}
	return ids
}

// serve runs a server and returns its socket.
func serve(t *testing.T, ids house.Identities, hello func(context.Context) error) string {
	t.Helper()
	return serveAndLog(t, quiet, ids, hello)
}

func serveAndLog(t *testing.T, log *slog.Logger, ids house.Identities, hello func(context.Context) error) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // strangers must get as far as the socket
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "s")
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: socket, Identities: ids, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{hello: hello}
	nodev1.RegisterNodeServiceServer(server, n)
	plegv1.RegisterPlegServiceServer(server, n)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- server.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(socket); err == nil { // it appears when it listens
			return socket
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func dial(t *testing.T, cfg rpc.ClientConfig) nodev1.NodeServiceClient {
	t.Helper()
	cfg.Patient = true
	conn, err := rpc.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return nodev1.NewNodeServiceClient(conn)
}

// TestTextThatIsNotUTF8: neither a request nor an answer is refused because of it.
func TestTextThatIsNotUTF8(t *testing.T) {
	client := dial(t, rpc.ClientConfig{Socket: serve(t, everybody(os.Geteuid()), func(context.Context) error { return nil })})
	resp, err := client.Hello(t.Context(), &nodev1.HelloRequest{Service: "\xff end"})
	if want := "\uFFFD end caf\uFFFD"; err != nil || resp.GetHealthReason() != want {
		t.Errorf("answer %q, %v; want %q", resp.GetHealthReason(), err, want)
	}
}

func TestKindsCrossTheSocket(t *testing.T) {
	var answer error
	client := dial(t, rpc.ClientConfig{Socket: serve(t, everybody(os.Geteuid()), func(context.Context) error { return answer })})
	base := errors.New("cause")
	for _, kind := range []rpc.Kind{rpc.Internal, rpc.Invalid, rpc.NotFound, rpc.Denied, rpc.Conflict, rpc.Unavailable} {
		answer = kind.Errorf("it is %s: %w", kind, base)
		_, err := client.Hello(t.Context(), nil)
		if got := rpc.KindOf(err); got != kind {
			t.Errorf("%v arrived as %v", kind, got)
		}
		if want := fmt.Sprintf("it is %s: cause", kind); err == nil || err.Error() != want {
			t.Errorf("text %q, want %q", err, want)
		}
	}
	answer = fmt.Errorf("wrapped: %w", rpc.NotFound.Errorf("gone"))
	if _, err := client.Hello(t.Context(), nil); !rpc.Is(err, rpc.NotFound) {
		t.Errorf("a wrapped kind arrived as %v", rpc.KindOf(err))
	}
	answer = status.Error(codes.AlreadyExists, "the runtime's own")
	if _, err := client.Hello(t.Context(), nil); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a status of its own arrived as %v", status.Code(err))
	}
	answer = nil
	if _, err := client.Hello(t.Context(), nil); err != nil {
		t.Errorf("no error arrived as %v", err)
	}
}

func TestAPanicIsAnErrorOfOneCall(t *testing.T) {
	panics := true
	client := dial(t, rpc.ClientConfig{Socket: serve(t, everybody(os.Geteuid()), func(context.Context) error {
		if panics {
			panic("boom")
		}
		return nil
	})})
	if _, err := client.Hello(t.Context(), nil); !rpc.Is(err, rpc.Internal) {
		t.Errorf("panic arrived as %v", err)
	}
	panics = false
	if _, err := client.Hello(t.Context(), nil); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestACallHasADeadline(t *testing.T) {
	client := dial(t, rpc.ClientConfig{Timeout: 50 * time.Millisecond, Socket: serve(t, everybody(os.Geteuid()), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})})
	if _, err := client.Hello(t.Context(), nil); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("a call without end: %v, want unavailable", err)
	}
}

func TestNobodyThereIsUnavailable(t *testing.T) {
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: filepath.Join(t.TempDir(), "nobody")})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := nodev1.NewNodeServiceClient(conn).Hello(t.Context(), nil); !rpc.Is(err, rpc.Unavailable) || !rpc.Away(err) {
		t.Errorf("got %v, want that the peer is away", err)
	}
}

// TestAwayIsOfThePeer: what a peer answers is its word, also that somebody else is not there.
func TestAwayIsOfThePeer(t *testing.T) {
	client := dial(t, rpc.ClientConfig{Socket: serve(t, everybody(os.Geteuid()), func(context.Context) error {
		return status.Error(codes.Unavailable, "the runtime is not there")
	})})
	if _, err := client.Hello(t.Context(), nil); !rpc.Is(err, rpc.Unavailable) || rpc.Away(err) {
		t.Errorf("a peer answered, and is taken for away: %v", err)
	}
}

// TestAPeerThatDiesIsAway: the connection breaks before the answer.
func TestAPeerThatDiesIsAway(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	nodev1.RegisterNodeServiceServer(server, &node{hello: func(ctx context.Context) error {
		go server.Stop()
		<-ctx.Done()
		return ctx.Err()
	}})
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	_, err = dial(t, rpc.ClientConfig{Socket: socket}).Hello(t.Context(), nil)
	if !rpc.Is(err, rpc.Unavailable) || !rpc.Away(err) {
		t.Errorf("got %v, want that the peer is away", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMethodsAreGrantedByName(t *testing.T) {
	ids := everybody(1) // nobody here
	ids[house.Prober] = uint32(os.Geteuid())
	socket := serve(t, ids, func(context.Context) error { return nil })
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := nodev1.NewNodeServiceClient(conn).Hello(t.Context(), nil); err != nil {
		t.Errorf("hello: %v", err)
	}
	if _, err := plegv1.NewPlegServiceClient(conn).Refresh(t.Context(), nil); !rpc.Is(err, rpc.Denied) {
		t.Errorf("refresh by prober: %v, want denied", err)
	}
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// TestWrongUIDIsRefused runs this test's program as another user, who then tries
// the socket.
func TestWrongUIDIsRefused(t *testing.T) {
	const env = "RPC_TEST_SOCKET"
	if socket := os.Getenv(env); socket != "" {
		conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, err = nodev1.NewNodeServiceClient(conn).Hello(t.Context(), nil)
		if err == nil {
			t.Fatal("a stranger was answered")
		}
		fmt.Println("refused:", rpc.KindOf(err))
		for range 300 {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Read(make([]byte, 1)) // the server closes it
			_ = conn.Close()
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	called, began := false, time.Now()
	var written journal
	log := slog.New(slog.NewTextHandler(&written, nil))
	socket := serveAndLog(t, log, everybody(4711), func(context.Context) error { called = true; return nil })
	dial(t, rpc.ClientConfig{Socket: socket}).Hello(t.Context(), nil) // only waits until it listens
	if !called {
		t.Fatal("root, the operator, was refused")
	}
	called = false
	exe := filepath.Join(filepath.Dir(socket), "test")
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestWrongUIDIsRefused$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+socket)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4712, Gid: 4712}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if called {
		t.Errorf("the call of a stranger ran\n%s", out)
	}
	minutes := int(time.Since(began)/time.Minute) + 1
	if n := strings.Count(written.String(), "peer refused"); n == 0 || n > minutes {
		t.Errorf("%d lines about a stranger in %d minutes:\n%s", n, minutes, written.String())
	}
}

// TestGarbage: whatever comes in on a socket, the next caller is served.
func TestGarbage(t *testing.T) {
	socket := serve(t, everybody(os.Geteuid()), func(context.Context) error { return nil })
	client := dial(t, rpc.ClientConfig{Socket: socket})
	if _, err := client.Hello(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		junk := make([]byte, r.IntN(4096))
		for j := range junk {
			junk[j] = byte(r.Uint32())
		}
		if i%2 == 0 { // past the preface, into the frames
			junk = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), junk...)
		}
		_, _ = conn.Write(junk) // the server may close first
		if unix, ok := conn.(*net.UnixConn); ok {
			_ = unix.CloseWrite()
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
	if _, err := client.Hello(t.Context(), nil); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := rpc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := rpc.Listen(path) // the first one's process was killed
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the new socket does not answer: %v", err)
	}
	_ = conn.Close()
}
