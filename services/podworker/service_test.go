// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/test/fakecri"
)

type volumeServer struct {
	volumev1.UnimplementedVolumeServiceServer
	volumeStandIn
}

func (v volumeServer) Declare(ctx context.Context, req *volumev1.DeclareRequest) (*volumev1.DeclareResponse, error) {
	return v.volumeStandIn.Declare(ctx, req)
}

func (v volumeServer) Withdraw(ctx context.Context, req *volumev1.WithdrawRequest) (*volumev1.WithdrawResponse, error) {
	return v.volumeStandIn.Withdraw(ctx, req)
}

type resourceServer struct {
	resourcev1.UnimplementedResourceServiceServer
	resourceStandIn
}

func (r resourceServer) Admit(ctx context.Context, req *resourcev1.AdmitRequest) (*resourcev1.AdmitResponse, error) {
	return r.resourceStandIn.Admit(ctx, req)
}

func (r resourceServer) Resize(ctx context.Context, req *resourcev1.ResizeRequest) (*resourcev1.ResizeResponse, error) {
	return r.resourceStandIn.Resize(ctx, req)
}

func (r resourceServer) Settle(ctx context.Context, req *resourcev1.SettleRequest) (*resourcev1.SettleResponse, error) {
	return r.resourceStandIn.Settle(ctx, req)
}

func (r resourceServer) Release(ctx context.Context, req *resourcev1.ReleaseRequest) (*resourcev1.ReleaseResponse, error) {
	return r.resourceStandIn.Release(ctx, req)
}

type plegServer struct {
	plegv1.UnimplementedPlegServiceServer
	*plegStandIn
}

func (p plegServer) Refresh(ctx context.Context, req *plegv1.RefreshRequest) (*plegv1.RefreshResponse, error) {
	return p.plegStandIn.Refresh(ctx, req)
}

// house is the neighbours of podworker on their sockets.
func (n *node) house(ctx context.Context, paths house.Paths) (ended *sync.WaitGroup) {
	n.t.Helper()
	ids, err := house.ReadIdentities(paths.Identities(), uint32(os.Geteuid()))
	n.must(err)
	ended = &sync.WaitGroup{}
	for _, s := range []house.Service{house.Config, house.Pleg, house.Prober, house.Volume, house.Resource} {
		server, err := rpc.NewServer(rpc.ServerConfig{Socket: paths.Socket(s), Identities: ids, Log: slog.New(slog.DiscardHandler)})
		n.must(err)
		feeds := feed.NewServer()
		for _, name := range house.Owned(s) {
			if f, ok := n.local[name]; ok {
				feeds.Add(f)
			}
		}
		feeds.Register(server)
		switch s {
		case house.Pleg:
			plegv1.RegisterPlegServiceServer(server, plegServer{plegStandIn: n.pleg})
		case house.Volume:
			volumev1.RegisterVolumeServiceServer(server, volumeServer{volumeStandIn: volumeStandIn{n}})
		case house.Resource:
			resourcev1.RegisterResourceServiceServer(server, resourceServer{resourceStandIn: resourceStandIn{n}})
		}
		ended.Go(func() {
			if err := server.Run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	}
	return ended
}

// process starts podworker as a process does; stop ends it.
func (n *node) process(paths house.Paths) (kit *service.Kit, s *Service, stop func()) {
	n.t.Helper()
	kit, err := service.New(service.Options{Service: house.PodWorker, Paths: paths, Bus: service.BusOff, Log: slog.New(slog.DiscardHandler)})
	n.must(err)
	s, err = New(Config{
		RuntimeEndpoint: n.rt.Endpoint(), RootDir: filepath.Join(n.dir, "kubelet"),
		PodLogsDir: filepath.Join(n.dir, "pods"), LinksDir: filepath.Join(n.dir, "containers"),
	}, Deps{Kit: kit})
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := kit.Run(ctx); err != nil {
			n.t.Error(err)
		}
	}()
	n.states = s.loop.states
	return kit, s, func() { cancel(); <-done }
}

// eventually waits for something that nothing announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited for %s", what)
		}
	}
}

