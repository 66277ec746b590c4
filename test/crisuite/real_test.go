// SPDX-License-Identifier: Apache-2.0

package crisuite_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sextant-node/sextant/test/compat/seen"
	"github.com/sextant-node/sextant/test/crisuite"
	"github.com/sextant-node/sextant/test/images"
	"github.com/sextant-node/sextant/test/localruntime"
)

var containerd = flag.String("containerd", "",
	`run the suite against a private containerd whose binaries are in this directory, or "PATH" for the installed one; needs root`)

// TestReal is the suite against a containerd of its own:
//
//	go test ./test/crisuite -run TestReal -containerd PATH
func TestReal(t *testing.T) {
	if *containerd == "" {
		t.Skip("no -containerd given: TestReal needs root and a minute")
	}
	bin := *containerd
	if bin == "PATH" {
		bin = ""
	}
	// Not t.TempDir: the path of a Unix socket is short.
	parent, err := os.MkdirTemp("", "crisuite")
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/crisuite%d", os.Getpid()) // another may run beside this one
	cfg := localruntime.Config{Dir: filepath.Join(parent, "rt"), BinDir: bin, CgroupRoots: []string{root}}
	rt, err := localruntime.Ensure(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := localruntime.Teardown(ctx, cfg); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	archive := filepath.Join(t.TempDir(), "pause.tar")
	if err := (images.Builder{Source: "."}).Save(t.Context(), images.Pause, archive); err != nil {
		t.Fatal(err)
	}
	if err := rt.ImportImage(t.Context(), archive, images.Pause); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		var with seen.Notes
		with.Add("containerd " + rt.Version().String())
		if err := with.Write("crisuite", seen.Commit("."), ""); err != nil {
			t.Error(err)
		}
	})
	served := serveImages(t)
	version := rt.Version()
	modern := version.Major >= 2
	crisuite.Run(t, crisuite.Target{
		Conn: func(t testing.TB) grpc.ClientConnInterface {
			conn, err := localruntime.Dial(strings.TrimPrefix(rt.Endpoint(), "unix://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		},
		Images: served,
		Features: crisuite.Features{
			Events: modern || version.Minor >= 7, WholeEvents: modern, EveryListener: modern, RuntimeConfig: modern, ImageID: modern, Streams: modern,
		},
		CgroupParent: root,
		LeaveTask:    func(t testing.TB, id string) { leaveTask(t, strings.TrimPrefix(rt.Endpoint(), "unix://"), id) },
		Interrupt: func(t testing.TB, during func()) {
			if err := syscall.Kill(rt.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			during()
			// Ensure replaces a daemon that is gone.
			if rt, err = localruntime.Ensure(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// leaveTask makes a container's task with containerd's own API, as StartContainer does before
// it starts it.
func leaveTask(t testing.TB, socket, id string) {
	t.Helper()
	conn, err := localruntime.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	c, err := containers.NewContainersClient(conn).Get(ctx, &containers.GetContainerRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	root, err := snapshots.NewSnapshotsClient(conn).Mounts(ctx, &snapshots.MountsRequest{
		Snapshotter: c.GetContainer().GetSnapshotter(), Key: c.GetContainer().GetSnapshotKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.NewTasksClient(conn).Create(ctx, &tasks.CreateTaskRequest{ContainerID: id, Rootfs: root.GetMounts()}); err != nil {
		t.Fatal(err)
	}
}
