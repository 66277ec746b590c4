// SPDX-License-Identifier: Apache-2.0

package reaper

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
	"github.com/sextant-node/sextant/services/supervisor/kernellog"
)

// mostWatches is how many calls of WatchKills are served at a time: resource has one,
// and the one before it may not have ended yet.
const mostWatches = 2

// WatchKills implements supervisorv1.SupervisorServiceServer.
func (r *Reaper) WatchKills(req *supervisorv1.WatchKillsRequest, stream grpc.ServerStreamingServer[supervisorv1.WatchKillsResponse]) error {
	defer r.watches.count.Add(-1)
	if r.watches.count.Add(1) > mostWatches {
		return rpc.Unavailable.Errorf("%d calls are under way", mostWatches)
	}
	// The caller knows that it is served before there is a kill.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-r.watches.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := kernellog.Watch(ctx, req.GetFrom(), func(k kernellog.Kill, at time.Time) error {
		return stream.Send(&supervisorv1.WatchKillsResponse{
			Sequence: k.Sequence, At: timestamppb.New(at), Process: k.Process, Pid: int32(k.PID),
			Machine: k.Scope == kernellog.Machine, Cgroup: k.Cgroup, Limit: k.Limit,
		})
	})
	if ctx.Err() != nil {
		return rpc.Unavailable.Errorf("the supervisor ends")
	}
	return rpc.Conflict.Errorf("the kernel's log: %w", err)
}
