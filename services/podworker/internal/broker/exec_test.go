// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

// proberUID is prober's where the test is root, which is the operator always.
const proberUID = 64777

// asProber is a client that is prober and nothing else.
func asProber(t *testing.T, rt string, mayProbe func(context.Context, runtimeapi.RuntimeServiceClient, string, []string) error) (*Broker, runtimeapi.RuntimeServiceClient) {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		uid = proberUID
	}
	// The test's own folders are for its uid only.
	public, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(public) })
	if err := os.Chmod(public, 0o755); err != nil {
		t.Fatal(err)
	}
	b, _ := serveAt(t, Config{RuntimeEndpoint: rt, Socket: filepath.Join(public, "cri.sock")},
		Deps{Identities: house.Identities{house.Prober: uint32(uid)}, MayProbe: mayProbe})
	conn, err := grpc.NewClient("unix:"+b.cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialAs(ctx, uid, b.cfg.Socket) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return b, runtimeapi.NewRuntimeServiceClient(conn)
}

// dialAs connects from a thread that has the uid, and ends with it.
func dialAs(ctx context.Context, uid int, socket string) (conn net.Conn, err error) {
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread() // for ever: the thread is not used again
		if uid != os.Geteuid() {
			if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
				err = e
				return
			}
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
	})
	thread.Wait()
	return conn, err
}

func TestProberRunsWhatIsAProbe(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	id := running(t, rt)
	var asked [][]string
	known := false
	_, rc := asProber(t, rt.Endpoint(), func(_ context.Context, _ runtimeapi.RuntimeServiceClient, container string, command []string) error {
		asked = append(asked, append([]string{container}, command...))
		switch {
		case !known:
			return rpc.Unavailable.Errorf("not known yet")
		case container != id || !slices.Equal(command, []string{"echo", "well"}):
			return rpc.Denied.Errorf("no probe")
		}
		return nil
	})
	for _, test := range []struct {
		known   bool
		command []string
		want    codes.Code
	}{
		{false, []string{"echo", "well"}, codes.Unavailable},
		{true, []string{"echo", "well"}, codes.OK},
		{true, []string{"echo", "ill"}, codes.PermissionDenied},
		{true, nil, codes.PermissionDenied},
	} {
		rt.ResetCalls()
		known, asked = test.known, nil
		resp, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: test.command, Timeout: 60})
		if status.Code(err) != test.want {
			t.Errorf("%q: %v, want %s", test.command, err, test.want)
		}
		if err == nil && string(resp.GetStdout()) != "well\n" {
			t.Errorf("answer %v", resp)
		}
		if reached := rt.Count(fakecri.Match{}) > 0; reached != (test.want == codes.OK) {
			t.Errorf("%q: the runtime was reached: %t", test.command, reached)
		}
		if len(asked) != 1 || !slices.Equal(asked[0], append([]string{id}, test.command...)) {
			t.Errorf("asked for %q", asked)
		}
	}
}

func TestProberRunsNothingUnasked(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	_, rc := asProber(t, rt.Endpoint(), nil)
	_, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "c", Cmd: []string{"true"}})
	if status.Code(err) != codes.PermissionDenied || rt.Count(fakecri.Match{}) != 0 {
		t.Errorf("%v after %d calls, want PermissionDenied", err, rt.Count(fakecri.Match{}))
	}
}

// loud is a runtime whose commands say as many zeros as their container is called by;
// all that say the same share one answer, so that a test's memory is the broker's.
func loud(t *testing.T, sizes map[string]int) (endpoint string) {
	t.Helper()
	answers := map[string]*frame{}
	for container, size := range sizes {
		data, err := proto.Marshal(&runtimeapi.ExecSyncResponse{Stdout: make([]byte, size), Stderr: []byte("end"), ExitCode: 7})
		if err != nil {
			t.Fatal(err)
		}
		answers[container] = &frame{data}
	}
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "loud.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxSendMsgSize(rpc.MaxMessage), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		var request frame
		var r runtimeapi.ExecSyncRequest
		if err := errors.Join(in.RecvMsg(&request), proto.Unmarshal(request.data, &r)); err != nil {
			return err
		}
		return in.SendMsg(answers[r.GetContainerId()])
	}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func anyProbe(context.Context, runtimeapi.RuntimeServiceClient, string, []string) error { return nil }

