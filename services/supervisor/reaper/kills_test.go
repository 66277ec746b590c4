// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

// TestWatchKills: resource receives a kill as it happens, two calls are served at a time,
// and the end of the supervisor ends them.
func TestWatchKills(t *testing.T) {
	r := &Reaper{
		Socket: filepath.Join(t.TempDir(), "socket"), Identities: house.Identities{house.Resource: uint32(os.Getuid())}, Log: slog.New(slog.DiscardHandler),
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: r.Socket, Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test ends
	client := supervisorv1.NewSupervisorServiceClient(conn)
	watch, err := client.WatchKills(t.Context(), &supervisorv1.WatchKillsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Served before there is a kill.
	if header, err := watch.Header(); header == nil || err != nil {
		t.Fatal(header, err)
	}
	name, pid := cgrouptest.Starved(t)
	for {
		kill, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if kill.GetCgroup() != name {
			continue
		}
		if kill.GetMachine() || kill.GetLimit() != name || kill.GetProcess() != "tail" || int(kill.GetPid()) != pid || time.Since(kill.GetAt().AsTime()) > time.Minute {
			t.Errorf("%v", kill)
		}
		break
	}
	second, err := client.WatchKills(t.Context(), &supervisorv1.WatchKillsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Recv(); err != nil {
		t.Fatal(err)
	}
	third, err := client.WatchKills(t.Context(), &supervisorv1.WatchKillsRequest{})
	if err == nil {
		_, err = third.Recv()
	}
	if !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("a third call: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	if !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("at the end: %v", err)
	}
}
