// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

// world is a Server on a socket, in front of a fake runtime with one pod.
type world struct {
	t      *testing.T
	rt     *fakecri.Runtime
	rc     runtimeapi.RuntimeServiceClient
	client podworkerv1.PodWorkerServiceClient
	dir    string
	config *runtimeapi.PodSandboxConfig
	box    string
	// behind: the record is from before the pod's containers were made.
	behind bool
}

// Read implements Pods.
func (w *world) Read(context.Context, *v1.Pod) ([]*runtimeapi.ContainerStatus, error) {
	return w.rt.Containers(), nil
}

// Pod implements Pods with what the runtime says right now, unless the record is behind.
func (w *world) Pod(_ context.Context, namespace, name string) (Pod, bool) {
	if namespace != "default" || name != "web" {
		return Pod{}, false
	}
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	if w.behind {
		return Pod{Spec: spec, Waiting: map[string]string{"c": "ContainerCreating"}}, true
	}
	return Pod{Spec: spec, Statuses: w.rt.Containers()}, true
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, rt: fakecri.Start(t, fakecri.Config{Images: []fakecri.Image{{Ref: "fake/sleep"}}}), dir: t.TempDir()}
	w.rc = runtimeapi.NewRuntimeServiceClient(w.rt.Conn(t))
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: socket, Identities: house.Identities{house.NodeAPI: uint32(os.Geteuid())}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	podworkerv1.RegisterPodWorkerServiceServer(server, NewServer(w, w.rc, clock.RealClock{}, slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.client = podworkerv1.NewPodWorkerServiceClient(conn)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no socket")
		}
	}
	w.config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"},
		LogDirectory: w.dir, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	box, err := w.rc.RunPodSandbox(w.ctx(), &runtimeapi.RunPodSandboxRequest{Config: w.config})
	if err != nil {
		t.Fatal(err)
	}
	w.box = box.GetPodSandboxId()
	return w
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// run starts an instance of container c with a script.
func (w *world) run(attempt uint32, script string) string {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Join(w.dir, "c"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	made, err := w.rc.CreateContainer(w.ctx(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: w.box, SandboxConfig: w.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: "fake/sleep"},
			Command: []string{"sh", "-c", script}, LogPath: fmt.Sprintf("c/%d.log", attempt), Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.rc.StartContainer(w.ctx(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		w.t.Fatal(err)
	}
	return made.GetContainerId()
}

// finished runs an instance to its end.
func (w *world) finished(attempt uint32, script string) {
	w.t.Helper()
	id := w.run(attempt, script)
	over := func() bool {
		for _, s := range w.rt.Containers() {
			if s.GetId() == id {
				return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
			}
		}
		return false
	}
	if err := w.rt.WaitFor(w.ctx(), over); err != nil {
		w.t.Fatal(err)
	}
}

// read reads a whole answer.
func (w *world) read(req *podworkerv1.ContainerLogsRequest) (string, []byte, error) {
	w.t.Helper()
	req.Namespace, req.Pod = "default", "web"
	stream, err := w.client.ContainerLogs(w.ctx(), req)
	if err != nil {
		return "", nil, err
	}
	var text strings.Builder
	var at []byte
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text.String(), at, nil
		}
		if err != nil {
			return text.String(), at, err
		}
		text.Write(answer.GetData())
		at = answer.GetCursor()
	}
}

func ptr[T any](v T) *T { return &v }

// TestTheRecordIsBehind: the log of a container that ended at once is read although the
// pod's record does not show it yet.
func TestTheRecordIsBehind(t *testing.T) {
	w := newWorld(t)
	w.behind = true
	if _, _, err := w.read(&podworkerv1.ContainerLogsRequest{}); err == nil || !strings.Contains(err.Error(), "is waiting to start: ContainerCreating") {
		t.Errorf("before it is there: %v", err)
	}
	w.finished(0, "echo one; exit 3")
	for _, req := range []*podworkerv1.ContainerLogsRequest{{}, {Follow: true}} {
		text, at, err := w.read(req)
		if err != nil || text != "one\n" {
			t.Errorf("%q, %v", text, err)
		}
		if _, _, err := w.read(&podworkerv1.ContainerLogsRequest{After: at}); err != nil {
			t.Errorf("read on: %v", err)
		}
	}
	w.finished(1, "echo two")
	if text, _, err := w.read(&podworkerv1.ContainerLogsRequest{Previous: true}); err != nil || text != "two\n" {
		t.Errorf("the one before the next start: %q, %v", text, err)
	}
}

func TestReadOptions(t *testing.T) {
	w := newWorld(t)
	w.finished(0, "echo old")
	w.finished(1, "echo one; echo two >&2; echo three")
	future := timestamppb.New(time.Now().Add(time.Hour))
	for _, tc := range []struct {
		name string
		req  *podworkerv1.ContainerLogsRequest
		want string
		code codes.Code
	}{
		{"all", &podworkerv1.ContainerLogsRequest{}, "one\ntwo\nthree\n", 0},
		{"by name", &podworkerv1.ContainerLogsRequest{Container: "c"}, "one\ntwo\nthree\n", 0},
		{"previous", &podworkerv1.ContainerLogsRequest{Previous: true}, "old\n", 0},
		{"tail", &podworkerv1.ContainerLogsRequest{TailLines: ptr(int64(1))}, "three\n", 0},
		{"tail of nothing", &podworkerv1.ContainerLogsRequest{TailLines: ptr(int64(0))}, "", 0},
		{"limit", &podworkerv1.ContainerLogsRequest{LimitBytes: ptr(int64(6))}, "one\ntw", 0},
		{"limit at a line's end", &podworkerv1.ContainerLogsRequest{LimitBytes: ptr(int64(4))}, "one\n", 0},
		{"since", &podworkerv1.ContainerLogsRequest{SinceSeconds: ptr(int64(3600))}, "one\ntwo\nthree\n", 0},
		{"since later", &podworkerv1.ContainerLogsRequest{SinceTime: future}, "", 0},
		{"stdout", &podworkerv1.ContainerLogsRequest{Stream: "Stdout"}, "one\nthree\n", 0},
		{"stderr", &podworkerv1.ContainerLogsRequest{Stream: "Stderr"}, "two\n", 0},
		{"follow what has ended", &podworkerv1.ContainerLogsRequest{Follow: true}, "one\ntwo\nthree\n", 0},
		{"no such container", &podworkerv1.ContainerLogsRequest{Container: "x"}, "", codes.NotFound},
		{"both since", &podworkerv1.ContainerLogsRequest{SinceSeconds: ptr(int64(1)), SinceTime: future}, "", codes.InvalidArgument},
		{"bad since", &podworkerv1.ContainerLogsRequest{SinceSeconds: ptr(int64(0))}, "", codes.InvalidArgument},
		{"bad tail", &podworkerv1.ContainerLogsRequest{TailLines: ptr(int64(-1))}, "", codes.InvalidArgument},
		{"bad limit", &podworkerv1.ContainerLogsRequest{LimitBytes: ptr(int64(0))}, "", codes.InvalidArgument},
		{"bad stream", &podworkerv1.ContainerLogsRequest{Stream: "Both"}, "", codes.InvalidArgument},
		{"tail of a stream", &podworkerv1.ContainerLogsRequest{Stream: "Stdout", TailLines: ptr(int64(1))}, "", codes.InvalidArgument},
		{"bad cursor", &podworkerv1.ContainerLogsRequest{After: []byte("x")}, "", codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := w.read(tc.req)
			if got != tc.want || status.Code(err) != tc.code {
				t.Errorf("got %q, %v; want %q, %s", got, err, tc.want, tc.code)
			}
		})
	}
}