func TestOutputOfProbesAndHooksIsCut(t *testing.T) {
	endpoint := loud(t, map[string]int{"little": 5, "exact": 10 << 10, "much": 1 << 20, "most": maxAnswer - 64, "too much": maxAnswer})
	b, prober := asProber(t, endpoint, anyProbe)
	for name, rc := range map[string]runtimeapi.RuntimeServiceClient{"prober": prober, "hooks": b.Runtime()} {
		for container, want := range map[string]int{"little": 5, "exact": 10 << 10, "much": probeOutput, "most": probeOutput} {
			resp, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: container})
			if err != nil || len(resp.GetStdout()) != want || string(resp.GetStderr()) != "end" || resp.GetExitCode() != 7 {
				t.Errorf("%s, %s: %d bytes, %q, %d, %v; want %d bytes", name, container, len(resp.GetStdout()), resp.GetStderr(), resp.GetExitCode(), err, want)
			}
		}
		if _, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "too much"}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v, want ResourceExhausted", name, err)
		}
	}
}

// TestFailedCommandsAreErrors: an exit code counts as an error of the call, as in a
// kubelet, whoever called and however long the output is.
func TestFailedCommandsAreErrors(t *testing.T) {
	b, metrics := serve(t, Config{RuntimeEndpoint: loud(t, map[string]int{"c": 1 << 20})}, everybody())
	for _, rc := range []runtimeapi.RuntimeServiceClient{runtimeapi.NewRuntimeServiceClient(client(t, b)), b.Runtime()} {
		if resp, err := rc.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "c"}); err != nil || resp.GetExitCode() != 7 {
			t.Errorf("%v, %v", resp.GetExitCode(), err)
		}
	}
	measure.Expect(t, metrics, map[string]float64{
		`kubelet_runtime_operations_total{operation_type="exec_sync"}`: 2, `kubelet_runtime_operations_errors_total{operation_type="exec_sync"}`: 2,
	})
	rt := fakecri.Start(t, fakecri.Config{})
	b, metrics = serve(t, Config{RuntimeEndpoint: rt.Endpoint()}, everybody())
	id := running(t, rt)
	if _, err := b.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "well"}, Timeout: 60}); err != nil {
		t.Error(err)
	}
	measure.Expect(t, metrics, map[string]float64{
		`kubelet_runtime_operations_total{operation_type="exec_sync"}`: 1, `kubelet_runtime_operations_errors_total{operation_type="exec_sync"}`: math.NaN(),
	})
}

// TestACommandThatIsNotAnswered: the caller of a command with a time hears that the runtime does not
// answer, runtimeRequestTimeout after that time.
func TestACommandThatIsNotAnswered(t *testing.T) {
	rt := fakecri.Start(t, fakecri.Config{})
	b, _ := serve(t, Config{RuntimeEndpoint: rt.Endpoint(), Timeout: func() time.Duration { return 100 * time.Millisecond }}, everybody())
	id := running(t, rt)
	stall := rt.Stall(fakecri.Match{Method: "ExecSync"})
	defer stall.Release()
	_, err := runtimeapi.NewRuntimeServiceClient(client(t, b)).ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 1})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), errNoAnswer.Error()) {
		t.Errorf("%v, want Unavailable", err)
	}
	if stall.Caught() != 1 {
		t.Errorf("the runtime was asked %d times", stall.Caught())
	}
}

func TestOutputOfCommandsIsWhole(t *testing.T) {
	const size = maxAnswer - 64
	b, _ := serve(t, Config{RuntimeEndpoint: loud(t, map[string]int{"c": size})}, everybody())
	resp, err := runtimeapi.NewRuntimeServiceClient(client(t, b)).ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "c"})
	if err != nil || !bytes.Equal(resp.GetStdout(), make([]byte, size)) {
		t.Errorf("%d bytes, %v", len(resp.GetStdout()), err)
	}
}

// TestLoudProbesTakeNoMemory: of many answers at once a few are held, and a probe that
// says little is answered beside them.
func TestLoudProbesTakeNoMemory(t *testing.T) {
	const calls, size, limit = 32, 16_000_000, 256 << 20
	_, rc := asProber(t, loud(t, map[string]int{"loud": size, "quiet": 5}), anyProbe)
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	ended := make(chan error, calls+1)
	before := live()
	for range calls {
		go func() {
			_, err := rc.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: "loud"})
			ended <- err
		}()
	}
	go func() {
		_, err := rc.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: "quiet"})
		ended <- err
	}()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var most uint64
	for left := calls + 1; left > 0; {
		select {
		case err := <-ended:
			left--
			if err != nil {
				t.Error(err)
			}
		case <-look.C:
			most = max(most, live())
		}
	}
	t.Logf("%d MiB before, %d MiB at most", before>>20, most>>20)
	if most == 0 || most > before+limit {
		t.Errorf("%d MiB beside %d MiB before, want %d at most", most>>20, before>>20, limit>>20)
	}
}

// live is how much memory is in use, in bytes.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
