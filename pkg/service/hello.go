// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// helloPeriod is how often a service publishes its Hello on the bus.
const helloPeriod = 30 * time.Second

type hello struct {
	nodev1.UnimplementedNodeServiceServer
	kit *Kit
}

// Hello answers with the process's identity and health; a caller with an incompatible
// protocol is refused.
func (h *hello) Hello(_ context.Context, req *nodev1.HelloRequest) (*nodev1.HelloResponse, error) {
	if p := req.GetProtocol(); p != 0 && !Speaks(p) {
		return nil, rpc.Conflict.Errorf("%s speaks protocol %d, caller %q speaks %d", h.kit.Service, house.Protocol, req.GetService(), p)
	}
	return h.kit.Hello(), nil
}

// Speaks reports whether this build understands a neighbour's protocol: its own
// version, the one before and the one after.
func Speaks(protocol uint32) bool {
	return protocol+1 >= house.Protocol && protocol <= house.Protocol+1
}

// Hello is the process's answer to Hello now.
func (k *Kit) Hello() *nodev1.HelloResponse {
	k.mu.Lock()
	defer k.mu.Unlock()
	resp := &nodev1.HelloResponse{
		Service: string(k.Service), Version: Version, Protocol: house.Protocol, Epoch: k.Epoch,
		Pid: int64(os.Getpid()), StartedAt: timestamppb.New(k.started),
		Health: k.state, HealthReason: k.reason, BusConnected: k.Bus.Connected(),
	}
	for _, f := range k.feeds.Sources() {
		revision, complete, items := f.State()
		resp.Feeds = append(resp.Feeds, &nodev1.FeedState{
			Name: f.Name(), Revision: revision.Proto(), Complete: complete, Items: uint64(items),
		})
	}
	for _, m := range k.replicas {
		revision, complete, items, err := m.State()
		state := &nodev1.MirrorState{Name: m.Feed(), Revision: revision.Proto(), Complete: complete, Items: uint64(items)}
		if err != nil {
			state.Error = err.Error()
		}
		resp.Mirrors = append(resp.Mirrors, state)
	}
	resp.StateFiles = k.files.list()
	return resp
}

func (k *Kit) heartbeat(ctx context.Context) error {
	tick := time.NewTicker(helloPeriod)
	defer tick.Stop()
	for {
		k.Bus.Hello(k.Hello())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