func TestUnknownPod(t *testing.T) {
	w := newWorld(t)
	stream, err := w.client.ContainerLogs(w.ctx(), &podworkerv1.ContainerLogsRequest{Namespace: "default", Pod: "nobody"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `pod "nobody" does not exist`) {
		t.Errorf("got %v", err)
	}
}

func TestTimestamps(t *testing.T) {
	w := newWorld(t)
	w.finished(0, "echo one")
	got, _, err := w.read(&podworkerv1.ContainerLogsRequest{Timestamps: true})
	if err != nil {
		t.Fatal(err)
	}
	stamp, rest, _ := strings.Cut(got, " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || rest != "one\n" {
		t.Errorf("got %q: %v", got, err)
	}
}

// follow reads a followed log piece by piece.
type follow struct {
	grpc.ServerStreamingClient[podworkerv1.ContainerLogsResponse]
	t      *testing.T
	text   string
	cursor []byte
}

func (w *world) follow(ctx context.Context, after []byte) *follow {
	w.t.Helper()
	stream, err := w.client.ContainerLogs(ctx, &podworkerv1.ContainerLogsRequest{Namespace: "default", Pod: "web", Follow: true, After: after})
	if err != nil {
		w.t.Fatal(err)
	}
	return &follow{ServerStreamingClient: stream, t: w.t}
}

// until reads until the text so far ends in want.
func (f *follow) until(want string) {
	f.t.Helper()
	for !strings.HasSuffix(f.text, want) {
		answer, err := f.Recv()
		if err != nil {
			f.t.Fatalf("read %q, then %v; want %q", f.text, err, want)
		}
		f.text += string(answer.GetData())
		f.cursor = answer.GetCursor()
	}
}

// watched waits until somebody in this process watches a folder: k8s.io/cri-client reads to
// the end, then begins to watch, and hears of no rotation before that.
func (w *world) watched(dir string) {
	w.t.Helper()
	var is syscall.Stat_t
	if err := syscall.Stat(dir, &is); err != nil {
		w.t.Fatal(err)
	}
	mark := fmt.Sprintf(" ino:%x ", is.Ino)
	for ctx := w.ctx(); ctx.Err() == nil; runtime.Gosched() {
		infos, err := filepath.Glob("/proc/self/fdinfo/*")
		if err != nil {
			w.t.Fatal(err)
		}
		for _, info := range infos {
			if text, err := os.ReadFile(info); err == nil && strings.Contains(string(text), "inotify ") && strings.Contains(string(text), mark) {
				return
			}
		}
	}
	w.t.Fatalf("nobody watches %s", dir)
}

func TestFollowAcrossRotationUntilTheEnd(t *testing.T) {
	w := newWorld(t)
	id := w.run(0, "trap 'exit 0' TERM; echo one; while true; do if test -f /more; then rm /more; echo two; fi; sleep 10ms; done")
	f := w.follow(w.ctx(), nil)
	f.until("one\n")
	log := filepath.Join(w.dir, "c", "0.log")
	w.watched(filepath.Dir(log))
	if err := os.Rename(log, log+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rc.ReopenContainerLog(w.ctx(), &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rc.ExecSync(w.ctx(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"touch", "/more"}}); err != nil {
		t.Fatal(err)
	}
	f.until("two\n")
	if f.text != "one\ntwo\n" {
		t.Errorf("read %q", f.text)
	}
	if _, err := w.rc.StopContainer(w.ctx(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 5}); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := f.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("at the end: %v", err)
		}
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	w := newWorld(t)
	w.run(0, "echo one; sleep infinity")
	ctx, cancel := context.WithCancel(w.ctx())
	f := w.follow(ctx, nil)
	f.until("one\n")
	cancel()
	if _, err := f.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestResume(t *testing.T) {
	w := newWorld(t)
	w.finished(0, "log lines 50")
	whole, _, err := w.read(&podworkerv1.ContainerLogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Wherever a reader stops, it goes on without a gap and without repeating.
	for _, limit := range []int64{1, 2} {
		var text string
		var at []byte
		for range 200 {
			lines := strings.Count(text, "\n")
			next := strings.SplitAfterN(whole[len(text):], "\n", int(limit)+1)
			want := int64(len(strings.Join(next[:min(len(next), int(limit))], "")))
			if want == 0 {
				break
			}
			piece, cursor, err := w.read(&podworkerv1.ContainerLogsRequest{LimitBytes: &want, After: at})
			if err != nil || piece == "" {
				t.Fatalf("after %d lines: %q, %v", lines, piece, err)
			}
			text, at = text+piece, cursor
		}
		if text != whole {
			t.Errorf("read in pieces of %d lines:\n%s\nwant\n%s", limit, text, whole)
		}
	}
	gone := cursor{ID: "gone", Time: time.Now(), Count: 1}
	if _, _, err := w.read(&podworkerv1.ContainerLogsRequest{After: gone.bytes()}); status.Code(err) != codes.NotFound {
		t.Errorf("an instance that is gone: %v", err)
	}
}

func TestPiecesOfLines(t *testing.T) {
	const log = "2026-01-01T00:00:00.000000001Z one\n|2026-01-01T00:00:00.000000001Z tw|o and |a half\n|2026-01-01T00:00:00.000000002Z 2026-01-01T00:00:00.000000009Z three\n"
	run := func(after *cursor) (string, []cursor) {
		var text strings.Builder
		var at []cursor
		l := &lines{limit: -1, after: after, at: cursor{ID: "x"}, out: func(data []byte, c cursor) error {
			text.Write(data)
			at = append(at, c)
			return nil
		}}
		for _, piece := range strings.Split(log, "|") {
			if _, err := (stream{l, true}).Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		return text.String(), at
	}
	whole, at := run(nil)
	if want := "one\ntwo and a half\n2026-01-01T00:00:00.000000009Z three\n"; whole != want {
		t.Fatalf("read %q, want %q", whole, want)
	}
	rests := []string{"two and a half\n", "o and a half\n", "a half\n", "", ""}
	for i, c := range at {
		got, _ := run(&c)
		want := rests[min(i, 3)]
		if i < len(at)-1 {
			want += "2026-01-01T00:00:00.000000009Z three\n"
		}
		if got != want {
			t.Errorf("after piece %d: %q, want %q", i, got, want)
		}
	}
}
