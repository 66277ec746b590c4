// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

func newKit(t *testing.T, paths house.Paths, name house.Service) *service.Kit {
	t.Helper()
	k, err := service.New(service.Options{Service: name, Paths: paths, Bus: service.BusOff, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func run(t *testing.T, k *service.Kit) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

func hello(t *testing.T, paths house.Paths, name house.Service, protocol uint32) (*nodev1.HelloResponse, error) {
	t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: paths.Socket(name), Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return nodev1.NewNodeServiceClient(conn).Hello(t.Context(), &nodev1.HelloRequest{Service: "test", Protocol: protocol})
}

func TestHello(t *testing.T) {
	paths := house.Paths{Run: t.TempDir(), State: t.TempDir()}
	k := newKit(t, paths, house.Pleg)
	records := service.Owner(k, house.PlegPods)
	run(t, k)
	k.Waiting("the runtime")
	resp, err := hello(t, paths, house.Pleg, house.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetService() != "pleg" || resp.GetPid() != int64(os.Getpid()) || resp.GetEpoch() != k.Epoch ||
		resp.GetHealth() != nodev1.Health_HEALTH_STARTING || resp.GetHealthReason() != "the runtime" {
		t.Errorf("hello %v", resp)
	}
	k.Serving()
	if _, err := records.Set(t.Context(), "a", &plegv1.PodRecord{Uid: "a"}); err != nil {
		t.Fatal(err)
	}
	if resp, err = hello(t, paths, house.Pleg, house.Protocol-1); err != nil {
		t.Fatalf("a neighbour one version behind: %v", err)
	}
	if resp.GetHealth() != nodev1.Health_HEALTH_SERVING || len(resp.GetFeeds()) != 1 || resp.GetFeeds()[0].GetItems() != 1 {
		t.Errorf("hello %v", resp)
	}
	if _, err := hello(t, paths, house.Pleg, house.Protocol+7); !rpc.Is(err, rpc.Conflict) {
		t.Errorf("a protocol far away: %v, want conflict", err)
	}
}

// TestAReaderOutlivesItsOwner: a replica keeps what it had while the owner is
// away, and follows the next one.
func TestAReaderOutlivesItsOwner(t *testing.T) {
	paths := house.Paths{Run: t.TempDir(), State: t.TempDir()}
	changed := make(chan struct{}, 1)
	reader := newKit(t, paths, house.Prober)
	replica, err := service.Replica(reader, house.PlegPods, feed.Whole[*plegv1.PodRecord])
	if err != nil {
		t.Fatal(err)
	}
	replica.Watch(func([]string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	run(t, reader)
	until := func(what string, ok func() bool) {
		t.Helper()
		limit := time.After(time.Minute)
		for !ok() {
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("never: %s", what)
			}
		}
	}
	start := func(name string) (stop func()) {
		owner := newKit(t, paths, house.Pleg)
		records := service.Owner(owner, house.PlegPods)
		if _, err := records.Set(t.Context(), "a", &plegv1.PodRecord{Uid: "a", Name: name}); err != nil {
			t.Fatal(err)
		}
		records.SetComplete(t.Context(), true)
		return run(t, owner)
	}
	has := func(name string) func() bool {
		return func() bool { r, ok := replica.Get("a"); return ok && r.GetName() == name }
	}
	stop := start("first")
	until("the first owner's item", has("first"))
	stop()
	if !has("first")() {
		t.Error("the owner's end emptied the replica")
	}
	start("second")
	until("the second owner's item", has("second"))
	state := reader.Hello()
	if len(state.GetMirrors()) != 1 || !state.GetMirrors()[0].GetComplete() || proto.Size(state) == 0 {
		t.Errorf("hello of the reader: %v", state)
	}
}

func TestDebugSocket(t *testing.T) {
	paths := house.Paths{Run: t.TempDir(), State: t.TempDir()}
	k := newKit(t, paths, house.Pleg)
	run(t, k)
	if _, err := hello(t, paths, house.Pleg, house.Protocol); err != nil {
		t.Fatal(err)
	}
	if now := service.SinceBoot(); k.AfterBoot() <= 0 || k.AfterBoot() > now {
		t.Errorf("started %s after the boot, which is %s ago", k.AfterBoot(), now)
	}
	// That the service answers says nothing of its other socket.
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		for again := time.NewTicker(time.Millisecond); ; {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", paths.DebugSocket(house.Pleg))
			if err == nil {
				return conn, nil
			}
			select {
			case <-ctx.Done():
				return nil, err
			case <-again.C:
			}
		}
	}}}
	for path, want := range map[string]string{"/metrics": "go_sched_latencies_seconds_bucket", "/debug/pprof/goroutine?debug=1": "goroutine profile"} {
		resp, err := client.Get("http://unix" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, no %q", path, err, want)
		}
		if want := strconv.FormatInt(int64(k.AfterBoot()), 10); path == "/metrics" && resp.Header.Get(service.StartedHeader) != want {
			t.Errorf("the process started at %q after the boot, want %s", resp.Header.Get(service.StartedHeader), want)
		}
	}
}