// TestService runs podworker whole, over its sockets and without a bus: it waits
// for neighbours that start later, runs a pod, reads its log, and takes it up
// again after a restart.
func TestService(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	paths := house.Paths{Run: filepath.Join(n.dir, "run"), State: filepath.Join(n.dir, "var")}
	kit, _, stop := n.process(paths)
	if got := kit.Hello().GetHealth(); got != nodev1.Health_HEALTH_STARTING {
		t.Errorf("health %v before the neighbours are there", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := n.house(ctx, paths)
	defer func() { cancel(); ended.Wait() }()
	p := web("a", command("echo hello; sleep infinity"))
	n.desire(p)
	eventually(t, "running", func() bool { return n.running("a") && n.settled(p.UID) })
	eventually(t, "serving", func() bool { return kit.Hello().GetHealth() == nodev1.Health_HEALTH_SERVING })
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(house.PodWorker)})
	n.must(err)
	defer func() { n.must(conn.Close()) }()
	eventually(t, "the log", func() bool {
		text, err := readLog(t.Context(), conn) // refused until the replica of records shows the container
		return err == nil && strings.Contains(text, "hello")
	})

	id := n.rt.Container("a", "web").GetId()
	stop()
	kit, s, stop := n.process(paths)
	defer stop()
	eventually(t, "serving again", func() bool { return kit.Hello().GetHealth() == nodev1.Health_HEALTH_SERVING && n.settled(p.UID) })
	if got := n.rt.Container("a", "web").GetId(); got != id || n.rt.Count(fakecri.Match{Method: "StartContainer"}) != 1 {
		t.Errorf("container %s runs, want %s", got, id)
	}
	if used, ok := s.loop.usedImages(); !ok || !used["fake/sleep"] {
		t.Errorf("used images %v, %t", used, ok)
	}
	if running := s.in.runningLogs(); len(running) != 1 || running[0].ID != id {
		t.Errorf("running logs %v", running)
	}
	n.checkpoints(conn, p.UID)
	// A pod that is taken over is measured once its worker has come to rest.
	eventually(t, "the kubelet's metrics", func() bool {
		families, err := kit.Metrics.Gather()
		n.must(err)
		seen := map[string]bool{}
		for _, f := range families {
			seen[f.GetName()] = true
		}
		return seen["kubelet_active_pods"] && seen["kubelet_working_pods"] && seen["kubelet_pod_worker_duration_seconds"]
	})
}

// checkpoints has a running container's state written, and only that.
func (n *node) checkpoints(conn *grpc.ClientConn, uid types.UID) {
	n.t.Helper()
	client := podworkerv1.NewPodWorkerServiceClient(conn)
	n.must(os.MkdirAll(filepath.Join(n.dir, "kubelet", "checkpoints"), 0o700))
	resp, err := client.Checkpoint(n.t.Context(), &podworkerv1.CheckpointRequest{Uid: string(uid), Container: "web"})
	n.must(err)
	if name := filepath.Base(resp.GetLocation()); !strings.HasPrefix(name, "checkpoint-a_default-web-") {
		n.t.Errorf("archive %s", name)
	}
	_, err = os.Stat(resp.GetLocation())
	n.must(err)
	for _, req := range []*podworkerv1.CheckpointRequest{{Uid: string(uid), Container: "other"}, {Uid: "none", Container: "web"}} {
		if _, err := client.Checkpoint(n.t.Context(), req); !rpc.Is(err, rpc.NotFound) {
			n.t.Errorf("checkpoint of %v: %v", req, err)
		}
	}
}

func readLog(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	stream, err := podworkerv1.NewPodWorkerServiceClient(conn).ContainerLogs(ctx, &podworkerv1.ContainerLogsRequest{Namespace: "default", Pod: "a"})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text.String(), nil
		}
		if err != nil {
			return "", err
		}
		text.Write(part.GetData())
	}
}
